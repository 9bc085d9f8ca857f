"""Mixed phases: how a step's token budget is shared between decodes and prefills, one small file for each way.

`interface.py` states the question; `chunked.py` lets prefills ride along within a fixed budget, `adaptive.py` within a
time, `pools.py` lets both have the device by turns, `prefill_first.py` is the naive way; `registry.py` knows the names.
Who comes first among the waiting and who gives way is asked of `policies/`.
"""
