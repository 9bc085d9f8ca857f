"""What runs a model again, and so may know execution and kernels: the only part of replay that does.

`open_model.py` (the recorded model, made ready), `reexecution.py` (recorded plans, carried out again),
`replay_recording.py` (what came out, on disk), `midway.py` (… from a keyframe on), `alone.py` (one request by itself),
`kv_blocks.py` (the block that went wrong first), `real_steps.py` (steps of a counterfactual), `redaction.py` (a copy
without contents, with `redacted_names.py` and `redacted_states.py`), `stand_in.py` (a small model, and prompts, where
those recorded are not there; `synthetic_tokens.py` for both); `tracing.py` (a runner looked into),
`kv_log.py` (who wrote which row), `prove.py` and `alone_trace.py` (company against alone, operation by operation),
`step_trace.py` (steps as digests, for two builds). torch is imported when a model is opened, not before.
"""
