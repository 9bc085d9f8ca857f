"""Scheduling policies, one per file: the order of the waiting, and who gives way under pressure.

`interface.py` states the questions and what a policy is told; `registry.py` knows the names; `change.py` changes policy
and parameters at run time.
    fcfs        in order of arrival
    priority    classes 0 to 9, aging
    fair        the least served tenant first, by weight
    shortest    the least predicted work first; `output_lengths.py` learns what to predict
    deadline    the earliest TTFT or ITL target first
How a step is shared between prefill and decode is asked of `phases/`. The bound on waits and preemptions that holds
under all of them is proved in `../starvation.py`.
"""
