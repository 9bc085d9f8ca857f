"""`Session`: where in the recording one stands, what is to stop the way, and one command after the other."""

from replay.debug.answer import Answer
from replay.debug.breakpoints import Breakpoint
from replay.debug.commands import command_of
from replay.debug.moving import standing
from replay.time_machine.histories import Histories
from replay.time_machine.state import State
from replay.time_machine.time_machine import TimeMachine


class Session:
    """
    state         where it stands
    breakpoints   breaks and watches by their numbers
    is_over       quit was said
    """

    def __init__(self, machine: TimeMachine, state: State) -> None:
        self.machine = machine
        self.state = state
        self.breakpoints: dict[int, Breakpoint] = {}
        self.is_over = False
        self._num_breakpoints = 0

    @property
    def histories(self) -> Histories:
        """Of the engine process where it stands."""
        return self.machine.histories(self.state.life)

    def ask(self, line: str) -> Answer:
        """Carry one command out. Raises CannotCompare, BadCommand, NeverMet: the place is as before then."""
        command, argument = command_of(line)
        return command.run(self, argument)

    def stand(self, state: State, why: str = "") -> Answer:
        """From now on there; why it stopped there."""
        self.state = state
        return standing(self, why)

    def add(self, stop: Breakpoint) -> Answer:
        self._num_breakpoints += 1
        self.breakpoints[self._num_breakpoints] = stop
        return Answer((f"{self._num_breakpoints}: {stop.text}",), {"number": self._num_breakpoints, "text": stop.text})
