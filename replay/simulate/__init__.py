"""The simulator: the core itself, under a trace's load, on virtual time, with an executor that only counts.

What is decided is decided by the engine's own core; what a step takes, a model says (`step_cost.py`). So policies,
ways of mixing phases and sizes of the pool are compared in seconds, without a model. Read in this order:

    arrivals.py     what a trace gives, and how it is fitted to a model: lengths scaled, time stretched, cut, repeated
    trace_files.py  a file → its arrivals: content tells the format. `trace_lines.py` and `trace_rows.py` read within
                    bounds; `csv_traces.py` (Azure, BurstGPT, vidur), `mooncake.py` (and Bailian), `prompt_traces.py`
                    (OpenAI batches, ShareGPT, prompts), `servegen.py`, `recorded_trace.py` know the formats
    poisson.py      times for a trace without any
    trace_options.py, step_cost_options.py   what the verbs that take a trace ask alike
    step_cost.py    what a step takes; `fitted_cost.py` fits it to a recording
    executor.py     a planned step → its result, in counts
    simulation.py   the loop: arrivals in order of time, steps one after the other, entries to who reads them
    injected.py     faults on purpose, as an engine takes them (`engine/injection.py`)
    fairness.py     what each of several tenants should have had, and Jain's index
    outcome.py      the entries read by `recorder/timeline.py`, in figures
    recording.py    the entries on disk as an engine would have written them: `check` and `show` take them
    run.py          one simulation from its parts to its figures
    command.py      the verb `simulate`
    import_command.py   the verb `import`: a trace → a recording
"""
