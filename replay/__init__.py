"""Replay: recorded events go through the same core again, recorded plans through the same kernels.

Read in this order: `lives.py` (a recording as the lives of its engine processes), `span.py` (`--from STEP`: where
the core's state is known to begin at), `player.py` (events into the core),
`divergence.py` (a difference and what surrounds it), then the verbs of `__main__.py`:

    show      `show.py`: `summary.py` and `figures.py` (the recording at large), `request_story.py`, `transcript.py`
    check     `check.py`: the core decides again
    execute   `execute.py`: `model_runs/reexecution.py` carries the recorded plans out again, `tokens.py` compares,
              `execution_report.py` says what differs, `model_runs/replay_recording.py` records what comes out
    isolate   `isolate.py`: `history.py` (a request as recorded), `model_runs/alone.py` (the request by itself),
              `model_runs/kv_blocks.py` (the block that went wrong first), `isolation_report.py`; with --prove
              `model_runs/prove.py` and `proof.py` (the row, layer and operation, and whose data was there)
    bisect, trace
              `bisect/`: where two builds, recordings or revisions part; `model_runs/step_trace.py` looks into steps

    what-if   `what_if/`: the recorded load under other settings; `model_runs/real_steps.py` executes it
    diff      `diff/`: two recordings aligned by request

    shrink    `shrink/`: the smallest recording that fails in the same way; `model_runs/stage.py` is its model

    debug     `debug/`: time travel in the terminal

    show --fsck, repair, mark
              `tending.py`: recordings kept whole, and kept
    redact    `model_runs/redaction.py`: a copy without contents
    keys      `key_ring.py`: the keys of encrypted contents
    export    `export/`: the formats of other tools, and a failure as a test
    view      `viewer/`: all of it in a browser
    simulate, import
              `simulate/`: no recording, but a trace's load through the core on virtual time

Under `debug` and the viewer lie `index/` (an sqlite file per recording that says who, when and why, at once) and
`time_machine/` (the core as it was at any step, and what led there).

Beside them: `verdict.py` (the three outcomes and their exit codes), `refusal.py` (why nothing can be compared),
`environment.py` (numerics classes), `own_policy.py` (an operator's own policy, only from the recorded source),
`older_writer.py` (fields that came after the recording), `done.py` (what a decision did, without its figures),
`limit_flags.py` (the engine's limits as flags),
`rendering.py`, `progress.py`. Only `model_runs/` knows execution.
"""
