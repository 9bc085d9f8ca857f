"""What a scheduling policy answers, and what it is told: the interface of ours and of an operator's own.

A policy orders the waiting and chooses who gives way. It may keep state, made of nothing but what the hooks below hand
to it, in integers and in an order that is no hash's: equal events must give equal answers anywhere, for replay runs
the same policy again. It never changes a request. What it cannot do is starve anybody: the guard (`starvation.py`)
stands above every policy.

An operator's own policy is a class derived from `Policy`, named `module:Class` in `--scheduling-policy`; the module
must be importable where the engine runs, and where its recordings are checked:

    class Lifo(Policy):
        def rank(self, request: Request, now_ns: int) -> tuple[int, ...]:
            return (-request.number,)
"""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from engine.core.decisions import Decision, FinishReason
from engine.core.limits import Limits
from engine.core.request import Request
from engine.core.step_time import StepTimeModel


class Policy:
    """Derive from it, give it a `rank`, and whatever else differs from first come, first served within one lane.

    name      what `scheduling_policy` says; an operator's own is named by module and class instead
    reranks   the rank of a waiting request may change: it is asked anew when the request comes to the head of its lane,
              for a bounded number of requests each time
    limits    all bounds of the engine, the parameters of the policies among them
    step_times   what a step of a given shape takes: the core's own model once the policy is in charge, to be asked only
    """

    name: ClassVar[str] = ""
    reranks: ClassVar[bool] = False

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.step_times = StepTimeModel()

    # ── the order of the waiting ─────────────────────────────────────────────────────────────────────────────────

    def rank(self, request: Request, now_ns: int) -> tuple[int, ...]:
        """Its place in its lane, lowest first, among equals the older one; asked whenever it is queued."""
        raise NotImplementedError  # the one question that has no answer for every policy

    def lane(self, request: Request) -> str:
        """The waiting may stand in several lanes, each ordered by rank. The lane of a request never changes."""
        return ""

    def first_lane(self) -> str:
        """Whose head is next; asked only while somebody waits in a lane, as `on_queued` and `on_left_queue` told."""
        return ""

    # ── who gives way ────────────────────────────────────────────────────────────────────────────────────────────

    def victim(self, running: Sequence[Request], beneficiary: Request) -> Request:
        """Which of `running` gives up its blocks so that `beneficiary`, which runs too, gets one.

        `running` lacks the protected; it may hold `beneficiary`, which then may be the answer.
        """
        return max(running, key=_rank)

    def victims_for_admission(self, running: Sequence[Request], candidate: Request) -> list[Request]:
        """Those of `running` that may be preempted to admit `candidate`, first choice first; empty: none may."""
        return []

    # ── what it is told ──────────────────────────────────────────────────────────────────────────────────────────

    def on_arrived(self, request: Request, now_ns: int) -> None:
        """It is live from now on; also said of all live ones, oldest first, when the policy is put in charge."""

    def take_over(self, before: "Policy") -> None:
        """The one in charge until now: keep what both count or learn alike. It was told of all live requests, as this
        one has just been; the waiting are queued after this. What one in between does not count is lost."""

    def to_hand_over(self) -> tuple[tuple[Any, ...], ...]:
        """What it has counted or learned, for the same policy in the next engine: (tenant, integer …)
        each, a thousand at most. It is asked once a second, so the last second's is lost."""
        return ()

    def go_on_from(self, counted: Sequence[tuple[Any, ...]]) -> None:
        """What `to_hand_over` said in the engine before, recorded: said of a new policy, before any request arrives."""

    def on_queued(self, request: Request, now_ns: int) -> None:
        """It waits: it is new, or was preempted. Its rank is asked after this."""

    def on_left_queue(self, request: Request) -> None:
        """It waits in its lane no more: it is being admitted, has ended, or became protected."""

    def on_admitted(self, request: Request, now_ns: int) -> None:
        """It runs, its blocks given; `num_computed_tokens` are those found in the prefix cache."""

    def on_step(self, emitting: Sequence[Request], step_ns: int, now_ns: int) -> None:
        """A step was executed in `step_ns`; each of `emitting` got one more token, already counted."""

    def on_finished(self, request: Request, reason: FinishReason) -> None:
        """It has ended, for whatever reason; if it waited, it has left the queue before."""

    def take_notices(self) -> Sequence[Decision]:
        """What the policy has to say in the stream since it was last asked, once in each pass."""
        return ()


PolicyFactory = Callable[[Limits], Policy]


def _rank(request: Request) -> tuple[int, ...]:
    return request.rank
