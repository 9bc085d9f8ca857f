"""One call of the API, checked and tokenized: asked of the engine, answered whole or as a stream, ended.

What the core refuses is still plain JSON; from the first byte on a stream can only go on, end, or end with an error
event. However it ends, the engine is told, and one line is logged.
"""

import asyncio
from collections.abc import Mapping
from functools import partial

import structlog
from aiohttp import web

from daemon import errors, openai_api
from daemon.answer import Answer, Delta
from daemon.answer_form import answer_settings, bodies_of, responses_of
from daemon.answer_stream import AnswerStream
from daemon.call import Call
from daemon.choice_plan import Ask
from daemon.choices import Choices
from daemon.errors import ApiError
from daemon.gateway_headers import logged_ids
from daemon.long_json import long_json
from daemon.mailbox import PromptTold
from daemon.middleware import CALLER
from daemon.question import Question
from daemon.request_ids import REQUEST_ID, REQUEST_ID_HEADER
from daemon.resumable import AnswerLog, Resumable, Telling
from daemon.resumption import RESUME_HEADER, seconds_asked
from daemon.service import Service
from daemon.streaming import EventStream, SlowClient
from daemon.trace_context import trace_context_of
from daemon.urgency import Urgency
from engine.core.contents import RequestContents
from engine.core.events import CancelCause

SEED_HEADER = "X-Reprise-Seed"

log = structlog.get_logger(__name__)


