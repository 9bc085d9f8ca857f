"""The kernels: numbers in, numbers out, each in one fixed order.

Read in this order: `backend.py` and `device_backend.py` (what a backend is given and gives back), `decoder.py` (a
decoder's shape and weights), `stored_tensor.py` (weights as they lie in their files), `packing.py` (sequences' rows → a
step's arrays), `sampling.py` and `philox.py` (how a token is drawn), `scoring.py` (what rows say of given tokens),
`memory.py` and `rotary.py` (what every backend needs), `block_digest.py` (a KV block's contents as a number),
`reference.py`, `reference_attention.py`, `reference_sampling.py` and `reference_scoring.py` (the meaning of each
operation, in plain torch and numpy; `reference_layer.py` is one layer on one tile, `reference_attention_plan.py` which
keys a query reads), `cpu/` (the native backend), `cuda/` (the one for NVIDIA GPUs), `cuda_driver.py` and
`gpu_report.py` (whether there is one, and what it can do), `trace.py` and `slots.py` (a step looked at operation by
operation, and KV memory slot by slot), `dispatch.py` (chooses a backend once, at start), `selftest.py` (proves row,
chunk and thread invariance on this machine), `numeric_environment.py` (what must be set before torch is imported).

It may import nothing else of ours. It must not know requests, tokens' text, the scheduler, or the clock. Only the
reference backend and cuda import torch: a process that serves with cpu is three times smaller and starts sooner.
"""
