"""A measurement: one or two endpoints driven in turn, A B A B …, a look at the memory's speed around each drive.

Each round asks with new words, so that no cache of an earlier one helps; both endpoints are asked with the same.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from daemon.bench.bandwidth import Bandwidth, BandwidthProbe
from daemon.bench.client import Answer
from daemon.bench.drive import Drive, drive, warm_up
from daemon.bench.endpoint import Endpoint
from daemon.bench.plan import Plan
from daemon.bench.progress import ProgressBar
from daemon.bench.prompts import Prompt
from daemon.bench.statistics import Figures, figures_of
from daemon.bench.workloads import Workload
from engine.clock import Clock

SIDES = "AB"


@dataclass(frozen=True, slots=True)
class Round:
    """One drive of one side ("A" or "B"); `number` counts from 1.

    errors           text → how many requests ended with it
    counted_by       what the output tokens were counted by → in how many answers
    before, after    the memory's speed around it
    """

    number: int
    side: str
    figures: Figures
    errors: Counter[str]
    counted_by: Counter[str]
    before: Bandwidth
    after: Bandwidth


def by_side(rounds: Sequence[Round]) -> dict[str, list[Figures]]:
    sides = dict.fromkeys(one.side for one in rounds)
    return {side: [one.figures for one in rounds if one.side == side] for side in sides}


class Bench:
    """Carries drives out.

    keep   is handed the side, the name and the answers of each drive
    """

    def __init__(self, plan: Plan, clock: Clock, keep: Callable[[str, str, Sequence[Answer]], None]) -> None:
        self._plan = plan
        self._clock = clock
        self._keep = keep
        self._probe = BandwidthProbe(clock)

    def rounds(self) -> list[Round]:
        """Of side A and, where there is one, of side B in turn."""
        numbers = range(1, self._plan.num_rounds + 1)
        return [self._round(number, side) for number in numbers for side, _ in self._sides()]

    def drive(self, side: str, name: str, workload: Workload, content_key: object) -> Drive:
        """Warm up, then one drive.

        name          tells it from others of this side
        content_key   of the words; equal keys ask the same
        """
        prompts = self._plan.write(workload, self._plan.form, content_key, self._plan.id_range)
        with ProgressBar(f"{workload.name} {side} {name}", len(prompts), self._clock) as bar:
            done = asyncio.run(self._warm_up_and_drive(side, f"{content_key}/{side}/{name}", workload, prompts, bar))
        self._keep(side, name, done.answers)
        return done

    async def _warm_up_and_drive(
        self, side: str, warmup_key: str, workload: Workload, prompts: Sequence[Prompt], bar: ProgressBar
    ) -> Drive:
        plan, endpoint = self._plan, dict(self._sides())[side]
        await warm_up(endpoint, plan.num_warmups, plan.form, warmup_key, plan.id_range, self._clock, plan.timeout_s)
        return await drive(endpoint, workload, prompts, clock=self._clock, timeout_s=plan.timeout_s, on_end=bar.advance)

    def _round(self, number: int, side: str) -> Round:
        before = self._probe.probe()
        done = self.drive(side, str(number), self._plan.workload, self._content_key(number, side))
        return Round(
            number,
            side,
            figures_of(done),
            Counter(answer.error for answer in done.answers if answer.error),
            Counter(answer.counted_by for answer in done.answers if not answer.error),
            before,
            self._probe.probe(),
        )

    def _sides(self) -> list[tuple[str, Endpoint]]:
        return list(zip(SIDES, self._plan.endpoints, strict=False))

    def _content_key(self, number: int, side: str) -> str:
        """The same words for both, unless both are one server: then its cache would answer B with what A asked."""
        urls = [endpoint.url for endpoint in self._plan.endpoints]
        is_one_server = len(set(urls)) < len(urls)
        return f"{self._plan.content_seed}/{number}" + (f"/{side}" if is_one_server else "")
