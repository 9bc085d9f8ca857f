"""A request's output tokens when it runs alone (`engine/execution/alone.py`), as the verbs compare them.

By fixed-order numerics its tokens and digests must be the very bits it had in company.
"""

from collections.abc import Generator
from contextlib import closing

from engine.core.contents import RequestContents
from engine.core.events import RequestArrived
from engine.core.limits import Limits
from engine.execution.alone import steps_alone
from engine.execution.interface import Runner
from replay.tokens import Computed, OutputCounter, computed_tokens


def run_alone(
    arrived: RequestArrived, contents: RequestContents, limits: Limits, runner: Runner
) -> Generator[Computed, None, None]:
    """The request's output tokens, until it ends by itself or the caller stops asking.

    The runner must hold no other request; it holds none afterwards, and may be used again. Whatever executing raises
    comes through.
    """
    counter = OutputCounter()
    counter.begin(arrived.request, arrived.num_output_tokens)
    with closing(steps_alone(arrived, contents, limits, runner)) as steps:
        for result in steps:
            yield from computed_tokens(result.completed, result.outputs, counter)
