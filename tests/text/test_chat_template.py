"""Chats become prompts by the model's own template, and by nothing else."""

import pytest

from engine.text.chat_template import ChatTemplate, ChatTemplateError
from engine.text.text_model import TextModel

HELLO = [{"role": "user", "content": "Hi"}]


def _render(source: str, messages: list[dict[str, object]] | None = None, wall_ns: int | None = None) -> str:
    template = ChatTemplate(source, {"bos_token": "<s>"})
    return template.render(HELLO if messages is None else messages, wall_ns=wall_ns)


def test_the_default_model_renders_chats_as_it_was_trained_on(smollm: TextModel) -> None:
    assert smollm.render_chat(HELLO) == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nHi<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    own_system = [{"role": "system", "content": "Be brief."}, *HELLO, {"role": "assistant", "content": "Hello."}]
    assert smollm.render_chat(own_system, add_generation_prompt=False) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
        "<|im_start|>assistant\nHello.<|im_end|>\n"
    )


def test_the_special_tokens_of_a_rendered_chat_are_single_tokens(smollm: TextModel) -> None:
    ids = smollm.encode(smollm.render_chat(HELLO), add_special=False)
    assert (ids.count(1), ids.count(2)) == (3, 2)
    start = [1, *smollm.encode("assistant\n")]
    assert ids[-len(start) :] == start


def test_content_may_be_a_list_of_text_parts() -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    assert _render("{{ messages[0].content }}", [{"role": "user", "content": parts}]) == "one\ntwo"


def test_an_absent_content_is_empty() -> None:
    assert _render("[{{ messages[0].content }}]", [{"role": "assistant", "content": None}]) == "[]"


@pytest.mark.parametrize(
    ("content", "what"),
    [
        ([{"type": "image_url", "image_url": {}}], "'image_url'"),
        ([{"type": "text"}], "'text'"),
        (["bare"], "'str'"),
        (7, "int"),
    ],
)
def test_content_that_is_no_text_is_refused(content: object, what: str) -> None:
    with pytest.raises(ChatTemplateError, match=what):
        _render("{{ messages[0].content }}", [{"role": "user", "content": content}])


def test_a_model_without_a_template_is_told_so_and_no_format_is_guessed() -> None:
    with pytest.raises(ChatTemplateError, match="no chat template"):
        ChatTemplate(None, {}).render(HELLO)


def test_the_error_that_a_template_raises_reaches_the_client() -> None:
    with pytest.raises(ChatTemplateError, match="roles must alternate"):
        _render("{{ raise_exception('roles must alternate') }}")


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages.__class__.__mro__[1].__subclasses__() }}",
        "{{ raise_exception.__globals__['json'] }}",
        "{{ messages.append(1) }}",
        "{% for i in range(10000000) %}{% endfor %}",
        "{{ messages[5].content.x }}",
        "{{ 1 / 0 }}",
    ],
)
def test_a_template_that_leaves_the_sandbox_or_fails_is_stopped(source: str) -> None:
    with pytest.raises(ChatTemplateError):
        _render(source)


def test_a_template_that_cannot_be_compiled_says_why() -> None:
    with pytest.raises(ChatTemplateError, match="cannot be compiled"):
        _render("{% if %}")


def test_templates_find_what_they_are_written_for() -> None:
    assert _render("{{ bos_token }}{{ tools is none }}{{ add_generation_prompt }}") == "<s>TrueTrue"
    assert _render("{{ {'a': '<é>'} | tojson }}") == '{"a": "<é>"}'
    assert _render("{% for m in messages * 3 %}{% if loop.index == 2 %}{% break %}{% endif %}x{% endfor %}") == "x"
    assert _render("{% generation %}a{{ messages[0].content }}{% endgeneration %}") == "aHi"
    assert _render("  {% if true %}\nx\n  {% endif %}\n") == "x\n"  # blocks leave no blank lines


def test_the_date_is_the_one_that_is_handed_in() -> None:
    source = "{{ strftime_now('%d %b %Y') }}"
    assert _render(source, wall_ns=1_767_225_600_000_000_000) == "01 Jan 2026"
    with pytest.raises(ChatTemplateError, match="date"):
        _render(source)


def test_a_second_template_is_for_chats_with_tools() -> None:
    source = "{% for t in tools %}{{ t.function.name }}{% endfor %}<tool_call>"
    template = ChatTemplate("plain", {}, source)
    tool = {"type": "function", "function": {"name": "weather"}}
    assert template.render(HELLO) == "plain"
    assert template.render(HELLO, tools=[tool]) == "weather<tool_call>"
    assert ChatTemplate("plain", {}).render(HELLO, tools=[tool]) == "plain"


def test_variables_of_the_client_reach_the_template_and_replace_nothing_of_ours() -> None:
    template = ChatTemplate("{{ enable_thinking }}{{ add_generation_prompt }}{{ messages | length }}", {})
    variables = {"enable_thinking": False, "add_generation_prompt": False, "messages": [], "tools": 1}
    assert template.render(HELLO, variables=variables) == "FalseTrue1"


def test_a_message_that_goes_on_is_cut_where_its_content_ends_trimmed_or_not() -> None:
    chat = [*HELLO, {"role": "assistant", "content": "Sure, "}]
    for source, expected in (
        ("{% for m in messages %}<{{ m.content }}>{% endfor %}", "<Hi><Sure, "),
        ("{% for m in messages %}<{{ m.content | trim }}>{% endfor %}", "<Hi><Sure,"),
    ):
        assert ChatTemplate(source, {}).render(chat, goes_on=True) == expected
