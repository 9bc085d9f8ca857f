"""The simulator: the core itself, under a trace's load, on virtual time, with an executor that only counts.

What is decided is decided by the engine's own core; what a step takes, a model says (`step_cost.py`). So policies,
ways of mixing phases and sizes of the pool are compared in seconds, without a model. Read in this order:

    arrivals.py     what a trace gives, and how it is fitted to a model: lengths divided, time stretched, cut, repeated
    trace_files.py  a file → its arrivals; `azure.py`, `mooncake.py` and `servegen.py` know one format each
    step_cost.py    what a step takes; `fitted_cost.py` fits it to a recording
    executor.py     a planned step → its result, in counts
    simulation.py   the loop: arrivals in order of time, steps one after the other, entries to who reads them
    fairness.py     what each of several tenants should have had, and Jain's index
    outcome.py      the entries read by `recorder/timeline.py`, in figures
    recording.py    the entries on disk as an engine would have written them: `check` and `show` take them
    run.py          one simulation from its parts to its figures
    command.py      the verb `simulate`
"""
