"""What must be shown on a GPU, in one run of at most ten minutes: `tests/gpu/run.sh`.

Read in this order: `parts.py` (what is shown, with limits), `__main__.py` (each part in a process of its own; table and
JSON; `compiled_ahead.py` beside the first parts), `stage.py` (model, backend and sizes, real or dry; `made_models.py`
where no model is at hand), `shown_by_bits.py`, `shown_by_promises.py` (with `loads.py`), `shown_by_kernels.py`,
`shown_by_draws.py` (sampled tokens; prefill in pieces), `shown_by_large.py` (an 8B, measured beside predicted) and
`shown_by_speed.py`, both with `timed_steps.py` and `stock.py`, the same decoder in stock torch (`widened.py`),
`shown_by_others.py` (the suite's own tests, compute-sanitizer). `carry.sh` fetches the packages that a machine without
a network lacks; `behind/` puts them after its own.
"""
