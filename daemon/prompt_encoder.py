"""Prompts and chats → token ids, long ones in a thread so that running streams do not wait for them."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from daemon.chat_messages import Message
from daemon.chat_rendering import Rendering
from daemon.errors import bad_request
from daemon.question import Prompt, Question
from engine.clock import Clock
from engine.core.errors import EngineError
from engine.text.chat_template import ChatTemplateError
from engine.text.infill import gap_marks
from engine.text.text_model import TextModel

INLINE_CHARS = 2_000  # encoded within half a millisecond, less than a thread's round trip under load costs others
MAX_THREADS = 2

TokenIds = tuple[int, ...]


class PromptEncoder:
    """Safe for concurrent calls; `close` when no more come."""

    def __init__(self, text_model: TextModel, clock: Clock) -> None:
        self._text_model = text_model
        self._clock = clock
        self._threads = ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="tokenizer")

    async def encode(self, question: Question, max_model_len: int) -> list[TokenIds]:
        """One list per choice. Raises ApiError 400 for an empty prompt and for what the chat template refuses."""
        if question.is_chat:
            tools = question.tools.told if question.tools else ()
            prompts = [await self.encode_chat(question.messages, question.rendering, tools)]
        else:
            prompts = [await self._encode_prompt(prompt, question) for prompt in question.prompts]
        if not all(prompts):
            raise bad_request("prompt is empty: give at least one token", "prompt")
        max_tokens = question.max_prompt_tokens
        if max_tokens < 0:
            max_tokens = max(1, max_model_len - (question.max_output_tokens or 1))
        return [prompt[-max_tokens:] for prompt in prompts] if max_tokens else prompts

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def encode_text(self, text: str, param: str, add_special: bool) -> TokenIds:
        """`param` names the field that an error is about. Raises ApiError 400."""
        return await self._run(len(text), lambda: self._encode_text(text, param, add_special=add_special))

    async def encode_chat(
        self, messages: Sequence[Message], rendering: Rendering, tools: Sequence[Mapping[str, Any]] = ()
    ) -> TokenIds:
        """The prompt that the model's template makes of a chat. Raises ApiError 400."""
        num_chars = sum(len(message["content"]) for message in messages)
        if tools or rendering.variables or any("tool_calls" in message for message in messages):
            num_chars = INLINE_CHARS + 1  # how long they become is the template's
        return await self._run(num_chars, lambda: self._encode_chat(messages, rendering, tools))

    async def _encode_prompt(self, prompt: Prompt, question: Question) -> TokenIds:
        if question.suffix and question.max_prompt_tokens:
            message = "truncate_prompt_tokens cannot be had with suffix, whose marks it would cut off: give one of them"
            raise bad_request(message, "truncate_prompt_tokens")
        if question.suffix:
            return await self._encode_gap(prompt, question.suffix, question.adds_special)
        if not isinstance(prompt, str):
            return prompt
        return await self.encode_text(prompt, "prompt", question.adds_special)

    async def _encode_gap(self, prompt: Prompt, suffix: str, adds_special: bool) -> TokenIds:
        """The answer is what belongs between the two."""
        marks = gap_marks(self._text_model.vocabulary)
        if marks is None:
            raise bad_request("suffix cannot be had: this model has no tokens that mark a gap; leave it out", "suffix")
        before, after, between = marks
        if isinstance(prompt, str):
            return await self.encode_text(f"{before}{prompt}{after}{suffix}{between}", "prompt", adds_special)
        rest = await self.encode_text(f"{after}{suffix}{between}", "suffix", add_special=False)
        return (*await self.encode_text(before, "suffix", add_special=False), *prompt, *rest)

    def _encode_chat(
        self, messages: Sequence[Message], rendering: Rendering, tools: Sequence[Mapping[str, Any]]
    ) -> TokenIds:
        try:
            text = self._text_model.render_chat(
                *(messages, rendering.adds_prompt, self._clock.wall_ns(), tools, rendering.variables),
                goes_on=rendering.goes_on,
            )
        except ChatTemplateError as error:
            raise bad_request(str(error), "messages") from error
        return self._encode_text(text, "messages", add_special=rendering.adds_special)

    def _encode_text(self, text: str, param: str, *, add_special: bool) -> TokenIds:
        try:
            return tuple(self._text_model.encode(text, add_special))
        except EngineError as error:
            raise bad_request(f"{param}: {error}", param) from error

    async def _run(self, num_chars: int, encode: Callable[[], TokenIds]) -> TokenIds:
        if num_chars <= INLINE_CHARS:
            return encode()
        return await asyncio.get_running_loop().run_in_executor(self._threads, encode)
