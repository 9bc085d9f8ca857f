"""Stop strings, against a search of the whole text after every character."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.text.stop_strings import StopStringFinder


def _run(finder: StopStringFinder, pieces: list[str]) -> tuple[str, int]:
    """The answer's text, and how many pieces belong to it."""
    text = ""
    for number, piece in enumerate(pieces, start=1):
        text += finder.push(piece)
        if finder.stopped_by is not None:
            return text, number
    return text + finder.finish(), len(pieces)


def _naive(text: str, stops: list[str]) -> tuple[str, str | None]:
    """At the first place where the text so far ends with stop strings: the longest of them, and the text before it."""
    for end in range(1, len(text) + 1):
        found = [stop for stop in stops if text[:end].endswith(stop)]
        if found:
            longest = max(found, key=len)
            return text[: end - len(longest)], longest
    return text, None


_letters = st.text(alphabet="ab", max_size=6)


@settings(max_examples=800, deadline=None)
@given(st.lists(_letters, max_size=8), st.lists(_letters.filter(bool), max_size=4))
def test_the_answer_ends_before_the_stop_string_that_is_complete_first(pieces: list[str], stops: list[str]) -> None:
    expected, stopped_by = _naive("".join(pieces), stops)
    finder = StopStringFinder(stops)
    text, num_pieces = _run(finder, pieces)
    assert (text, finder.stopped_by) == (expected, stopped_by)
    if stopped_by is not None:
        assert _naive("".join(pieces[: num_pieces - 1]), stops)[1] is None  # not before this piece
        assert _naive("".join(pieces[:num_pieces]), stops)[1] == stopped_by


@settings(max_examples=500, deadline=None)
@given(_letters.filter(bool), st.lists(_letters.filter(bool), min_size=1, max_size=4))
def test_exactly_what_may_become_a_stop_string_is_held_back(text: str, stops: list[str]) -> None:
    finder = StopStringFinder(stops)
    emitted = ""
    for end, character in enumerate(text, start=1):
        emitted += finder.push(character)
        if finder.stopped_by is not None:
            return
        held = max(length for stop in stops for length in range(len(stop)) if text[:end].endswith(stop[:length]))
        assert emitted == text[: end - held]
    assert emitted + finder.finish() == text


def test_a_stop_string_may_lie_inside_a_longer_one() -> None:
    text = "Here is the alphabet"
    finder = StopStringFinder([text[5:14], text[7:11]])
    assert _run(finder, ["Here", " is", " the", " alph", "abet"]) == ("Here is", 3)
    assert finder.stopped_by == " the"


def test_of_two_that_end_together_the_earlier_start_wins() -> None:
    finder = StopStringFinder(["lo", "hello"])
    assert _run(finder, ["say hel", "lo there"]) == ("say ", 2)
    assert finder.stopped_by == "hello"


def test_what_was_held_is_released_when_it_cannot_become_a_stop_string() -> None:
    finder = StopStringFinder(["###"])
    assert [finder.push(piece) for piece in ["a#", "#", "b", "##"]] == ["a", "", "##b", ""]
    assert finder.finish() == "##"
    assert finder.finish() == ""


@pytest.mark.parametrize(("include_stop", "expected"), [(False, "one "), (True, "one END")])
def test_the_stop_string_itself_is_kept_on_request(include_stop: bool, expected: str) -> None:
    finder = StopStringFinder(["END"], include_stop=include_stop)
    assert _run(finder, ["one E", "ND two"]) == (expected, 2)
    assert finder.push("more") == ""
    assert finder.finish() == ""


def test_a_stop_string_completed_too_early_is_plain_text() -> None:
    finder = StopStringFinder(["aa"])
    assert finder.push("aa", may_stop=False) == "a"  # the second a may begin the next one
    assert finder.stopped_by is None
    assert finder.push("a") == ""
    assert finder.stopped_by == "aa"


def test_without_stop_strings_text_passes_through() -> None:
    finder = StopStringFinder([])
    assert _run(finder, ["a", "", "b"]) == ("ab", 3)
