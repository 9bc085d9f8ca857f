"""Bodies that only look like JSON are refused with a 400 and a reason."""

import pytest

from daemon.errors import ApiError
from daemon.json_body import parse_object


def test_an_object_is_read_whatever_it_holds() -> None:
    assert parse_object('{"a": [1, 2.5, null, "é 🦜"], "b": {"c": true}}'.encode()) == {
        "a": [1, 2.5, None, "é 🦜"],
        "b": {"c": True},
    }
    assert parse_object(rb'{"a": "\ud83e\udd9c"}') == {"a": "🦜"}


def test_more_values_than_any_prompt_has_are_not_even_looked_at() -> None:
    with pytest.raises(ApiError, match="more than 1200000 values") as caught:
        parse_object(b'{"prompt": [' + b"[],{}," * 600_000 + b"[]]}")
    assert caught.value.status == 413
    parse_object(b'{"prompt": [' + b"1," * 1_000_000 + b"1]}")


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b"[1]", "must be a JSON object"),
        (b'"text"', "must be a JSON object"),
        (b'{"a": "\xff"}', "not valid UTF-8"),
        (b'{"a": NaN}', "NaN is not JSON"),
        (b'{"a": -Infinity}', "Infinity is not JSON"),
        (rb'{"a": "\ud83e"}', "surrogate"),
        (b'{"a": ' + b"9" * 5000 + b"}", "number"),
        (b'{"a": ' + b"[" * 100_000, "nested too deeply"),
    ],
)
def test_what_is_no_usable_json_gets_a_400_with_the_reason(raw: bytes, reason: str) -> None:
    with pytest.raises(ApiError) as raised:
        parse_object(raw)
    assert raised.value.status == 400
    assert reason in raised.value.message
