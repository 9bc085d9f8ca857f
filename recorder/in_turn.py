"""Entries → entries that tell of each step when its turn comes: for readers of steps, one after the other.

Where steps are planned ahead (`engine/core/ahead.py`) the plan of step k+1 stands between the launch of step k and its
result. Here it is moved behind that result, as if it had been planned then: that is when the step begins, what its time
is counted from, and when its requests have the tokens that its rows go on from. Rows of requests that have ended
meanwhile were not computed: they are left out, with their new blocks. All else stays as it was recorded. Without the
option nothing is changed. It must not know what a reader does with it.
"""

from typing import Any

from engine.core.decisions import RequestFinished, StepPlanned
from engine.core.events import ExecutorRestarted, StepCompleted, StepFailed, StepLaunched
from engine.core.kv_mismatch import without_rows
from engine.core.vocabulary import Entry, RecordingGap


class InTurn:
    """Call it with one entry after the other.

    ahead           the step that is planned, and whose turn has not come
    plan_sequence   of the entry that planned the latest step told of
    """

    def __init__(self) -> None:
        self.plan_sequence = -1
        self.ahead: StepPlanned | None = None
        self._ahead_sequence = -1
        self._ended: set[int] = set()

    def __call__(self, entry: Entry) -> Entry:
        kind = type(entry.event)
        if kind is StepLaunched:
            return self._launched(entry)
        if self.ahead is not None:
            return self._while_ahead(entry, kind)
        if entry.decisions and type(entry.decisions[-1]) is StepPlanned:
            self.plan_sequence = entry.sequence
        return entry

    def forget(self) -> None:
        """Entries are missing from here on, or another engine begins."""
        self.ahead = None

    def _launched(self, entry: Entry) -> Entry:
        plan = entry.decisions[-1] if entry.decisions else None
        if type(plan) is not StepPlanned:
            return entry
        self.ahead = plan
        self._ahead_sequence = entry.sequence
        self._ended.clear()
        self._see(entry.decisions)
        return entry._replace(decisions=entry.decisions[:-1])

    def _while_ahead(self, entry: Entry, kind: type[Any]) -> Entry:
        self._see(entry.decisions)
        if kind is StepCompleted or kind is StepFailed:
            assert self.ahead is not None, "it was asked"
            plan, self.ahead, self.plan_sequence = self.ahead, None, self._ahead_sequence
            if self._ended:
                plan = without_rows(plan, self._ended)
            return entry._replace(decisions=(*entry.decisions, plan))
        if kind is RecordingGap or kind is ExecutorRestarted:
            self.forget()
        return entry

    def _see(self, decisions: tuple[Any, ...]) -> None:
        self._ended.update([decision.request for decision in decisions if type(decision) is RequestFinished])
