"""The trace viewer's server side: a recording as tiles, inspectors and answers to SQL, in a browser on this machine.

Read in this order: `viewed.py` (the recording that is looked at), `indexing.py` (its index, kept by a process of its
own), `following.py` (… and read as it grows), `columns.py` (steps and slices as arrays, each `growing.py`, steps with
a `pyramid.py` on each, slices `by_request.py`), `requests.py` and `names.py` (requests, likewise),
`entries_of_request.py` (what is recorded about one), then what is made of them: `timeline.py`,
`merging.py`, `rows.py`, `strips.py`, `sums.py` (of a selection), `framing.py` (how arrays travel), `states.py` (the
core's state at a step), `answers/` (one file for each kind of question), `sql_box.py`, `questions.py`. Two recordings
side by side: `beside.py` (rows that are pairs), `pairing.py` (who is who), `differing.py` (where the two of a pair
part). Around it: `parameters.py`, `errors.py`, `access.py` and `guard.py` (who may see it), `page_files.py`,
`application.py` (routes), `serving.py`, `command.py` (`reprise view`), `single_file.py` (the page
as one file), `embedding.py` and `packing.py` (with what in it), `step_passes.py`, `block_ages.py` and
`request_passes.py` (hundreds of answers at once), `recorder_at_work.py`. `page/` is the page.
"""
