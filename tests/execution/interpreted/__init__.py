"""The cuda backend as a whole in triton's interpreter, on a tiny model. Run by `../test_interpreted.py`.

By hand: TRITON_INTERPRET=1 pytest tests/execution/interpreted
"""
