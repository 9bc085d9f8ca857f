"""Messages → one text, by the model's own Jinja template, in a sandbox.

There is no fallback: a model without a template was not trained on chats, and a guessed format gives quietly worse
answers. Jinja is imported when the first chat is rendered: the engine process renders none.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from engine.core.errors import EngineError
from engine.text.open_turn import cut_behind_mark, with_mark
from engine.text.tool_format import HERMES, MISTRAL, SPACED_MISTRAL, ToolFormat, format_told_by
from engine.text.tool_prompt import described, described_by_the_user, with_short_ids

if TYPE_CHECKING:
    from jinja2 import Template


class ChatTemplateError(EngineError):
    """The messages cannot be made into a prompt: what the template, or its absence, says."""


class ChatTemplate:
    """A model's chat template, compiled at its first use.

    source            Jinja source; None where the model has none
    template_tokens   bos_token, eos_token …: texts that the template may name
    tool_source       another one, for chats with tools; None where `source` is for all
    """

    def __init__(self, source: str | None, template_tokens: Mapping[str, str], tool_source: str | None = None) -> None:
        self._template_tokens = dict(template_tokens)
        self._plain = _Source(source)
        self._with_tools = _Source(tool_source) if tool_source is not None else self._plain

    @property
    def tool_format(self) -> ToolFormat:
        """How an answer writes calls: the template's way, or the one that is described where it has none."""
        return self._with_tools.told_format or HERMES

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        add_generation_prompt: bool = True,
        wall_ns: int | None = None,
        tools: Sequence[Mapping[str, Any]] = (),
        variables: Mapping[str, Any] | None = None,
        *,
        goes_on: bool = False,
    ) -> str:
        """The prompt. Encode it with add_special=False: the template writes the special tokens itself.

        messages   role, and content as a string or a list of text parts, which are joined by newlines; of calls
                   `tool_calls`, whose arguments are values, and of their results `tool_call_id`
        tools      functions that the answer may call
        wall_ns    nanoseconds since 1970-01-01 UTC, for templates that write the date
        variables  others that the template may ask for, such as enable_thinking
        goes_on    the last message is not closed: the answer is its rest
        Raises ChatTemplateError.
        """
        source = self._with_tools if tools else self._plain
        plain: Sequence[Mapping[str, Any]] = [_with_plain_content(message) for message in messages]
        plain = with_mark(plain) if goes_on else plain
        given = {
            **self._template_tokens,
            **(variables or {}),
            "documents": None,
            "add_generation_prompt": add_generation_prompt and not goes_on,
            "strftime_now": lambda pattern: _format_time(pattern, wall_ns),
        }
        text = self._render(source, plain, tools, given)
        return cut_behind_mark(text) if goes_on else text

    def _render(
        self,
        source: "_Source",
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]],
        given: Mapping[str, Any],
    ) -> str:
        if source.told_format is None:
            try:
                return source.render({**given, "messages": described(messages, tools), "tools": None})
            except ChatTemplateError:  # many take no system message
                if not tools or messages[0]["role"] == "system":
                    raise
            return source.render({**given, "messages": described_by_the_user(messages, tools), "tools": None})
        if source.told_format in (MISTRAL, SPACED_MISTRAL):
            messages = with_short_ids(messages)
        return source.render({**given, "messages": messages, "tools": list(tools) or None})


class _Source:
    def __init__(self, source: str | None) -> None:
        self._source = source
        self.told_format = format_told_by(source)

    def render(self, given: Mapping[str, Any]) -> str:
        template = self._template
        try:
            return template.render(given)
        except ChatTemplateError:
            raise
        except Exception as error:  # a template is a program of others: it may raise anything
            raise ChatTemplateError(f"the chat template refused the messages: {error}") from error

    @cached_property
    def _template(self) -> "Template":
        if self._source is None:
            raise ChatTemplateError(
                "the model has no chat template: use /v1/completions, serve a model that was trained on chats, or give "
                "its template with --chat-template"
            )
        from engine.text.template_environment import TemplateError, template_environment

        try:
            return template_environment().from_string(self._source)
        except TemplateError as error:
            raise ChatTemplateError(f"the model's chat template cannot be compiled: {error}") from error


def _format_time(pattern: str, wall_ns: int | None) -> str:
    if wall_ns is None:
        raise ChatTemplateError("the chat template asks for the date, and none was given with the messages")
    return datetime.fromtimestamp(wall_ns // 1_000_000_000, UTC).strftime(pattern)


def _with_plain_content(message: Mapping[str, Any]) -> dict[str, Any]:
    content = message.get("content")
    if isinstance(content, list):
        content = "\n".join([_part_text(part) for part in content])
    if content is not None and not isinstance(content, str):
        raise ChatTemplateError(
            f"a message's content is {type(content).__name__}: give a string or a list of text parts"
        )
    return {**message, "content": content or ""}


def _part_text(part: Any) -> str:
    kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
    text = part.get("text") if isinstance(part, Mapping) else None
    if kind != "text" or not isinstance(text, str):
        raise ChatTemplateError(
            f"a content part of type {kind!r} cannot be read: give parts of type 'text' with a text"
        )
    return text
