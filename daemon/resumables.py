"""All answers that can be asked for again: opened, told, left, found by their client, forgotten after their time.

They outlive a connection here, and the daemon in the journal. It must not know HTTP beyond the errors it raises.
"""

import asyncio
from collections.abc import Callable
from dataclasses import asdict
from dataclasses import fields as dataclass_fields
from typing import TYPE_CHECKING, Any

import structlog

from daemon.call import Call
from daemon.errors import ApiError
from daemon.live_requests import LiveRequest
from daemon.mailbox import Accepted, Blamed, Item, PromptTold
from daemon.response_bodies import ResponseBodies
from daemon.resumable import AnswerLog, Resumable, Telling
from daemon.resume_journal import ResumeJournal
from engine.clock import Clock
from engine.core.contents import PromptLogprobs, RequestContents, TokenOutput
from engine.core.decisions import FinishReason, RequestFinished
from engine.core.sampling_params import SamplingParams
from engine.protocol import Arrive

if TYPE_CHECKING:
    from daemon.engine_client import EngineClient

MAX_RESUMABLE = 4_096  # kept at a time
MAX_FORGOTTEN = 16_384  # ids of which it is known that their time is over
_TOLD = (PromptTold, TokenOutput)
_OF_THIS_DAEMON = (FinishReason.DRAINED, FinishReason.LOST)  # ends that are none for the next one

log = structlog.get_logger(__name__)


