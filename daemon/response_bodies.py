"""Answers → the JSON bodies of the OpenAI API: whole, and in chunks for a stream.

Strict clients break on small things, so each is decided here: ids, model and object stand in every chunk, `created` is
the same in all, `finish_reason` is null until the end, `usage` appears only where it was asked for.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from daemon.answer import Delta, TokenLogprob
from daemon.call_reader import CallDelta
from daemon.prompt_logprobs import echoed, listed
from engine.core.decisions import FinishReason, RequestFinished

Json = dict[str, Any]

# What the API knows; every other reason is an error, told as one.
FINISH_REASONS = {
    FinishReason.STOP: "stop",
    FinishReason.LENGTH: "length",
    FinishReason.KV_CACHE_EXHAUSTED: "length",
}


@dataclass(frozen=True, slots=True)
class ResponseBodies:
    """Builds every body of one call.

    created             seconds since 1970, UTC
    include_usage       a stream was asked to end with a usage chunk
    wants_logprobs      choices carry log-probabilities
    return_token_ids    choices carry token ids, an extra beyond the API
    prompt_counts       per choice, tokens of its prompt, where each chunk tells the usage so far; empty elsewhere
    echoes              per choice, what its text begins with; empty where nothing is repeated
    num_prompt_logprobs, num_echo_logprobs
                        as `PromptAsk` has them; where one is wanted a stream begins when the prompt is told
    """

    id: str
    created: int
    model: str
    system_fingerprint: str
    is_chat: bool
    include_usage: bool = False
    wants_logprobs: bool = False
    return_token_ids: bool = False
    echoes: Sequence[str] = ()
    num_prompt_logprobs: int = -1
    num_echo_logprobs: int = -1
    prompt_counts: Sequence[int] = ()

    def whole(self, choices: Sequence[tuple[Delta, str]], usage: Json) -> Json:
        """The answer to a call that does not stream: per choice, all of it and its finish reason."""
        kind = "chat.completion" if self.is_chat else "text_completion"
        body = {
            **self._head(kind),
            "choices": [self._whole_choice(index, *choice) for index, choice in enumerate(choices)],
            "usage": usage,
        }
        return self._with_prompts(body, [answer for answer, _reason in choices])

    def opening_chunks(self, num_choices: int) -> list[Json]:
        """What a stream begins with: in a chat, who speaks; in a completion, the prompts where they are repeated."""
        if max(self.num_prompt_logprobs, self.num_echo_logprobs) >= 0:
            return []
        if not self.is_chat:
            echoes = enumerate(self.echoes)
            return [self._chunk([self._completion_choice(index, Delta(text), None)], index) for index, text in echoes]
        opening = {"role": "assistant", "content": ""}
        choices = [self._chat_chunk_choice(index, opening, Delta(), None) for index in range(num_choices)]
        return [self._chunk([choice], index) for index, choice in enumerate(choices)]

    @property
    def numbers_events(self) -> bool:
        return True

    def chunks(self, index: int, delta: Delta, finish_reason: str | None = None) -> list[Json]:
        return [self._with_prompts(self.chunk(index, delta, finish_reason), [delta])]

    def ending(self, usage: Json) -> list[Json]:
        """What a stream ends with: the usage, where it was asked for."""
        return [self.usage_chunk(usage)] if self.include_usage else []

    def failure(self, body: Json) -> Json:
        """What a stream says that cannot go on."""
        return body

    def chunk(self, index: int, delta: Delta, finish_reason: str | None = None) -> Json:
        """One delta of one choice; the last one carries the finish reason."""
        if self.is_chat:
            content = self._content(index, delta)
            choice = self._chat_chunk_choice(index, content, delta, finish_reason)
        else:
            choice = self._completion_choice(index, delta, finish_reason)
        return self._chunk([choice], index, delta.num_tokens)

    def usage_chunk(self, usage: Json) -> Json:
        return {**self._chunk([]), "usage": usage}

    def _head(self, kind: str) -> Json:
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.system_fingerprint,
        }

    def _chunk(self, choices: list[Json], index: int = 0, num_tokens: int = 0) -> Json:
        body = {**self._head("chat.completion.chunk" if self.is_chat else "text_completion"), "choices": choices}
        if self.prompt_counts:
            body["usage"] = token_counts(self.prompt_counts[index], num_tokens)
        elif self.include_usage:
            body["usage"] = None
        return body

    def _whole_choice(self, index: int, answer: Delta, finish_reason: str) -> Json:
        if not self.is_chat:
            echo = self.echoes[index] if self.echoes and not answer.prompt else ""
            return self._completion_choice(index, answer._replace(text=echo + answer.text), finish_reason)
        message: Json = {"role": "assistant", "content": answer.text, "refusal": None}
        if answer.calls:
            message |= {"content": answer.text or None, "tool_calls": self._whole_calls(index, answer.calls)}
        choice = {"index": index, "message": message, "logprobs": self._chat_logprobs(answer)}
        return self._with_token_ids({**choice, "finish_reason": finish_reason}, answer)

    def _content(self, index: int, delta: Delta) -> Json:
        """A piece of a streamed answer."""
        content: Json = {"role": "assistant", "content": ""} if delta.prompt else {}
        if delta.text or (delta.token_ids and not delta.calls):
            content["content"] = delta.text
        pieces = _by_call(delta.calls)
        if pieces:
            content["tool_calls"] = [
                {"index": number, **self._call(index, number, *pieces[number])} for number in pieces
            ]
        return content

    def _whole_calls(self, index: int, calls: Sequence[CallDelta]) -> list[Json]:
        return [self._call(index, number, *piece) for number, piece in _by_call(calls).items()]

    def _call(self, index: int, number: int, name: str, arguments: str) -> Json:
        """A call from its beginning, or, without a name, a further piece of it."""
        if not name:
            return {"function": {"arguments": arguments}}
        function = {"name": name, "arguments": arguments}
        return {"id": f"call_{self.id}-{index}-{number}", "type": "function", "function": function}

    def _chat_chunk_choice(self, index: int, content: Json, delta: Delta, finish_reason: str | None) -> Json:
        choice = {"index": index, "delta": content, "logprobs": self._chat_logprobs(delta)}
        return self._with_token_ids({**choice, "finish_reason": finish_reason}, delta)

    def _completion_choice(self, index: int, delta: Delta, finish_reason: str | None) -> Json:
        text = self.echoes[index] + delta.text if delta.prompt and self.echoes else delta.text
        logprobs = self._completion_logprobs(index, delta) if self.wants_logprobs else None
        choice = {"index": index, "text": text, "logprobs": logprobs, "finish_reason": finish_reason}
        return self._with_token_ids(choice, delta)

    def _completion_logprobs(self, index: int, delta: Delta) -> Json:
        """Of the answer's tokens; where the prompt is told as well, its tokens before them, and offsets behind it."""
        if self.num_echo_logprobs < 0:
            return completion_logprobs(delta.logprobs)
        num_chars = len(self.echoes[index])
        of_answer = completion_logprobs(delta.logprobs, num_chars)
        of_prompt = echoed(delta.prompt, self.num_echo_logprobs, num_chars)
        return {name: of_prompt[name] + of_answer[name] for name in of_answer}

    def _with_prompts(self, body: Json, deltas: Sequence[Delta]) -> Json:
        """vLLM's list, with each choice of a completion, once in a chat."""
        for choice, delta in zip(body["choices"], deltas, strict=True):
            if self.num_prompt_logprobs >= 0 and delta.prompt and not (self.is_chat and choice["index"]):
                told = body if self.is_chat else choice
                told["prompt_logprobs"] = listed(delta.prompt, self.num_prompt_logprobs)
        return body

    def _chat_logprobs(self, delta: Delta) -> Json | None:
        if not self.wants_logprobs:
            return None
        return {"content": [chat_logprob(entry) for entry in delta.logprobs], "refusal": None}

    def _with_token_ids(self, choice: Json, delta: Delta) -> Json:
        if self.return_token_ids:
            choice["token_ids"] = list(delta.token_ids)
        return choice


