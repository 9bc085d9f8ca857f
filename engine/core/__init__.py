"""The core: a pure state machine that decides who runs, who waits and who gives way.

Read in this order: `events.py` (what can happen), `decisions.py` (what can be decided), `request.py` (one request's
life), `kv_cache.py` (blocks), `waiting.py` (the queue), `planner.py` (one planning pass), `scheduler.py` (the core
itself: one entry, `handle`), `policies/` (who comes first, who gives way), `starvation.py` (the guard above them, and
the bound that it keeps), `phases/` (what prefill and decode get of a step), `step_time.py` (what a step will take),
`admission.py` (who is let in although blocks are free: the watermark of `thrash.py`, and `expected_output.py`),
`queue_limits.py`, `drain_rate.py` and `deadlines.py` (what the queue refuses, for how long, and how long it keeps),
`kv_mismatch.py` (what is done when a block went wrong), `ahead.py` (the next step, planned while one runs),
`swapping.py` (whether a victim's blocks go to the `host_pool.py`, by the measured `swap_cost.py`), `limits.py`,
`errors.py`, `keyframes/` (the whole state as plain values, and back).
Beside it lie `sampling_params.py` and `contents.py` (carried, never read here) and `vocabulary.py` (kind numbers).

It may import nothing else of ours, and must not know clocks, entropy, files, sockets, torch, or any token.
"""
