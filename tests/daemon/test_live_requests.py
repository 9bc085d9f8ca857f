"""What the engine decides reaches the call it concerns, once and in order."""

import asyncio

from daemon.live_requests import LiveRequests
from daemon.mailbox import Accepted, EngineLost, Item, Mailbox
from engine.core.contents import RequestContents, TokenOutput
from engine.core.decisions import FinishReason, RejectReason, RequestFinished, RequestRejected, TokensEmitted
from engine.core.events import RequestArrived, StepCompleted
from engine.core.sampling_params import SamplingParams
from engine.core.vocabulary import Entry
from engine.protocol import Arrive, Handled

STEP = StepCompleted(0, (), (), 0, 0)


def arrived(number: int) -> RequestArrived:
    return RequestArrived(number, f"r{number}", "default", 0, 0, 4, 8, (), SamplingParams())


def arrive(request_id: str) -> Arrive:
    return Arrive(0, request_id, "default", 0, 0, 8, SamplingParams(), RequestContents((1, 2, 3, 4)))


def finished(number: int) -> RequestFinished:
    return RequestFinished(number, FinishReason.LENGTH, 4, 1, 0, 0, 1)


def taken(mailbox: Mailbox) -> list[tuple[int, Item]]:
    return asyncio.run(mailbox.take(0.01))


def test_acceptance_tokens_and_end_arrive_in_the_order_of_the_decisions() -> None:
    live, mailbox = LiveRequests(), Mailbox()
    request = live.add(arrive("r0"), 5, mailbox)
    live.apply(Handled(Entry(0, 0, arrived(0), ()), ()))
    token = TokenOutput(0, 77, -1.0)
    live.apply(Handled(Entry(1, 0, STEP, (TokensEmitted(0, ((0, 1),)), finished(0))), (token,)))
    assert taken(mailbox) == [(5, Accepted()), (5, token), (5, finished(0))]
    assert (request.token_ids, request.has_ended, len(live)) == ([77], True, 0)


def test_a_refused_request_is_never_accepted() -> None:
    live, mailbox = LiveRequests(), Mailbox()
    live.add(arrive("r0"), 0, mailbox)
    refusal = RequestRejected(0, RejectReason.QUEUE_FULL, 9, 8, 1000)
    live.apply(Handled(Entry(0, 0, arrived(0), (refusal,)), ()))
    assert taken(mailbox) == [(0, refusal)]
    assert len(live) == 0


def test_numbers_ascend_and_an_id_is_free_again_after_the_end() -> None:
    live = LiveRequests()
    numbers = [live.add(arrive(f"r{index}"), 0, Mailbox()).number for index in range(3)]
    assert numbers == [0, 1, 2]
    assert "r1" in live
    live.apply(Handled(Entry(0, 0, STEP, (finished(1),)), ()))
    assert "r1" not in live
    assert live.add(arrive("r1"), 0, Mailbox()).number == 3


def test_a_request_whose_client_left_is_held_until_its_end() -> None:
    live, mailbox = LiveRequests(), Mailbox()
    live.add(arrive("r0"), 0, mailbox).mailbox = None
    live.apply(Handled(Entry(0, 0, STEP, (TokensEmitted(0, ((0, 1),)),)), (TokenOutput(0, 1, -1.0),)))
    assert len(live) == 1
    live.apply(Handled(Entry(1, 0, STEP, (finished(0),)), ()))
    assert len(live) == 0
    assert taken(mailbox) == []


def test_when_no_engine_will_follow_every_request_ends() -> None:
    live, first, second = LiveRequests(), Mailbox(), Mailbox()
    live.add(arrive("r0"), 0, first)
    live.add(arrive("r1"), 1, second)
    live.apply(Handled(Entry(0, 0, STEP, (TokensEmitted(0, ((0, 1),)),)), (TokenOutput(0, 1, -1.0),)))
    live.lose_all()
    assert taken(first)[-1] == (0, EngineLost())
    assert taken(second) == [(1, EngineLost())]
    live.apply(Handled(Entry(0, 0, STEP, (finished(0),)), ()))  # told too late: nobody waits
    assert len(live) == 0


def test_acceptance_is_told_once_however_many_engines_accept() -> None:
    live, mailbox = LiveRequests(), Mailbox()
    live.add(arrive("r0"), 0, mailbox)
    for _ in range(2):
        live.apply(Handled(Entry(0, 0, arrived(0), ()), ()))
    assert taken(mailbox) == [(0, Accepted())]