def _by_call(calls: Sequence[CallDelta]) -> dict[int, tuple[str, str]]:
    """number of the call → (name, arguments), the pieces joined"""
    pieces: dict[int, tuple[str, str]] = {}
    for call in calls:
        name, arguments = pieces.get(call.number, ("", ""))
        pieces[call.number] = (name or call.name, arguments + call.arguments)
    return pieces


def usage(finished: Sequence[RequestFinished], num_per_prompt: int = 1) -> Json:
    """The token counts of a call: outputs summed over its choices, prompts as the first choice of each counts them."""
    firsts = finished[::num_per_prompt]
    num_prompt_tokens = sum(request.num_prompt_tokens for request in firsts)
    num_output_tokens = sum(request.num_output_tokens for request in finished)
    num_cached_tokens = sum(request.num_cached_tokens for request in firsts)
    return {
        **token_counts(num_prompt_tokens, num_output_tokens),
        "prompt_tokens_details": {"cached_tokens": num_cached_tokens},
    }


def token_counts(num_prompt_tokens: int, num_output_tokens: int) -> Json:
    return {
        "prompt_tokens": num_prompt_tokens,
        "completion_tokens": num_output_tokens,
        "total_tokens": num_prompt_tokens + num_output_tokens,
    }


def completion_logprobs(entries: Sequence[TokenLogprob], num_chars_before: int = 0) -> Json:
    """Four lists of equal length, as /v1/completions has them. num_chars_before: of the text before the answer."""
    return {
        "tokens": [entry.text for entry in entries],
        "token_logprobs": [entry.logprob for entry in entries],
        "top_logprobs": [{text: logprob for text, _raw, logprob in entry.top} for entry in entries],
        "text_offset": [num_chars_before + entry.text_offset for entry in entries],
    }


def chat_logprob(entry: TokenLogprob) -> Json:
    """One token, as /v1/chat/completions has it."""
    top = [{"token": text, "logprob": logprob, "bytes": list(raw)} for text, raw, logprob in entry.top]
    return {"token": entry.text, "logprob": entry.logprob, "bytes": list(entry.raw), "top_logprobs": top}
