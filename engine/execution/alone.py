"""One request alone: a core of its own, no prefix cache, nobody else in any step.

By fixed-order numerics its tokens and digests are the very bits it has in company. It must not know what they are
compared with.
"""

from collections.abc import Generator
from dataclasses import replace

from engine.core.contents import RequestContents
from engine.core.decisions import StepPlanned
from engine.core.events import CancelCause, Event, RequestArrived, RequestCancelled
from engine.core.limits import Limits
from engine.core.policies.fcfs import FirstComeFirstServed
from engine.core.scheduler import Core
from engine.execution.interface import Runner, StepResult


def steps_alone(
    arrived: RequestArrived, contents: RequestContents, limits: Limits, runner: Runner
) -> Generator[StepResult, None, None]:
    """The results of its steps, until it ends by itself or the caller stops asking.

    The runner must hold no other request; it holds none afterwards, and may be used again. Whatever executing raises
    comes through.
    """
    core = Core(replace(limits, enable_prefix_caching=False, scheduling_policy=FirstComeFirstServed.name))
    runner.add_request(arrived.request, arrived.sampling, contents)
    event: Event = arrived
    try:
        while (plan := _decide(core, event, runner)) is not None:
            result = runner.execute(plan)
            yield result
            event = result.completed
    finally:
        _decide(core, RequestCancelled(arrived.request, CancelCause.CLIENT), runner)


def _decide(core: Core, event: Event, runner: Runner) -> StepPlanned | None:
    """Carry out what the core decides; the step to execute next, if any. Time stands still."""
    plan = None
    for decision in core.handle(event, 0):
        if isinstance(decision, StepPlanned):
            plan = decision
        else:
            runner.carry_out(decision)
    return plan
