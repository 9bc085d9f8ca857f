"""The chat templates of real models: prompts as transformers renders them, calls as they are written by the template.

`templates/README.md` says where each is from.
"""

import json
from datetime import UTC, datetime, tzinfo
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from daemon.call_reader import CallReader
from engine.text.chat_template import ChatTemplate
from engine.text.grammar_table import GrammarVocabulary, matcher_of, table_of
from engine.text.tool_format import HERMES, LLAMA, MISTRAL, SPACED_MISTRAL, ToolFormat
from engine.text.tool_grammar import of_calls
from tests.daemon.text_models import byte_text_model

FOLDER = Path(__file__).parent / "templates"
FORMATS = {
    "qwen2.5": HERMES,
    "qwen3": HERMES,
    "hermes": HERMES,
    "llama-3.1": LLAMA,
    "llama-3.2": LLAMA,
    "mistral-nemo": MISTRAL,
    "mistral-3": SPACED_MISTRAL,
}
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
NEW_YEAR_NS = 1_767_225_600_000_000_000
WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": 'The weather in <a> city & "more", é',
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "unit": {"type": "string", "enum": ["c", "f"]}},
            "required": ["city"],
        },
    },
}
NOW: Any = {
    "type": "function",
    "function": {"name": "now", "description": "", "parameters": {"type": "object", "properties": {}}},
}
TOOLS = [WEATHER, NOW]


def call(call_id: str, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


SYSTEM, ASKED = {"role": "system", "content": "Be brief."}, {"role": "user", "content": "Rain in Ulm?"}
ONE = [call("abc123XYZ", "weather", {"city": "Ulm", "unit": "c"})]
TWO = [*ONE, call("abc123XY0", "now", {})]
CALL: Any = {"role": "assistant", "content": "", "tool_calls": ONE}
CALLS: Any = {**CALL, "tool_calls": TWO}
RESULT = {"role": "tool", "tool_call_id": "abc123XYZ", "name": "weather", "content": 'rain, "heavy"'}
NOON = {"role": "tool", "tool_call_id": "abc123XY0", "name": "now", "content": "noon"}
SAID, THANKS = {"role": "assistant", "content": "It rains."}, {"role": "user", "content": "Thanks."}
CHATS: dict[str, tuple[list[Any], list[Any]]] = {
    "a question": ([ASKED], []),
    "with a system message": ([SYSTEM, ASKED, SAID, THANKS], []),
    "tools": ([SYSTEM, ASKED], TOOLS),
    "a call": ([ASKED, CALL, RESULT], TOOLS),
    "a call, long ago": ([SYSTEM, ASKED, CALL, RESULT, SAID, THANKS], TOOLS),
    "two calls": ([ASKED, CALLS, RESULT, NOON], TOOLS),
    "calls without tools": ([ASKED, CALL, RESULT, SAID, THANKS], []),
}


class NewYear(datetime):
    @classmethod
    def now(cls, tz: tzinfo | None = None) -> "NewYear":
        return cls.fromtimestamp(NEW_YEAR_NS // 10**9, UTC)


def source_of(name: str) -> str:
    return (FOLDER / f"{name}.jinja").read_text(encoding="utf-8")


def takes(name: str, chat: str) -> bool:
    return not (FORMATS[name] is LLAMA and chat == "two calls")  # it raises, with these words


@pytest.mark.parametrize("name", FORMATS)
def test_every_prompt_is_what_transformers_renders(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers.utils import chat_template_utils
    from transformers.utils.chat_template_utils import render_jinja_template

    monkeypatch.setattr(chat_template_utils, "datetime", NewYear)
    source = source_of(name)
    template = ChatTemplate(source, TOKENS)
    assert template.tool_format is FORMATS[name]
    for chat, (messages, tools) in CHATS.items():
        if not takes(name, chat):
            continue
        for goes_on in (False, True):
            asked = [*messages, SAID] if goes_on else messages
            given: Any = {**TOKENS, "enable_thinking": False, "date_string": "1 January 2026"}
            theirs: Any = render_jinja_template(
                [asked],
                tools=tools or None,
                chat_template=source,
                add_generation_prompt=not goes_on,
                continue_final_message=goes_on,
                **given,
            )
            variables = {"enable_thinking": False, "date_string": "1 January 2026"}
            ours = template.render(asked, True, NEW_YEAR_NS, tools, variables, goes_on=goes_on)
            assert ours == theirs[0][0], f"{chat}, goes on: {goes_on}"


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("has_controls", [False, True])
def test_a_call_as_the_template_writes_it_may_be_drawn_and_is_read(name: str, has_controls: bool) -> None:
    form, template = FORMATS[name], ChatTemplate(source_of(name), TOKENS)
    ids = {piece: 257 + index for index, piece in enumerate(form.controls)} if has_controls else {}
    vocabulary = byte_text_model().vocabulary
    special_ids = (*sorted(vocabulary.special_ids), *ids.values())
    texts = (*vocabulary.token_bytes, *[piece.encode() for piece in ids])
    table = table_of(GrammarVocabulary(texts, special_ids, vocabulary.eos_token_ids))
    functions = [(tool["function"]["name"], tool["function"]["parameters"]) for tool in TOOLS]
    for message in (CALL, CALLS):
        if message is CALLS and not takes(name, "two calls"):
            continue
        text = written(template, message)
        for is_required in (False, True):
            matcher = matcher_of(table, of_calls(form, functions, ids, is_required=is_required, is_parallel=True))
            assert all(matcher.consume_token(token_id) for token_id in tokens_of(text, ids)), text
            assert matcher.is_accepting(), text
        assert read(form, text) == [
            (each["function"]["name"], each["function"]["arguments"]) for each in message["tool_calls"]
        ]


def written(template: ChatTemplate, message: Any) -> str:
    """What the model would have said, by its template."""
    variables = {"enable_thinking": False, "date_string": "1 January 2026"}
    before = template.render([ASKED], True, NEW_YEAR_NS, TOOLS, variables)
    whole = template.render([ASKED, message], False, NEW_YEAR_NS, TOOLS, variables)
    assert whole.startswith(before)
    text = whole[len(before) :]
    for end in ("<|im_end|>", "<|eot_id|>", "</s>"):
        text = text.partition(end)[0]
    return text


def tokens_of(text: str, ids: dict[str, int]) -> list[int]:
    for piece, token_id in ids.items():
        before, found, behind = text.partition(piece)
        if found:
            return [*tokens_of(before, ids), token_id, *tokens_of(behind, ids)]
    return list(text.encode())


def read(form: ToolFormat, text: str) -> list[tuple[str, Any]]:
    """In pieces of every size, all the same."""
    found = []
    for size in (1, 2, 7, len(text)):
        reader, pieces = CallReader(form), [text[at : at + size] for at in range(0, len(text), size)]
        calls = [delta for piece in pieces for delta in reader.push(piece)[1]]
        assert reader.finish() == ""
        names = {each.number: each.name for each in calls if each.name}
        found.append(
            [
                (name, json.loads("".join([each.arguments for each in calls if each.number == number])))
                for number, name in names.items()
            ]
        )
    assert all(one == other for one, other in pairwise(found))
    return found[0]