class Turn:
    """`answer` once. `prompts` are token ids."""

    def __init__(
        self,
        service: Service,
        request: web.Request,
        question: Question,
        prompts: list[tuple[int, ...]],
        arrival_ns: int,
    ) -> None:
        self._service = service
        self._request = request
        self._question = question
        self._prompts = prompts
        self._arrival_ns = arrival_ns
        self._request_id = request[REQUEST_ID]
        self._seed = question.seed if question.seed is not None else service.next_seed()
        self._outcome = "cancelled"  # until it is known better
        self._resume_seconds = 0.0
        self._asks = list(question.counts.asks(prompts, self._seed))
        question.prompt_ask.require_bound(prompts, question.counts.num_told)
        self._settings = answer_settings(question, service.text_model)
        answers = [Answer(service.text_model, **self._settings) for _ in self._asks]
        self._choices = Choices(answers, service.engine.lost_error, self._request_id, question.counts)
        self._bodies = bodies_of(service, question, prompts, self._request_id)
        self._responses = responses_of(question, self._bodies, self._request_id)

    async def answer(self) -> web.StreamResponse:
        is_one_stream = self._question.stream and len(self._asks) == 1 and self._responses is None
        max_seconds = self._service.config.max_resume_s
        self._resume_seconds = seconds_asked(self._request, max_seconds, is_one_stream=is_one_stream)
        answers = AnswerLog() if self._resume_seconds else None
        call = self._service.engine.open_call(answers)
        call.trace_context = trace_context_of(self._request)
        resumable: Resumable | None = None
        try:
            self._service.tenant_limits.enter(self._request[CALLER], call, self._max_tokens())
            self._ask_all(call)
            await call.accepted()
            if answers is not None:
                resumable = await self._open_resumable(call, answers)
            if self._question.stream:
                return await self._stream(call)
            return await self._whole(call)
        except ApiError as error:
            self._outcome = error.code or "error"
            raise
        finally:
            if resumable is None:
                is_slow = self._outcome == CancelCause.SLOW_CLIENT
                call.close(CancelCause.SLOW_CLIENT if is_slow else CancelCause.CLIENT)
            else:
                self._service.resumables.detach(resumable)
            self._log_end(call.trace_id)

    async def _open_resumable(self, call: Call, answers: AnswerLog) -> Resumable:
        """From now on a broken connection ends nothing: the client may come back."""
        tenant = self._request[CALLER].tenant
        telling = Telling(self._bodies, self._settings, dict(self._headers()))
        resumables = self._service.resumables
        resumable = await resumables.open(self._request_id, tenant, self._resume_seconds, telling, answers, call)
        await resumables.attach(resumable)
        return resumable

    def _ask_all(self, call: Call) -> None:
        """Of each prompt the first choice; the others when it has its first token, if there is something to share."""
        for ask in self._asks:
            tells_prompt = self._question.prompt_ask.num_top >= 0
            if ask.index == ask.leader or (len(ask.prompt) < self._service.engine.block_size and not tells_prompt):
                self._ask(call, ask, self._arrival_ns)
            else:
                call.hold(ask.leader, partial(self._ask_later, call, ask))
            if tells_prompt and ask.index != ask.leader:
                call.followers.setdefault(ask.leader, []).append(ask.index)

    def _ask_later(self, call: Call, ask: Ask) -> None:
        """It arrives when it is sent, for it was not the queue that kept it waiting."""
        self._ask(call, ask, self._service.clock.now_ns())

    def _ask(self, call: Call, ask: Ask, arrival_ns: int) -> None:
        question = self._question
        suffix = f"-{ask.index}" if len(self._asks) > 1 else ""
        contents = RequestContents(
            ask.prompt,
            question.stop_token_ids,
            question.logit_bias,
            question.stop_strings,
            follows_text=question.follows_text,
            grammar=question.grammar,
        )
        call.ask(
            ask.index,
            self._request_id + suffix,
            self._urgency(),
            arrival_ns,
            self._max_output_tokens(len(ask.prompt)),
            question.sampling._replace(
                seed=ask.seed, num_prompt_logprobs=question.prompt_ask.num_top if ask.index == ask.leader else -1
            ),
            contents,
            num_choices=question.counts.num_told if ask.index == ask.leader else 0,
            operation="chat" if question.is_chat else "text_completion",
            is_streamed=question.stream,
        )

    def _urgency(self) -> Urgency:
        """As asked; where the client named no class, its key's, and no patience, the server's."""
        urgency, caller = self._question.urgency, self._request[CALLER]
        return urgency._replace(
            priority=caller.priority if urgency.priority is None else urgency.priority,
            queue_timeout_ms=urgency.queue_timeout_ms or round(self._service.config.queue_timeout * 1000),
            tenant=caller.tenant,
        )

    def _max_output_tokens(self, num_prompt_tokens: int) -> int:
        """What was asked; else the API's default, as far as the context has room. Refusing is the core's."""
        asked = self._question.max_output_tokens
        if asked is not None:
            return asked
        num_left = max(1, self._service.engine.max_model_len - num_prompt_tokens)
        default = num_left if self._question.is_chat else min(openai_api.DEFAULT_COMPLETION_TOKENS, num_left)
        return max(default, self._question.sampling.min_tokens)

    def _max_tokens(self) -> int:
        """Prompt and output of all choices, at most."""
        return sum(len(ask.prompt) + self._max_output_tokens(len(ask.prompt)) for ask in self._asks)

    async def _whole(self, call: Call) -> web.StreamResponse:
        deltas: list[list[Delta]] = [[] for _ in self._asks]
        reasons: dict[int, str] = {}
        while not self._choices.are_finished:
            for index, item in await call.take():
                if type(item) is PromptTold:  # much of it may be long: in a thread, so that no other client waits
                    step = await asyncio.to_thread(self._choices.take, index, item)
                else:
                    step = self._choices.take(index, item)
                if step is not None:
                    deltas[index].append(step[0])
                    reasons[index] = step[1] or ""
        choices = [(Delta.joined(deltas[index]), reasons[index]) for index in self._choices.told()]
        self._outcome = ",".join(sorted(set(reasons.values())))
        bodies, usage = self._responses or self._bodies, self._choices.usage()
        if self._question.prompt_ask.num_top < 0:
            return web.json_response(bodies.whole(choices, usage), headers=self._headers())
        text = await asyncio.to_thread(lambda: long_json(bodies.whole(choices, usage)))
        return web.Response(text=text, content_type="application/json", headers=self._headers())

    async def _stream(self, call: Call) -> web.StreamResponse:
        stream = await EventStream.begin(self._request, self._headers(), self._service.config.client_timeout)
        try:
            await self._stream_choices(call, stream)
        except ApiError as error:
            self._outcome = error.code or "error"
            await stream.send([(self._responses or self._bodies).failure(error.body())])
        except SlowClient:
            self._outcome = CancelCause.SLOW_CLIENT
            raise
        except ConnectionError:
            raise  # the client has gone
        except Exception:
            self._outcome = "internal_error"
            log.exception("a stream failed", request_id=self._request_id)
            await stream.send([(self._responses or self._bodies).failure(errors.internal().body())])
        return await stream.end()

    async def _stream_choices(self, call: Call, stream: EventStream) -> None:
        keep_alive_seconds = self._service.config.keep_alive_interval
        answer = AnswerStream(self._responses or self._bodies, self._choices, len(self._asks), keep_alive_seconds)
        self._outcome = ",".join(sorted(await answer.write(call.take, stream)))

    def _headers(self) -> Mapping[str, str]:
        headers = {REQUEST_ID_HEADER: self._request_id, SEED_HEADER: str(self._seed)}
        if self._resume_seconds:
            headers[RESUME_HEADER] = f"{self._resume_seconds:g}"
        return headers

    def _log_end(self, trace_id: str) -> None:
        log.info(
            "request ended",
            request_id=self._request_id,
            trace_id=trace_id,
            endpoint=self._request.path,
            outcome=self._outcome,
            stream=self._question.stream,
            num_prompt_tokens=sum(len(prompt) for prompt in self._prompts),
            num_output_tokens=self._choices.num_tokens,
            **logged_ids(self._request),
            ms=(self._service.clock.now_ns() - self._arrival_ns) // 1_000_000,
        )
