"""What makes `continue` stop: conditions, broken invariants, and changes of what is watched."""

from typing import Any

from replay.debug.answer import BadCommand
from replay.debug.expressions import Condition, Names
from replay.time_machine.state import State

INVARIANT = "invariant"
_WATCHED = ("request", "block", "tenant")


class Breakpoint:
    """
    text   as it was given
    """

    def __init__(self, text: str) -> None:
        self.text = text

    def hit(self, state: State) -> str:
        """Why it stops here; "" when it does not. Asked behind each entry on the way."""
        raise NotImplementedError

    def begin(self, state: State) -> None:
        """The way begins here."""


class OnCondition(Breakpoint):
    """Where the expression holds, and did not behind the entry before."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._condition = Condition(text)
        self._held = False

    def begin(self, state: State) -> None:
        self._held = self._condition.holds(state)

    def hit(self, state: State) -> str:
        held, self._held = self._held, self._condition.holds(state)
        return self.text if self._held and not held else ""


class OnInvariant(Breakpoint):
    """Where a block is lost or in two places, an index entry points one way only, or a host block is nobody's."""

    def __init__(self) -> None:
        super().__init__(INVARIANT)

    def hit(self, state: State) -> str:
        return broken_invariant(state)


class OnChange(Breakpoint):
    """Where what is watched is not as it was behind the entry before."""

    def __init__(self, text: str) -> None:
        kind, _, name = text.partition(" ")
        name = name.strip()
        if kind not in _WATCHED or not name:
            raise BadCommand(
                f"{text!r} cannot be watched", "watch request REQ, watch block NUMBER or watch tenant NAME"
            )
        if kind == "block" and not name.isdecimal():
            raise BadCommand(f"{name!r} is no block", "watch block NUMBER")
        super().__init__(f"{kind} {name}")
        self._kind, self._name = kind, name
        self._last: Any = None

    def begin(self, state: State) -> None:
        self._last = self.value(state)

    def hit(self, state: State) -> str:
        before, self._last = self._last, self.value(state)
        return "" if before == self._last else f"{self.text}: {_told(before)} → {_told(self._last)}"

    def value(self, state: State) -> dict[str, Any] | None:
        """What is watched of it, by name; None while there is no such request or tenant."""
        if self._kind == "request":
            return _request(state, self._name)
        if self._kind == "tenant":
            return next((each._asdict() for each in state.tenants() if each.name == self._name), None)
        if int(self._name) >= state.core.pool.num_blocks:
            raise BadCommand(
                f"there is no block {self._name}", f"the pool has {state.core.pool.num_blocks}, counted from 0"
            )
        names = Names(state)
        return {"owners": names["owners"](int(self._name)), "references": names["references"](int(self._name))}

    def line(self, state: State) -> str:
        return f"{self.text}: {_told(self.value(state))}"


def broken_invariant(state: State) -> str:
    """In words; "" when all hold. Cost: one pass over both pools."""
    try:
        state.core.check_invariants()
    except AssertionError as error:
        what = str(error).partition("\n")[0] or "blocks are not where they should be"
        return f"invariant broken: {what}"
    return ""


def _request(state: State, name: str) -> dict[str, Any] | None:
    request = state.find(name)
    if request is None:
        return None
    return {
        "status": str(request.status),
        "waits_for": str(request.deferral[0]) if request.deferral and request.status != "running" else "",
        "output_tokens": request.num_output_tokens,
        "blocks": len(request.block_table),
        "preemptions": request.num_preemptions,
        "is_protected": request.is_protected,
    }


def _told(value: dict[str, Any] | None) -> str:
    return "not there" if value is None else ", ".join(f"{name} {item}" for name, item in value.items() if item != "")
