"""Execution: carries out what the core decided, and never decides who runs.

Read in this order: `interface.py` (what the loop and replay need; `passing_on.py`: one in front of another),
`runner.py` (with weights) and `scripted.py` (without), `launching.py` (a step in two halves), `held_request.py`,
`batch.py` (planned step → arrays), `sampler.py` (what a request's draws depend on) and `token_mask.py` (what its
grammar allows), `prompt_logprobs.py` (what a prompt's rows are asked), `digests.py` (what the core knows instead of
tokens), `kv_store.py`, `kv_watch.py` (whether blocks still hold what was written to them), `alone.py` (one request by
itself), `architectures.py` (what sets each apart), `model.py`, `rotary.py`, `gemma3.py` and `weights/` (files →
parameters), `filled_limits.py` and `device_pool.py` (the pool's size where nobody gives it), `notices.py` (what a
backend tells an operator), `build.py` (puts it all together).

It may import engine.core, engine.text, engine.config, engine.clock and kernels. This file imports nothing, so that
what needs no weights needs no torch.
"""
