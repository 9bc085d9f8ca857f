"""The tests, in the order of the packages they hold to their promises.

`core/` tells stories (`story.py`) and lets Hypothesis attack them; `simulation/` runs the whole engine without weights
from a seed; `kernels/` and `execution/` compare bits; `recorder/` and `replay/` damage recordings; `daemon/` speaks
HTTP to an engine without weights; `integration/` is the whole of it, real model and all; `bench/` measures and asserts
nothing.
"""
