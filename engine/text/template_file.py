"""An operator's own chat template: read and compiled before anything is started, so that what is wrong is said then."""

from pathlib import Path

from engine.core.errors import EngineError

MAX_BYTES = 1 << 20


class InvalidChatTemplate(EngineError):
    """The file of --chat-template cannot be used."""


def read_chat_template(path: str) -> str:
    """The Jinja source in the file at `path`; "" for "". Raises InvalidChatTemplate."""
    if not path:
        return ""
    try:
        data = Path(path).expanduser().read_bytes()
        source = data.decode("utf-8")
    except OSError as error:
        raise InvalidChatTemplate(f"chat-template {path}: {error.strerror}: give a file that can be read") from error
    except UnicodeDecodeError as error:
        raise InvalidChatTemplate(f"chat-template {path}: no UTF-8 at byte {error.start}: give a Jinja file") from error
    if not 0 < len(data) <= MAX_BYTES:
        raise InvalidChatTemplate(f"chat-template {path} has {len(data)} bytes: give a Jinja file of 1 to {MAX_BYTES}")
    from engine.text.template_environment import TemplateError, template_environment

    try:
        template_environment().from_string(source)
    except TemplateError as error:
        line = f" in line {error.lineno}" if hasattr(error, "lineno") else ""
        raise InvalidChatTemplate(f"chat-template {path} is no Jinja template{line}: {error}") from error
    return source
