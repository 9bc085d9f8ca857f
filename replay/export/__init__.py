"""`reprise export`: a recording in the formats of other tools. All of them are readings of the stream; none holds more
than what lives at once, so a recording of any length can be exported.

Read in this order:

    telling.py       a recording → its moments; `recorder/spans/` makes them, and spans of them
    perfetto.py, chrome.py, otlp.py   moments in each format of traces
    jsonl.py         every record by name; parquet.py: tables
    metrics.py       the figures that /metrics showed
    load_traces.py   the load alone: Mooncake, OpenAI batch
    pytest_fixture.py   a test that fails as the recording did; served_again.py is what it calls
    command.py       the verb
"""
