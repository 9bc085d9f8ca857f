"""`reprise bisect`: the first step where two sides part, then the row, layer and operation.

`halving.py` (the first difference of two running digests), `builds.py` (one recording on two builds),
`this_build.py` (a recording and this build), `recordings.py` (two recordings of the same arrivals), `revisions.py`
(which git revision brought it, with `check` and `execute` or a command as the judge), `worktree.py` (a revision made
ready to run), `revision_side.py` (a revision as a side of `builds.py`), `command.py` (the verbs `bisect` and `trace`).
"""
