"""Mixed phases: how a step's token budget is shared between decodes and prefills, one small file for each way.

`interface.py` states the question; `chunked.py` lets prefills ride along within the budget; `registry.py` knows the
names. Who comes first among the waiting and who gives way is asked of `policies/`.
"""
