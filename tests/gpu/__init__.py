"""What must be shown on a GPU, in one run of at most ten minutes: `tests/gpu/run.sh`.

`stock.py` is the same decoder in stock torch, to know what invariance costs.
"""
