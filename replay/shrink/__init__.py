"""`reprise shrink`: what a failure needs, and nothing else. A recording's load is performed again with parts left out.

Read in this order:

    scenario.py        a recording as what came to the engine from outside: who asked for what, when, and who left
    step_times.py      what a step takes when it is performed again
    rehearsal.py       a scenario performed: the core on virtual time, an executor beside it
    counted.py         the executor that needs no token; the one with a model is `replay/model_runs/stage.py`
    evidence.py        what a predicate looks at: entries, limits, and contents and a model where they are there
    invariants.py      what every recording keeps to, read from its entries
    predicates.py      what makes a recording a failure: `parse("thrashing").holds(path)`; `expressions.py`: your
                       own; `predicate_help.py`: the list
    second_opinion.py  whether another process decides otherwise
    trial.py           one try: perform, then ask the predicate; `workers.py` runs tries in parallel processes
    ddmin.py           delta debugging over any list
    reductions.py      simpler scenarios than a given one; `rearranging.py`: with one request fewer, moved about
    shrink.py          the order of it all; `written.py` puts the result on disk
    command.py         the verb

Nothing here knows execution; what is performed with a model goes through the seams `Executor` and `Stage`.
"""
