"""Arrivals wait for their grammars beside the loop: nothing is lost, and nothing of theirs overtakes them."""

import queue
import threading

from engine.core.contents import RequestContents
from engine.core.sampling_params import SamplingParams
from engine.grammar_desk import GrammarDesk
from engine.protocol import Arrive, Cancel, Drain, Message, Stop

SECONDS = 30.0


class Desk:
    """One whose grammars are ready when they are let through by `build`."""

    def __init__(self) -> None:
        self.inbox: queue.Queue[Message] = queue.Queue()
        self.desk = GrammarDesk(self.inbox.put)
        self.desk.prepare = self._prepare
        self._let: queue.Queue[Exception | None] = queue.Queue()
        self.asked: queue.Queue[str] = queue.Queue()

    def _prepare(self, grammar: str) -> None:
        self.asked.put(grammar)
        error = self._let.get(timeout=SECONDS)
        if error is not None:
            raise error

    def build(self, error: Exception | None = None) -> None:
        self.asked.get(timeout=SECONDS)
        self._let.put(error)

    def come(self, *messages: Message) -> None:
        for message in messages:
            self.desk.pass_on(message)

    def came(self, num: int) -> list[Message]:
        return [self.inbox.get(timeout=SECONDS) for _ in range(num)]


def arrive(request: int, grammar: str = "") -> Arrive:
    return Arrive(request, f"r{request}", "default", 0, 0, 8, SamplingParams(), RequestContents((1,), grammar=grammar))


def test_others_pass_while_a_grammar_is_built_and_what_is_said_of_its_request_comes_behind_it() -> None:
    desk = Desk()
    slow, plain, left, others = arrive(1, "slow"), arrive(2), Cancel(1, "client"), Cancel(2, "client")
    desk.come(slow, plain, left, others)
    assert desk.came(2) == [plain, others]
    desk.build()
    assert desk.came(2) == [slow, left]
    late = Cancel(1, "client")
    desk.come(late)
    assert desk.came(1) == [late]


def test_grammars_are_built_one_after_the_other_and_a_drain_waits_for_those_before_it() -> None:
    desk = Desk()
    first, second = arrive(1, "a"), arrive(2, "b")
    desk.come(first, second, Drain(), Stop("now"))
    assert desk.came(1) == [Stop("now")]
    desk.build()
    assert desk.came(1) == [first]
    desk.build()
    assert desk.came(2) == [second, Drain()]
    desk.come(Drain())
    assert desk.came(1) == [Drain()]


def test_a_grammar_that_cannot_be_built_is_left_to_the_loop() -> None:
    desk = Desk()
    desk.come(arrive(1, "bad"), arrive(2, "good"))
    desk.build(ValueError("bad"))
    desk.build()
    assert desk.came(2) == [arrive(1, "bad"), arrive(2, "good")]


def test_before_the_model_is_there_nothing_waits() -> None:
    desk = Desk()
    desk.desk.prepare = None
    desk.come(arrive(1, "a"))
    assert desk.came(1) == [arrive(1, "a")]


def test_its_thread_alone_has_the_deep_stack() -> None:
    before = threading.stack_size()
    desk = Desk()
    desk.come(arrive(1, "a"))
    desk.build()
    assert desk.came(1) == [arrive(1, "a")]
    assert threading.stack_size() == before


def test_many_clients_that_leave_at_once_lose_nothing() -> None:
    """Arrivals and their cancels in one burst, while the thread goes on: each pair comes whole and in order."""
    inbox: queue.Queue[Message] = queue.Queue()
    desk = GrammarDesk(inbox.put)
    desk.prepare = lambda grammar: None
    for request in range(500):
        desk.pass_on(arrive(request, "g"))
        desk.pass_on(Cancel(request, "client"))
    came = [inbox.get(timeout=SECONDS) for _ in range(1000)]
    for request in range(500):
        mine = [type(each) for each in came if isinstance(each, Arrive | Cancel) and each.request == request]
        assert mine == [Arrive, Cancel]
