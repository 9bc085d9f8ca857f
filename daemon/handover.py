"""What becomes of the live requests when their engine dies: handed to the next one, which ones together, which alone.

Everything a dead engine held goes on in the next one, with the tokens that were delivered; by fixed-order numerics
the text is the same. A request that itself kills the engine must not do so for ever, and must not take the others
along. Entries that the dead engine sent last may be lost with it, so what it computed at the end is not known. The
rule goes by what came back instead:

- A request is *proven* in an engine once that engine has given a token for it (beyond those it was handed over with).
- At a death, those that the engine had and that were not proven in it are the suspects; all that it had, when every
  one was proven. A death weighs 2 against each suspect, and 1 where the engine was killed by SIGKILL: that comes from
  outside, or from a lack of memory. The weights are summed until an engine proves the request.
- After a death all are handed over together, but for those with a sum of MAX_TOGETHER, or of 2 from deaths at which
  they were the only suspect: these follow one at a time, each when all before it are proven or have ended, the least
  suspicious first. Until the last of them is proven new requests wait here.
- Who has a sum of MAX_ALONE from deaths at which it was the only suspect is *blamed*: it ends with an error, alone,
  and its segments are pinned (`Incident.REQUEST_KILLS_ENGINE`).

So a request on which the engine crashes at once costs two restarts when it runs alone or beside streams, and one or two
more when it came together with others; one that kills at its n-th token costs a few more, for each restart must
deliver a new token to put the blame off, and tokens delivered never become fewer. Engines that are killed from outside
blame nobody, unless four kills, with no token of progress in between, find the same request alone.

An engine that dies without any request in its hands, or again after MAX_BLAMED_IN_A_ROW blames without a token for
anybody in between, cannot be helped by leaving requests out: then the supervisor's count of quick deaths applies. It
must not know processes or HTTP.
"""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import structlog

from daemon.live_requests import LiveRequest, LiveRequests
from daemon.mailbox import Blamed, EngineLost
from engine.core.events import CancelCause
from engine.protocol import Arrive, Cancel, Message, Restarted

MAX_TOGETHER, MAX_ALONE = 4, 4  # weights: two crashes, or four kills
MAX_BLAMED_IN_A_ROW = 3

log = structlog.get_logger(__name__)


class Aftermath(NamedTuple):
    """What a death says about the engine.

    was_of_use     it had given a token for somebody
    is_explained   a request may have killed it: the next one can be tried without that
    """

    was_of_use: bool
    is_explained: bool


