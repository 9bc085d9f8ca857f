"""Scheduling policies: small pure objects, one per file, that answer three questions for the scheduler.

1. the order of the waiting (`rank`), 2. the victim under pressure (`victim`, `victims_for_admission`), 3. the split of
a step's token budget among the running (`split`). `interface.py` states the questions; `registry.py` knows the names.
"""
