"""A chat with tools becomes a prompt: by the template where it takes tools, else described, in plain roles."""

from typing import Any

import pytest

from engine.text.chat_template import ChatTemplate, ChatTemplateError
from engine.text.text_model import TextModel
from engine.text.tool_format import HERMES, LLAMA, MISTRAL, SPACED_MISTRAL, ToolFormat, format_told_by

TOOL: Any = {"type": "function", "function": {"name": "weather", "description": "", "parameters": {"type": "object"}}}
CALLS: Any = [
    {"id": f"call_{name}", "type": "function", "function": {"name": "weather", "arguments": {"city": name}}}
    for name in ("Ulm", "Bern")
]
CHAT: Any = [
    {"role": "user", "content": "Rain?"},
    {"role": "assistant", "content": "", "tool_calls": CALLS},
    {"role": "tool", "tool_call_id": "call_Ulm", "name": "weather", "content": "yes"},
    {"role": "tool", "tool_call_id": "call_Bern", "name": "weather", "content": "no"},
]


@pytest.mark.parametrize(
    ("source", "form"),
    [
        ("{% if tools %}<tool_call>{% endif %}", HERMES),
        ("{% if tools is not none %}'\"parameters\": ' ipython{% endif %}", LLAMA),
        ("{{ tools }}[TOOL_CALLS] [", SPACED_MISTRAL),
        ("{{ tools }}[TOOL_CALLS][", MISTRAL),
        ("{{ tools }}[TOOL_CALLS]name[ARGS]", None),
        ("{{ tools }}<tool_call><function=name>", None),
        ("{{ tools }}", None),
        ("<tool_call>", None),
        ("{{ toolset }}<tool_call>", None),
        (None, None),
    ],
)
def test_a_template_tells_how_its_model_writes_calls(source: str | None, form: ToolFormat | None) -> None:
    assert format_told_by(source) == form
    assert ChatTemplate(source, {}).tool_format == (form or HERMES)


def test_a_template_that_takes_tools_gets_them_and_arguments_as_values() -> None:
    source = (
        "{% for t in tools or [] %}[{{ t.function.name }}]{% endfor %}"
        "{% for m in messages %}{{ m.role }}:{{ m.content }}"
        "{% for c in m.tool_calls %}<tool_call>{{ c.function.arguments.city }}{% endfor %};{% endfor %}"
    )
    template = ChatTemplate(source, {})
    assert template.render(CHAT, tools=[TOOL]) == (
        "[weather]user:Rain?;assistant:<tool_call>Ulm<tool_call>Bern;tool:yes;tool:no;"
    )
    assert template.render(CHAT[:1]) == "user:Rain?;"


def test_mistral_gets_ids_of_nine_characters_and_a_result_that_of_its_call() -> None:
    source = (
        "{{ tools is none }}{% for m in messages %}{% for c in m.tool_calls %}[TOOL_CALLS] [{{ c.id }}]{% endfor %}"
        "{{ m.tool_call_id }}{% endfor %}"
    )
    rendered = ChatTemplate(source, {}).render(CHAT, tools=[TOOL])
    first, second = rendered.split("[TOOL_CALLS] [")[1:]
    ids = first[:9], second[:9]
    assert first[9] == second[9] == "]"
    assert rendered.endswith("]" + "".join(ids))
    assert ids[0] != ids[1]


def test_the_default_model_is_told_of_tools_in_its_system_message_and_results_come_from_the_user(
    smollm: TextModel,
) -> None:
    rendered = smollm.render_chat(CHAT, tools=[TOOL])
    system, user, call, results, _answer = rendered.split("<|im_start|>")[1:]
    assert system.startswith("system\n# Tools\n")
    assert '"name": "weather"' in system
    assert user == "user\nRain?<|im_end|>\n"
    assert call == "assistant\n" + "\n".join(
        [
            f'<tool_call>\n{{"name": "weather", "arguments": {{"city": "{name}"}}}}\n</tool_call>'
            for name in ("Ulm", "Bern")
        ]
    ) + ("<|im_end|>\n")
    assert results == (
        "user\n<tool_response>\nyes\n</tool_response>\n<tool_response>\nno\n</tool_response><|im_end|>\n"
    )
    own = smollm.render_chat([{"role": "system", "content": "Be brief."}, *CHAT[:1]], tools=[TOOL])
    assert own.startswith("<|im_start|>system\nBe brief.\n\n# Tools\n")


def test_a_template_that_takes_no_system_message_has_the_tools_told_by_the_user() -> None:
    source = (
        "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
        "<{{ m.role }}>{{ m.content }}{% endfor %}"
    )
    rendered = ChatTemplate(source, {}).render(CHAT, tools=[TOOL])
    assert rendered.startswith("<user># Tools\n")
    assert "\n\nRain?<assistant><tool_call>" in rendered
    with pytest.raises(ChatTemplateError, match="no system role"):
        ChatTemplate(source, {}).render([{"role": "system", "content": "Be brief."}, *CHAT], tools=[TOOL])
