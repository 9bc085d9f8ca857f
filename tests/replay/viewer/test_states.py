"""The viewer's states are those of the time machine, in whatever order steps are asked for."""

import random

from replay.time_machine.state import State
from replay.time_machine.time_machine import TimeMachine
from replay.viewer.states import States
from replay.viewer.viewed import Viewed


def read(state: State) -> tuple[int, int, list[tuple[int, int, int]]]:
    requests = sorted(state.requests.items())
    return (
        state.sequence,
        state.step,
        [(number, it.num_computed_tokens, len(it.block_table)) for number, it in requests],
    )


def test_a_core_that_goes_on_is_the_one_made_anew(viewed: Viewed) -> None:
    machine = TimeMachine(viewed.path, viewed.index.path.parent)
    states, draw = States(viewed.path, viewed.index.path.parent), random.Random(5)
    last = machine.extent(1).last_step
    places = [draw.randint(0, last) for _ in range(12)]
    for step in [near for at in places for near in (at, at, min(last, at + 1), max(0, at - 1))]:
        assert states.read(1, step, read) == (read(machine.at_step(step, 1)), "")
    states.close()
    machine.close()


def test_a_step_that_is_not_there_leaves_the_others_as_they_were(viewed: Viewed) -> None:
    states = States(viewed.path, viewed.index.path.parent)
    expected = states.read(1, 3, read)
    assert states.read(1, 10_000_000, read)[0] is None
    assert states.read(1, 3, read) == expected
    states.close()
