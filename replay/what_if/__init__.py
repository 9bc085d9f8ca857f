"""`what-if`: a recorded load under other settings, predicted, or executed on the real model. Read in this order:

recorded_load.py     a recorded life as a load: what came from outside and when, each answer, what the steps took
part.py              a stretch of one life in a question, with what a reader should know of it
scenario.py          the settings asked for: limits, the core they make, recorded changes of policy
counterfactual.py    the loop: the core meets the inputs; follows the recording until it does something else
predicted_steps.py   steps that are not executed: results from the recorded answers
step_times.py        … and what they take; `replay/model_runs/real_steps.py` executes them instead
outcome.py           a run of any origin in figures, in all and by tenant
trust.py             the control: how well the same means predict what was recorded
what_if.py           the verb: recorded, control and counterfactual side by side
answer.py            the result as text and JSON
command.py           the verb's flags
"""
