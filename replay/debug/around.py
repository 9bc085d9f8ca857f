"""The entries near here, as the transcript has them."""

from typing import TYPE_CHECKING

from replay.debug.answer import Answer
from replay.debug.moving import number
from replay.transcript import HEADING, lines

if TYPE_CHECKING:
    from replay.debug.session import Session

_ENTRIES = 3
_WIDTH = 160


def around(session: "Session", argument: str) -> Answer:
    """So many entries before and behind, and this one; a decision's line bears `>`, this entry `→`."""
    reach = number(argument, "a number of entries") if argument else _ENTRIES
    state = session.state
    first = max(session.machine.extent(state.life).first_sequence, state.sequence - reach)
    told, sequences = [f"  {HEADING}"], list[int]()
    for entry in session.machine.entries(state.life, first, state.sequence + reach):
        mark = "→ " if entry.sequence == state.sequence else "  "
        told += [f"{mark}{line[:_WIDTH]}" for line in lines(entry, state.opened_ns)]
        sequences.append(entry.sequence)
    decided = session.histories.decisions(first, state.sequence + reach)
    values = {"sequences": sequences, "decisions": [each._asdict() for each in decided]}
    return Answer(tuple(told), values)
