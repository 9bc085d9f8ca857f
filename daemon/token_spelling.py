"""How a token is written where log-probabilities name it. It must not know JSON."""

from engine.text.text_model import TextModel


def spelling(text_model: TextModel, token_id: int) -> tuple[str, bytes]:
    """A token's text and bytes; one that is no whole character reads `bytes:\\xf0\\x9f`, so each is distinct."""
    raw = text_model.token_bytes(token_id)
    try:
        return raw.decode("utf-8"), raw
    except UnicodeDecodeError:
        return "bytes:" + "".join([f"\\x{byte:02x}" for byte in raw]), raw
