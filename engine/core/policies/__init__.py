"""Scheduling policies: small pure objects, one per file, that answer two questions for the scheduler.

1. the order of the waiting (`rank`), 2. the victim under pressure (`victim`, `victims_for_admission`). How a step is
shared between prefill and decode is asked of `phases/`. `interface.py` states the questions; `registry.py` knows the
names.
"""
