"""Conditions: Python expressions over the names below, evaluated behind each entry.

They are run as they are, with all that Python can do: they come from the operator, on the operator's own machine, who
could run the same code without us. Never take one from a recording or from the network.
"""

import traceback
from collections.abc import Iterator, Mapping
from types import CodeType
from typing import Any

from engine.core.request import Request, Status
from replay.debug.answer import BadCommand
from replay.time_machine.state import State

NAMES = {
    "step": "the step planned last",
    "sequence": "of the entry",
    "time_s": "seconds since the recording was opened",
    "now_ns": "the entry's own time",
    "event": "the entry's event",
    "decisions": "the entry's decisions",
    "kinds": "names of the event and the decisions: 'RequestPreempted' in kinds",
    "requests": "live requests by number",
    "request": "request('req-7') or request(7): a live request; all its fields are None while it does not live",
    "running": "running requests, in order of admission",
    "waiting": "requests that wait, by number",
    "num_running": "how many run",
    "num_waiting": "how many wait, preempted ones included",
    "free_blocks": "blocks that can be allocated: free or cached",
    "references": "references(17): how many requests have block 17",
    "owners": "owners(17): the numbers of those that have block 17",
    "is_thrashing": "between ThrashingBegan and ThrashingEnded",
    "watermark_blocks": "blocks that an admission leaves free",
    "tenants": "by name: num_waiting, num_running, num_queued_tokens, service",
    "limits": "those in force",
    "core": "the core itself; change nothing in it",
}


class NotLive:
    """Stands for a request that does not live there: it has every field, and each is None."""

    def __getattr__(self, name: str) -> None:
        return None


class Condition:
    """Raises BadCommand when it is no expression."""

    def __init__(self, text: str) -> None:
        self.text = text.strip()
        if not self.text:
            raise BadCommand(
                "a condition is missing", "give a Python expression: num_waiting > 3; help lists the names"
            )
        try:
            self._code: CodeType = compile(self.text, "<condition>", "eval")
        except SyntaxError as error:
            raise BadCommand(
                f"{self.text!r} is no Python expression: {error.msg}", "help expressions lists the names it can use"
            ) from error

    def holds(self, state: State) -> bool:
        """Raises BadCommand when it raises."""
        try:
            return bool(eval(self._code, {}, Names(state)))
        except Exception as error:
            what = traceback.format_exception_only(error)[-1].strip()
            raise BadCommand(
                f"{self.text!r} raised at sequence {state.sequence}: {what}",
                "help expressions lists the names; a request that does not live has None in every field",
            ) from error


class Names(Mapping[str, Any]):
    """The names, each made when it is asked for: most conditions ask for one or two."""

    def __init__(self, state: State) -> None:
        self._state = state

    def __getitem__(self, name: str) -> Any:
        if name not in NAMES:
            raise KeyError(name)
        return getattr(self, f"_{name}", None) if hasattr(self, f"_{name}") else getattr(self._state, name)

    def __iter__(self) -> Iterator[str]:
        return iter(NAMES)

    def __len__(self) -> int:
        return len(NAMES)

    @property
    def _event(self) -> Any:
        return None if self._state.entry is None else self._state.entry.event

    @property
    def _decisions(self) -> tuple[Any, ...]:
        return () if self._state.entry is None else self._state.entry.decisions

    @property
    def _kinds(self) -> list[str]:
        return [type(record).__name__ for record in (self._event, *self._decisions) if record is not None]

    @property
    def _waiting(self) -> list[Request]:
        return [each for each in self._state.requests.values() if each.status is not Status.RUNNING]

    @property
    def _num_running(self) -> int:
        return len(self._state.core.planner.running)

    @property
    def _num_waiting(self) -> int:
        return len(self._state.core.planner.waiting)

    @property
    def _free_blocks(self) -> int:
        return self._state.core.pool.num_free

    @property
    def _is_thrashing(self) -> bool:
        return self._state.core.planner.admission.thrash.is_thrashing

    @property
    def _watermark_blocks(self) -> int:
        return self._state.core.planner.admission.thrash.watermark_blocks

    @property
    def _tenants(self) -> dict[str, Any]:
        return {tenant.name: tenant for tenant in self._state.tenants()}

    def _request(self, name: str | int) -> Request | NotLive:
        return self._state.find(str(name)) or NotLive()

    def _references(self, block: int) -> int:
        return int(vars(self._state.core.pool)["_reference_counts"][block])

    def _owners(self, block: int) -> list[int]:
        return [number for number, request in self._state.requests.items() if block in request.block_table]
