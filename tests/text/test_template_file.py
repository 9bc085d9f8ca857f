"""--chat-template: an operator's own template, for a model without one or in place of its own."""

from pathlib import Path

import pytest

from daemon.__main__ import main
from engine.text.model_source import resolve_model
from engine.text.template_file import MAX_BYTES, InvalidChatTemplate, read_chat_template
from engine.text.text_model import load_text_model

HELLO = [{"role": "user", "content": "Hi"}]


def test_a_template_that_can_be_used_takes_the_place_of_the_models_own(tmp_path: Path) -> None:
    path = tmp_path / "short.jinja"
    path.write_text("{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}")
    source = read_chat_template(str(path))
    model = load_text_model(resolve_model("smollm2-135m-instruct"), chat_template=source)
    assert model.render_chat(HELLO) == "<user>Hi"
    assert read_chat_template("") == ""


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"{% if %}", "no Jinja template in line 1"),
        (b"one\n{{ 'a' | nothing }}", "no Jinja template in line 2: No filter named 'nothing'"),
        (b"\xff", "no UTF-8 at byte 0"),
        (b"", "0 bytes"),
        (b" " * (MAX_BYTES + 1), f"{MAX_BYTES + 1} bytes"),
        (None, "No such file"),
    ],
)
def test_one_that_cannot_is_told_by_config_check_with_the_reason(
    content: bytes | None, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    template, config = tmp_path / "chat.jinja", tmp_path / "reprise.toml"
    if content is not None:
        template.write_bytes(content)
    with pytest.raises(InvalidChatTemplate, match=says):
        read_chat_template(str(template))
    config.write_text(f'chat-template = "{template}"\n')
    assert main(["config", "check", str(config)]) == 2
    assert says in capsys.readouterr().err


def test_the_daemon_says_so_before_it_starts_anything(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    template = tmp_path / "chat.jinja"
    template.write_text("{% if %}")
    options = ["--chat-template", str(template), "--record-dir", str(tmp_path / "recordings")]
    assert main(["serve", *options]) == 1
    assert "chat-template" in capsys.readouterr().err
    assert not (tmp_path / "recordings").exists()
