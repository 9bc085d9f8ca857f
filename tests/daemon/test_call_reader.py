"""Calls of functions are found in an answer as it comes, however it is cut into pieces."""

import json

import pytest

from daemon.call_reader import CallReader
from engine.text.tool_format import FORMATS, HERMES, LLAMA, MISTRAL, ToolFormat

ARGUMENTS = ('{"city": "Ulm"}', '{"a": [{"b": "}\\n</tool_call>\\"{"}], "ü": {}}', "{}")


def written(form: ToolFormat, calls: list[tuple[str, str]]) -> str:
    each = [f"{form.opening}{json.dumps(name)}{form.between}{arguments}{form.closing}" for name, arguments in calls]
    return form.begins + (form.separator or "").join(each) + form.ends


def read(form: ToolFormat, text: str, num_chars: int) -> tuple[str, list[tuple[str, str]]]:
    """What is said, and the calls, of a text that comes in pieces of `num_chars`."""
    reader, said, calls = CallReader(form), "", list[tuple[str, str]]()
    for start in range(0, len(text), num_chars):
        piece, deltas = reader.push(text[start : start + num_chars])
        said += piece
        for number, name, arguments in deltas:
            if name:
                assert number == len(calls)
                calls.append((name, ""))
            calls[number] = (calls[number][0], calls[number][1] + arguments)
    said += reader.finish()
    assert reader.num_calls == len(calls)
    return said, calls


@pytest.mark.parametrize("num_chars", [1, 2, 7, 1000])
@pytest.mark.parametrize("form", FORMATS.values(), ids=lambda form: form.name)
def test_calls_are_read_in_every_format_and_cut(form: ToolFormat, num_chars: int) -> None:
    calls = [(f"f{index}", arguments) for index, arguments in enumerate(ARGUMENTS)]
    calls = calls if form.separator is not None else calls[1:2]
    assert read(form, written(form, calls), num_chars) == ("", calls)
    if not form.is_whole:
        assert read(form, "I see <this.\n" + written(form, calls), num_chars) == ("I see <this.\n", calls)


@pytest.mark.parametrize("num_chars", [1, 5])
@pytest.mark.parametrize(
    ("form", "text"),
    [
        (HERMES, "plain < text <tool"),
        (HERMES, '<tool_call>\n{"name": "unfinished'),
        (LLAMA, 'a {"name": "x", "parameters": {}}'),
        (LLAMA, '{"name'),
        (LLAMA, '{"other": 1}'),
        (MISTRAL, "[TOOL_CALLS]"),
    ],
)
def test_what_is_no_call_stays_text(form: ToolFormat, text: str, num_chars: int) -> None:
    said, calls = read(form, text, num_chars)
    assert (said, calls) == (text, [])


def test_a_call_that_is_cut_off_has_the_arguments_that_were_written() -> None:
    assert read(HERMES, '<tool_call>\n{"name": "f", "arguments": {"a": "b', 3) == ("", [("f", '{"a": "b')])
