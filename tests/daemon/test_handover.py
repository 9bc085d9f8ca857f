"""Who is handed over together, who alone, and who is blamed: the rule, on engines that are only told of."""

from daemon.handover import MAX_BLAMED_IN_A_ROW, Handover
from daemon.live_requests import LiveRequest, LiveRequests
from daemon.mailbox import Mailbox
from engine.core.contents import RequestContents, TokenOutput
from engine.core.decisions import FinishReason, RequestFinished, TokensEmitted
from engine.core.events import CancelCause, StepCompleted
from engine.core.sampling_params import SamplingParams
from engine.core.vocabulary import Entry
from engine.protocol import Arrive, Cancel, Handled, Message, Restarted

STEP = StepCompleted(0, (), (), 0, 0)


class Engines:
    """Requests by name, one engine after the other. `kill` ends the one that runs and starts the next."""

    def __init__(self, *names: str) -> None:
        self.sent: list[Message] = []
        self.live = LiveRequests()
        self.handover = Handover(self.live, self.sent.append)
        self.requests: dict[str, LiveRequest] = {}
        self._begin()
        for name in names:
            self.arrives(name)

    def arrives(self, name: str) -> None:
        arrive = Arrive(0, name, "default", 0, 0, 99, SamplingParams(), RequestContents((1,)), deadline_ns=7)
        request = self.requests[name] = self.live.add(arrive, 0, Mailbox())
        self.handover.submit(request)

    def emits(self, *names: str) -> None:
        outputs = tuple([TokenOutput(self.requests[name].number, 5, -1.0) for name in names])
        rows = tuple([(output.request, 1) for output in outputs])
        self.live.apply(Handled(Entry(0, 0, STEP, (TokensEmitted(0, rows),)), outputs))
        self.handover.go_on()

    def ends(self, name: str) -> None:
        number = self.requests[name].number
        finished = RequestFinished(number, FinishReason.LENGTH, 1, 1, 0, 0, 1)
        self.live.apply(Handled(Entry(0, 0, STEP, (finished,)), ()))
        self.handover.go_on()

    def kill(self, *, from_outside: bool = False) -> bool:
        """Whether the death counts against the engine itself."""
        aftermath = self.handover.died(was_killed=from_outside)
        self.sent.clear()
        self._begin()
        return not (aftermath.was_of_use or aftermath.is_explained)

    @property
    def arrivals(self) -> list[str]:
        """Names of those sent to the engine that runs, in order."""
        return [message.request_id for message in self.sent if isinstance(message, Arrive)]

    @property
    def ended(self) -> list[str]:
        return [name for name, request in self.requests.items() if request.has_ended]

    def _begin(self) -> None:
        self.handover.announce(block_size=16)
        self.handover.open()


def test_all_go_on_together_with_what_was_delivered() -> None:
    engines = Engines("a", "b", "c")
    engines.emits("a", "b")
    engines.emits("a")
    engines.requests["a"].num_hit_blocks = 2
    assert not engines.kill()
    restarted, a, b = engines.sent
    assert restarted == Restarted((), ((0, 2), (1, 1), (2, 0)))
    assert isinstance(a, Arrive)
    assert (a.contents.output_token_ids, a.num_handovers, a.num_cached_tokens, a.deadline_ns) == ((5, 5), 1, 32, 0)
    assert isinstance(b, Arrive)
    assert b.deadline_ns == 7, "it had not begun"
    assert engines.arrivals == ["a", "b"], "c was the only one that the dead engine had given nothing for"
    engines.emits("a", "b")
    assert engines.arrivals == ["a", "b", "c"]


def test_a_request_that_kills_at_once_is_blamed_at_the_second_death_and_nobody_else() -> None:
    engines = Engines("a", "b")
    engines.emits("a", "b")
    engines.arrives("poison")
    engines.kill()
    engines.emits("a", "b")
    engines.kill()
    assert engines.ended == ["poison"]
    (restarted,) = [message for message in engines.sent if isinstance(message, Restarted)]
    assert restarted == Restarted(((2, "poison", 1, 0),), ((0, 2), (1, 2)), (2,))
    assert engines.arrivals == ["a", "b"]
    assert engines.handover.num_blamed == 1


