"""Kernels in triton's interpreter, against float64 and against themselves. Run by `../test_interpreted.py`."""
