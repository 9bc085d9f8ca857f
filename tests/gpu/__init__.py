"""What must be shown on a GPU, in one run of at most ten minutes: `tests/gpu/run.sh`.

Read in this order: `parts.py` (what is shown, with limits), `__main__.py` (each part in a process of its own; table and
JSON), `stage.py` (model, backend and sizes, real or dry), `shown_by_kernels.py`, `shown_by_bits.py`,
`shown_by_promises.py` (with `loads.py`), `shown_by_draws.py`, `shown_by_speed.py` (with `stock.py`, the same decoder in
stock torch, and `widened.py`), `shown_by_others.py` (the suite's own tests, compute-sanitizer).
"""