class Resumables:
    """
    open_journal   asked once, when the first answer is to be kept; None where they outlive their connections only
    """

    def __init__(self, engine: "EngineClient", clock: Clock) -> None:
        self._engine = engine
        self._clock = clock
        self._by_id: dict[str, Resumable] = {}
        self._forgotten: dict[str, str] = {}  # id → tenant
        self._numerics_class: str | None = None  # of the journal's, until an engine has shown its own
        self.journal: ResumeJournal | None = None
        self.open_journal: Callable[[], ResumeJournal | None] = lambda: None

    def __len__(self) -> int:
        return len(self._by_id)

    async def open(
        self, request_id: str, tenant: str, seconds: float, telling: Telling, answers: AnswerLog, call: Call
    ) -> Resumable:
        """`call`, accepted by the engine, can be asked for again from now on. Raises ApiError: too many are kept."""
        if len(self._by_id) >= MAX_RESUMABLE:
            raise ApiError(503, f"{MAX_RESUMABLE} answers are kept already: ask again without resumption, or later")
        resumable = Resumable(request_id, tenant, seconds, telling, answers, call)
        self._drop(self._by_id.get(request_id))  # the id was used before
        self._by_id[request_id] = resumable
        if self.journal is None:
            self.journal, self.open_journal = self.open_journal(), lambda: None
        if self.journal is not None:
            opening = self._opening(resumable, call.requests[0])
            resumable.journal_name = await self.journal.begin(opening)
            for item in answers.items:
                self._note(resumable, item)
        answers.on_item = lambda item: self._note(resumable, item)
        return resumable

    def find(self, request_id: str, tenant: str) -> Resumable:
        """Raises ApiError: 404 for an id that this tenant has not asked with, 410 for one whose time is over."""
        resumable = self._by_id.get(request_id)
        if resumable is not None and resumable.tenant == tenant:
            return resumable
        if self._forgotten.get(request_id) == tenant and resumable is None:
            message = "the answer is not kept any more: send the request again, with a longer X-Reprise-Resume-Seconds"
            raise ApiError(410, message, code="resume_expired")
        message = "no answer to this X-Request-Id is kept: send the request with X-Reprise-Resume-Seconds to be kept"
        raise ApiError(404, message, code="resume_unknown")

    async def attach(self, resumable: Resumable) -> None:
        """The running handler tells it from now on; one before it ends."""
        before, resumable.reader = resumable.reader, asyncio.current_task()
        if resumable.expiry is not None:
            resumable.expiry.cancel()
            resumable.expiry = None
        if before is not None and before is not resumable.reader and not before.done():
            before.cancel()
            await asyncio.wait([before])

    def detach(self, resumable: Resumable) -> None:
        """The running handler ends: its client has `seconds` to come back, from now on or from the answer's end on."""
        if resumable.reader is asyncio.current_task():
            resumable.reader = None
            self._expire_later(resumable, resumable.seconds)

    def restore(self, journal: ResumeJournal) -> int:
        """Take over what a daemon before this one was telling, before the first engine is ready; how many."""
        self.journal = journal
        for name, written_ns, records in journal.read():
            left_seconds = records[0]["seconds"] - (self._clock.wall_ns() - written_ns) / 1e9
            if left_seconds <= 0 or records[0]["request_id"] in self._by_id:
                self._forget(records[0]["request_id"], records[0]["tenant"])
                journal.remove(name)
                continue
            resumable = self._restored(name, records[0], records[1:])
            self._expire_later(resumable, records[0]["seconds"])
        return len(self._by_id)

    def compare_numerics(self, numerics_class: str) -> None:
        """An engine is ready: what it would go on with otherwise than the one before is ended, not told wrongly."""
        expected, self._numerics_class = self._numerics_class, None
        if expected in (None, numerics_class):
            return
        log.error("answers of another numerics class are not gone on with", before=expected, now=numerics_class)
        for resumable in list(self._by_id.values()):
            self._drop(resumable)

    async def close(self) -> None:
        if self.journal is not None:
            await self.journal.close()

    # ── to the journal and back ──────────────────────────────────────────────────────────────────────────────────

    def _opening(self, resumable: Resumable, request: LiveRequest) -> dict[str, Any]:
        return {
            "request_id": resumable.request_id,
            "tenant": resumable.tenant,
            "seconds": resumable.seconds,
            "numerics_class": self._engine.supervisor.info.get("numerics_class", ""),
            "arrive": tuple(request.arrive),
            "num_hit_blocks": request.num_hit_blocks,
            "bodies": asdict(resumable.telling.bodies),
            "answer": resumable.telling.answer,
            "headers": resumable.telling.headers,
        }

    def _note(self, resumable: Resumable, item: Item) -> None:
        if self.journal is None or not resumable.journal_name:
            return
        if type(item) is Blamed:
            self.journal.remove(resumable.journal_name)
        elif type(item) in _TOLD or (type(item) is RequestFinished and item.reason not in _OF_THIS_DAEMON):
            self.journal.append(resumable.journal_name, tuple(item))

    def _restored(self, name: str, opening: dict[str, Any], records: list[Any]) -> Resumable:
        fields = Arrive(*opening["arrive"])
        arrive = fields._replace(
            sampling=SamplingParams(*fields.sampling),
            contents=RequestContents(*fields.contents),
            arrival_ns=min(fields.arrival_ns, self._clock.now_ns()),  # the machine may have started anew
            deadline_ns=0,
        )
        known = {each.name for each in dataclass_fields(ResponseBodies)}  # another version may have written more
        bodies = ResponseBodies(**{name: value for name, value in opening["bodies"].items() if name in known})
        telling = Telling(bodies, opening["answer"], opening["headers"])
        answers, call = AnswerLog(), Call(self._engine)
        answers.items = [Accepted(), *[item_of(record) for record in records]]
        resumable = Resumable(
            opening["request_id"], opening["tenant"], opening["seconds"], telling, answers, call, name
        )
        self._by_id[resumable.request_id] = resumable
        answers.on_item = lambda item: self._note(resumable, item)
        if not records or len(records[-1]) != len(RequestFinished._fields):  # it had not ended
            self._numerics_class = opening["numerics_class"]
            token_ids = [item.token_id for item in answers.items if type(item) is TokenOutput]
            request = self._engine.take_over(arrive, token_ids, opening["num_hit_blocks"], answers)
            request.is_prompt_told = any(type(item) is PromptTold for item in answers.items)
            call.requests[0] = request
        return resumable

    # ── its time is over ─────────────────────────────────────────────────────────────────────────────────────────

    def _expire_later(self, resumable: Resumable, seconds: float) -> None:
        if resumable.expiry is not None:
            resumable.expiry.cancel()
        resumable.expiry = asyncio.get_running_loop().call_later(seconds, self._drop, resumable)

    def _drop(self, resumable: Resumable | None) -> None:
        """Nobody has come back: its request ends, if it still runs."""
        if resumable is None or self._by_id.get(resumable.request_id) is not resumable:
            return
        del self._by_id[resumable.request_id]
        if resumable.expiry is not None:
            resumable.expiry.cancel()
        resumable.call.close()
        self._forget(resumable.request_id, resumable.tenant)
        if self.journal is not None and resumable.journal_name:
            self.journal.remove(resumable.journal_name)

    def _forget(self, request_id: str, tenant: str) -> None:
        self._forgotten[request_id] = tenant
        if len(self._forgotten) > MAX_FORGOTTEN:
            del self._forgotten[next(iter(self._forgotten))]


def item_of(record: tuple[Any, ...]) -> Item:
    """As it was before it was written; the kinds differ in their lengths."""
    if len(record) == len(PromptTold._fields):
        return PromptTold(record[0], PromptLogprobs(*record[1]))
    if len(record) == len(TokenOutput._fields):
        return TokenOutput(*record)
    return RequestFinished(*record)._replace(reason=FinishReason(record[1]))
