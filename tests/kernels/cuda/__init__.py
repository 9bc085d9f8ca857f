"""The GPU's kernels on a machine without one: interpreted in numpy (`interpreted/`), and compiled to be looked at."""