def test_of_several_suspects_each_is_tried_alone_until_the_culprit_is_found() -> None:
    engines = Engines("a", "b", "poison", "c")
    num_deaths = 0
    while not engines.ended:
        assert num_deaths < 6
        if "poison" in engines.arrivals:
            engines.kill()
            num_deaths += 1
        else:
            engines.emits(*engines.arrivals)
    assert engines.ended == ["poison"]
    assert num_deaths == 4
    while len(engines.arrivals) < 3:
        engines.emits(*engines.arrivals)
    assert sorted(engines.arrivals) == ["a", "b", "c"]


def test_engines_that_are_killed_by_chance_blame_nobody() -> None:
    engines = Engines("a", "b")
    for _ in range(20):
        while len(engines.arrivals) < 2:
            engines.emits(*engines.arrivals)
        engines.emits("a")
        assert not engines.kill()
        while "b" not in engines.arrivals:
            engines.emits(*engines.arrivals)
        engines.emits("b")
        assert not engines.kill()
    assert engines.ended == []


def test_one_that_kills_at_its_third_token_cannot_put_it_off_by_emitting_two() -> None:
    engines = Engines("a")
    for _ in range(4):
        while len(engines.requests["a"].token_ids) < 2:
            engines.emits("a")
        engines.kill()
    assert engines.ended == ["a"]


def test_new_requests_wait_until_the_suspects_are_told_apart() -> None:
    engines = Engines("a", "b")
    engines.kill()
    engines.kill()  # both were suspects twice: one at a time from now on
    assert engines.arrivals == ["a"]
    engines.arrives("new")
    assert engines.arrivals == ["a"]
    engines.emits("a")
    assert engines.arrivals == ["a", "b"]
    engines.ends("b")
    assert engines.arrivals == ["a", "b", "new"]


def test_a_request_cancelled_between_two_engines_ends_at_once_and_is_recorded() -> None:
    engines = Engines("a", "b", "c")
    engines.kill()
    engines.kill()
    engines.handover.cancel(engines.requests["c"], CancelCause.CLIENT)  # the engine expects it
    assert engines.sent[-1] == Cancel(2, "client")
    engines.handover.died()
    engines.handover.cancel(engines.requests["b"], CancelCause.CLIENT)
    engines.sent.clear()
    engines._begin()
    assert engines.sent[0] == Restarted(((1, "b", 1, 0),), ((0, 0),))
    assert engines.ended == ["b", "c"]


def test_a_cancel_that_the_engine_took_along_is_told_to_the_next() -> None:
    engines = Engines("a", "b")
    engines.emits("a", "b")
    engines.handover.cancel(engines.requests["b"], CancelCause.CLIENT)
    engines.kill()
    assert engines.sent[0] == Restarted(((1, "b", 1, 1),), ((0, 1),))


def test_what_no_request_explains_counts_against_the_engine() -> None:
    engines = Engines()
    assert engines.kill()
    for number in range(MAX_BLAMED_IN_A_ROW):
        engines.arrives(f"poison-{number}")
        assert not engines.kill()
        assert engines.kill() == (number == MAX_BLAMED_IN_A_ROW - 1)


def test_a_kill_from_outside_weighs_half_a_crash() -> None:
    engines = Engines("a")
    for _ in range(3):
        assert not engines.kill(from_outside=True)
        assert engines.arrivals == ["a"]
    engines.kill(from_outside=True)
    assert engines.ended == ["a"]


def test_after_three_kills_in_a_row_all_are_still_handed_over_together() -> None:
    engines = Engines("a", "b")
    for _ in range(3):
        engines.kill(from_outside=True)
        assert engines.arrivals == ["a", "b"]
