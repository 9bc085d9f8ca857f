"""The time machine: the core as it was at any moment of a recording, and what led there.

Read in this order: `time_machine.py` (`TimeMachine`: a place by step, sequence or time, and the state there),
`places.py` (which entry that is), `rewinding.py` (the core from the nearest keyframe or checkpoint on),
`checkpoints.py` (those that it makes by itself), `state.py` (`State`: what can be read of a core), `waiting.py` (who
waits, in which order and why), `blocks.py` (every KV block), `tenants.py`, and `histories.py` (who wrote, read,
preempted and changed, from the index).

It shows states and changes none. It must not know terminals, nor the web.
"""
