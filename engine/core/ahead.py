"""Planning ahead: the next step is planned while the device runs the present one, as if its result were there.

Of a step's result nearly all is known when it is launched: its rows will be computed, and each that reaches its
request's last known token draws one more. So these are counted at once (`awaited`), and a pass is made on the counts.
Only three things are not known then, and none of them is guessed:

- *who stops.* A request that has drawn a stop token has a row in the step ahead all the same; execution leaves it out,
  and no result is asked for it. One that reaches its `max_output_tokens` is known to end, and gets no row;
- *who gives way.* Preempting means to take blocks from a request whose token is still on its way. A pass ahead never
  does: where blocks lack for the running, or a more urgent request might take them, there is no step ahead, and the
  next step is planned when the result is there;
- *what fails.* Whoever had a row in a step that failed ends; the step ahead goes on without it.

So between two steps a request is never preempted and admitted again, and a late token finds its request as it was, or
gone. Blocks that a request gives up while a step runs are free at once, for the core; the loop lets nobody touch them
before that step is collected. It must not know when a step is launched, nor tokens.
"""

from collections.abc import Mapping

from engine.core.decisions import Decision, StepPlanned
from engine.core.planner import Planner
from engine.core.request import Request


class StepsAhead:
    """
    plan      the step planned ahead; None: there is none
    awaited   requests whose next token is counted, though the result that brings it has not come
    """

    __slots__ = ("_copies", "awaited", "plan")

    def __init__(self) -> None:
        self.plan: StepPlanned | None = None
        self.awaited: dict[int, None] = {}
        self._copies = 0

    def plan_after(
        self, launched: StepPlanned, requests: Mapping[int, Request], planner: Planner, now_ns: int
    ) -> list[Decision]:
        """The pass for the step after the one that was launched; no decisions where it must wait for the result."""
        ending = self._count(launched, requests)
        if not planner.can_plan_ahead(ending, len(ending)):
            self._uncount(launched, requests)
            return []
        cost = planner.swapping.cost
        copies = cost.take_planned()
        decisions = planner.plan_step(now_ns, ending)
        self._copies = cost.take_planned()
        cost.planned(copies)
        plan = decisions[-1]
        assert isinstance(plan, StepPlanned), "somebody goes on, but the pass ahead has placed nobody"
        self.plan = plan
        return decisions

    def take_plan(self) -> StepPlanned | None:
        """The step before it has a result: it is the one under way from now on."""
        plan, self.plan = self.plan, None
        return plan

    def take_copies(self) -> int:
        """Blocks that the pass ahead has planned to copy back: their time is told with the step ahead."""
        copies, self._copies = self._copies, 0
        return copies

    def give_up(self, request: Request) -> None:
        """The token that is counted will not be the request's: it ends before, or has drawn none."""
        if request.number in self.awaited:
            del self.awaited[request.number]
            request.num_output_tokens -= 1

    def _count(self, launched: StepPlanned, requests: Mapping[int, Request]) -> dict[int, None]:
        """Take the launched step's rows for computed; returns those whose last token it draws."""
        ending: dict[int, None] = {}
        for number, start, count in launched.rows:
            request = requests.get(number)
            if request is None:  # it ended meanwhile
                continue
            request.num_computed_tokens = start + count
            if request.num_computed_tokens == request.num_tokens:
                request.num_output_tokens += 1
                self.awaited[number] = None
                if request.num_output_tokens >= request.max_output_tokens:
                    ending[number] = None
        return ending

    def _uncount(self, launched: StepPlanned, requests: Mapping[int, Request]) -> None:
        for number, start, _count in launched.rows:
            request = requests.get(number)
            if request is not None:
                request.num_computed_tokens = start
                self.give_up(request)
