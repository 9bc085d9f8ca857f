"""The token that `/viewer` asks for: read once, from a file of its own. It stands for no tenant and opens no /v1/."""

from pathlib import Path

from daemon.api_keys import ApiKeys
from engine.core.errors import EngineError

MIN_CHARS, MAX_CHARS = 16, 1_000


class InvalidViewerToken(EngineError):
    """The file cannot be read, or what stands in it is no token; the message says what to do."""


def read_viewer_token(path: str, keys: ApiKeys) -> str:
    """ "" for no file: then there is no viewer. Raises InvalidViewerToken, also where it is one of `keys`."""
    if not path:
        return ""
    try:
        token = Path(path).read_text("ascii").strip()
    except OSError as error:
        raise InvalidViewerToken(f"--viewer-token-file: {path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidViewerToken(f"--viewer-token-file: {path} must hold ASCII: {error}") from error
    if not MIN_CHARS <= len(token) <= MAX_CHARS or not token.isprintable() or " " in token:
        raise InvalidViewerToken(
            f"--viewer-token-file: {path} holds {len(token)} characters: give one word of {MIN_CHARS} to {MAX_CHARS}, "
            "as `openssl rand -hex 24` prints"
        )
    if keys.are_required and keys.caller_of(token) is not None:
        raise InvalidViewerToken(
            f"--viewer-token-file: {path} holds what is an API key too: who may look must not be able to ask, so draw "
            "another, as `openssl rand -hex 24` does"
        )
    return token
