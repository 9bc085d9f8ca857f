"""A recording's index: one sqlite file, made of the entries alone, that answers "when", "who" and "why" at once.

Read in this order: `schema.py` (the tables: what whoever asks may rely on), `location.py` (where the file lies, and
whose it is), `recording_index.py` (`RecordingIndex`: opens, builds and updates it), `resuming.py` (where it goes on,
and what is read again for that), `extent.py` (how far it is), `indexer.py` (entries → rows), and what the indexer is
made of: `moment.py` (where the reading stands), `sink.py` (rows on their way), `request_rows.py`, `step_rows.py`,
`slices.py`, `decision_rows.py`, `marks.py`, `holdings.py` (who has which blocks) and `block_writes.py` (who wrote into
them, and when).

It is disposable: whoever deletes it loses the time to build it again. It must not know who asks.
"""
