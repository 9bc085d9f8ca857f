"""Stop strings end a request in the very step that completes them; the twin in the daemon cuts the text there."""

from engine.core.contents import RequestContents
from engine.core.sampling_params import SamplingParams
from engine.execution.held_request import HeldRequest
from engine.text.model_source import DEFAULT_MODEL, resolve_model
from engine.text.text_model import load_text_model

TEXT_MODEL = load_text_model(resolve_model(DEFAULT_MODEL))
ANSWER = " The river runs to the sea. The river"


def ends(stop_strings: tuple[str, ...], *, min_tokens: int = 0) -> list[bool]:
    """Whether the request ends with each token of ANSWER."""
    contents = RequestContents((1,), stop_strings=stop_strings, follows_text=True)
    held = HeldRequest(SamplingParams(min_tokens=min_tokens), contents, TEXT_MODEL, [])
    return [held.takes(token) for token in TEXT_MODEL.encode(ANSWER, add_special=False)]


def test_the_token_that_completes_a_stop_string_ends_the_request() -> None:
    tokens = [TEXT_MODEL.token_text(token) for token in TEXT_MODEL.encode(ANSWER, add_special=False)]
    first = ends(("r runs",)).index(True)
    assert "".join(tokens[: first + 1]).endswith(" runs")
    assert not any(ends(("r walks",)))


def test_a_stop_string_before_min_tokens_is_plain_text() -> None:
    first = next(index for index, is_end in enumerate(ends(("river",), min_tokens=4)) if is_end)
    assert first > 4
    assert ends(("river",)).index(True) < 4


def test_without_stop_strings_only_stop_tokens_end_a_request() -> None:
    held = HeldRequest(SamplingParams(), RequestContents((1,), (7,)), TEXT_MODEL, [])
    assert held.stop_strings is None
    assert [held.takes(token) for token in (5, 7)] == [False, True]
