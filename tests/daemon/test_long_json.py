"""Bodies written piece by piece are the text that is written at once."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from daemon.long_json import MANY, long_json

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
)


@settings(max_examples=30, deadline=None)
@given(VALUES, st.sampled_from([1, MANY, MANY + 1, 3 * MANY]))
def test_the_text_is_that_of_the_whole(value: Any, count: int) -> None:
    for body in (value, [value] * count, {"a": [value] * count, "é": value}):
        assert long_json(body) == json.dumps(body, ensure_ascii=False, separators=(",", ":"))