class Handover:
    """Sends every request to the engine: at once, or when its turn has come.

    send              to the engine that runs; without effect when none does
    num_handed_over   requests that went on in another engine, each time counted
    num_blamed        requests that were ended because the engine died on them
    """

    def __init__(self, live: LiveRequests, send: Callable[[Message], None]) -> None:
        self._live = live
        self._send_message = send
        self._has_had_engine = False
        self._is_open = False
        self._block_size = 1
        self._suspects: deque[LiveRequest] = deque()  # each to be sent alone
        self._newcomers: deque[LiveRequest] = deque()  # no engine has had them
        self._is_telling_apart = False
        self._num_tokens_before = 0  # received from the engines before
        self._num_blamed_in_a_row = 0
        self._lost: list[LiveRequest] = []  # that the next engine must be told of
        self._blamed: list[LiveRequest] = []
        self.num_handed_over = 0
        self.num_blamed = 0

    @property
    def num_waiting(self) -> int:
        """New requests that no engine has had."""
        return len(self._newcomers)

    def submit(self, request: LiveRequest) -> None:
        """A new request: sent at once, or after those that have to be told apart."""
        self._newcomers.append(request)
        if self._is_open and not self._suspects and not self._is_telling_apart:
            self._release_newcomers()

    def cancel(self, request: LiveRequest, cause: CancelCause) -> None:
        """Of one that the engine has, its end comes from there; any other ends here."""
        request.is_cancelled = True
        if request.is_sent:
            self._send_message(Cancel(request.number, cause))
            return
        if request in self._newcomers:
            self._newcomers.remove(request)
        if request in self._suspects:
            self._suspects.remove(request)
        if request.num_handovers and self._is_open:  # the engine was told that it would come
            self._send_message(Cancel(request.number, cause))
        elif request.num_handovers:
            self._lost.append(request)
        self._live.end(request.number, EngineLost())
        self.go_on()

    def announce(self, block_size: int) -> None:
        """To a new engine, before anything else: what becomes of the requests of the one before."""
        self._block_size = block_size
        handed_over = [request for request in self._live.all() if request.num_handovers]
        if handed_over or self._lost or self._has_had_engine:
            self._send_message(
                Restarted(
                    tuple([request.as_lost() for request in self._lost]),
                    tuple([(request.number, len(request.token_ids)) for request in handed_over]),
                    tuple([request.number for request in self._blamed]),
                )
            )
        self._has_had_engine = True

    def open(self) -> None:
        """The engine takes requests from now on: all that wait, but for those that are to be told apart."""
        self._is_open = True
        together = [request for request in self._live.all() if request.num_handovers and not _is_suspicious(request)]
        alone = [request for request in self._live.all() if request.num_handovers and _is_suspicious(request)]
        alone.sort(key=lambda request: (request.lone_suspicion, request.suspicion, request.number))
        self._suspects = deque(alone)
        self._is_telling_apart = bool(alone)
        self._num_tokens_before = self._live.num_tokens
        for request in together:
            self._send(request)
        self.go_on()

    def announced(self) -> None:
        """The engine has recorded what it was told."""
        self._lost, self._blamed = [], []

    def go_on(self) -> None:
        """Something has happened: perhaps the next one's turn has come."""
        if not self._is_open or not (self._is_telling_apart or self._newcomers):
            return
        if self._is_telling_apart and any(
            request.is_sent and not request.is_proven for request in self._live.all() if not request.is_cancelled
        ):
            return
        if self._suspects:
            self._send(self._suspects.popleft())
            return
        self._is_telling_apart = False
        self._release_newcomers()

    def died(self, *, was_killed: bool = False) -> Aftermath:
        """The engine is gone, by SIGKILL or not: who is suspected, who is blamed; all others wait for the next one."""
        had_engine, self._is_open = self._is_open, False
        held = [request for request in self._live.all() if request.is_sent]
        was_of_use = had_engine and self._live.num_tokens > self._num_tokens_before
        blamed = self._judge(held, 1 if was_killed else 2)
        self._num_blamed_in_a_row = len(blamed) + (0 if was_of_use else self._num_blamed_in_a_row)
        for request in held:
            request.is_sent = False
            request.num_handovers += 1
            if request in blamed:
                self._end(request, Blamed())
                self._blamed.append(request)
            elif request.is_cancelled:
                self._end(request, EngineLost())
        if held:
            log.error("the engine died with requests in its hands", num_requests=len(held), num_blamed=len(blamed))
        return Aftermath(was_of_use, bool(held) and self._num_blamed_in_a_row < MAX_BLAMED_IN_A_ROW)

    def _judge(self, held: list[LiveRequest], weight: int) -> list[LiveRequest]:
        """Hold the death against the suspects; those to blame."""
        suspects = [request for request in held if not request.is_proven] or held
        for request in held:
            if request.is_proven:
                request.suspicion = request.lone_suspicion = 0
        for request in suspects:
            request.suspicion += weight
            request.lone_suspicion += weight * (len(suspects) == 1)
        return [request for request in suspects if request.lone_suspicion >= MAX_ALONE]

    def _end(self, request: LiveRequest, item: Blamed | EngineLost) -> None:
        self._lost.append(request)
        if type(item) is Blamed:
            self.num_blamed += 1
            log.error("the engine died on a request again: it is not tried any more", request_id=request.request_id)
        self._live.end(request.number, item)

    def _release_newcomers(self) -> None:
        while self._newcomers:
            self._send(self._newcomers.popleft())

    def _send(self, request: LiveRequest) -> None:
        request.is_sent = True
        request.num_when_sent = len(request.token_ids)
        self.num_handed_over += request.num_handovers > 0
        self._send_message(self._arrival_of(request))

    def _arrival_of(self, request: LiveRequest) -> Arrive:
        arrive = request.arrive
        if not request.num_handovers:
            return arrive
        was_admitted = request.num_hit_blocks >= 0
        return arrive._replace(
            contents=arrive.contents._replace(output_token_ids=tuple(request.token_ids)),
            deadline_ns=0 if was_admitted else arrive.deadline_ns,  # it was met
            num_handovers=request.num_handovers,
            num_cached_tokens=request.num_hit_blocks * self._block_size if was_admitted else -1,
        )


def _is_suspicious(request: LiveRequest) -> bool:
    return request.suspicion >= MAX_TOGETHER or request.lone_suspicion >= 2
