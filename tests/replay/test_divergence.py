"""Divergences: what differs is named to the item, classified, and shown within a terminal's width."""

import pytest

from engine.core.decisions import RequestFinished, StepPlanned, TokensEmitted
from engine.core.sampling_params import SamplingParams
from engine.core.vocabulary import RecordingGap
from replay.divergence import (
    MAX_DIFFERENCES,
    Classification,
    Divergence,
    EmittedToken,
    FieldDifference,
    Place,
    Raised,
    classify,
    differences,
)
from replay.rendering import as_text, as_values

TOKEN = EmittedToken(3, 7, 42, "", 0xABCDEF, 0xBF800000)


def test_equal_records_have_no_differences() -> None:
    planned = StepPlanned(1, ((1, 0, 4),), (), (), 1, 0, 3, 12)
    assert differences(planned, planned) == []


def test_items_too_many_or_too_few_are_differences_of_one_side() -> None:
    assert differences(TokensEmitted(1, ((1, 1), (2, 1))), TokensEmitted(1, ((1, 1),))) == [
        FieldDifference("rows[1]", (2, 1), None)
    ]
    assert differences(TokensEmitted(1, ()), TokensEmitted(1, ((1, 1),))) == [FieldDifference("rows[0]", None, (1, 1))]


def test_another_kind_of_record_is_one_difference() -> None:
    emitted, gap = TokensEmitted(1, ()), RecordingGap(1, 2, "x")
    assert differences(emitted, gap) == [FieldDifference("record", emitted, gap)]
    assert differences(SamplingParams(seed=1), SamplingParams(seed=2)) == [FieldDifference("seed", 1, 2)]


@pytest.mark.parametrize(
    ("got", "top_logprobs", "expected"),
    [
        (TOKEN._replace(hidden_digest=1), (), Classification.NUMERIC),
        (TOKEN._replace(logprob_bits=1), (), Classification.NUMERIC),
        (TOKEN._replace(token_id=43, hidden_digest=1), (), Classification.TOKENS),
        (TOKEN._replace(token_id=43, hidden_digest=1), ((43, -1.0), (42, -1.000001)), Classification.TIE),
        (TOKEN._replace(token_id=43, hidden_digest=1), ((43, -1.0), (42, -1.1)), Classification.TOKENS),
        (TOKEN._replace(token_id=43, hidden_digest=1), ((43, -1.0), (44, -1.000001)), Classification.TOKENS),
        (TOKEN._replace(token_id=43), ((43, -1.0), (42, -1.000001)), Classification.TOKENS),
        (TOKEN._replace(flag="stop"), (), Classification.STRUCTURAL),
        (None, (), Classification.STRUCTURAL),
    ],
)
def test_a_differing_token_is_classified(
    got: EmittedToken | None, top_logprobs: tuple[tuple[int, float], ...], expected: Classification
) -> None:
    assert classify(TOKEN, got, top_logprobs) is expected


def _divergence(expected: object, got: object) -> Divergence:
    found = differences(expected, got)
    return Divergence(
        place=Place(7, 1_500_000, 3, 0, 1, 2),
        classification=Classification.STRUCTURAL,
        expected=expected,
        got=got,
        differences=tuple(found[:MAX_DIFFERENCES]),
        num_more_differences=max(0, len(found) - MAX_DIFFERENCES),
        decided_on="StepCompleted " + "emitted " * 300,
        before=("x" * 300,),
        circumstances=("beside others",),
        environment=("torch: recorded 1, here 2",),
        likely_cause="a long cause " * 30,
        next_command="reprise show REC",
    )


def test_a_report_stays_within_a_terminals_width_and_counts_what_it_leaves_out() -> None:
    rows = tuple((request, 1_000_000 + request, 1) for request in range(200))
    expected = StepPlanned(3, rows, (), (), 200, 0, 1, 0)
    got = expected._replace(rows=tuple((request, start + 1, count) for request, start, count in rows))
    text = as_text(_divergence(expected, got))
    assert max(len(line) for line in text.splitlines()) <= 120
    assert f"and {200 - MAX_DIFFERENCES} more" in text
    assert "rows[0]" in text
    assert "torch: recorded 1, here 2" in text


def test_a_missing_side_and_an_error_are_shown_as_such() -> None:
    finished = RequestFinished(2, "length", 4, 4, 0, 0, 2)  # type: ignore[arg-type]  # as read from a recording
    text = as_text(_divergence(finished, None))
    assert "(nothing)" in text
    assert "num_output_tokens=4" in text
    assert "KeyError: 9" in as_text(_divergence(finished, Raised("KeyError: 9")))


def test_the_json_values_hold_both_sides() -> None:
    values = as_values(_divergence(TOKEN, TOKEN._replace(token_id=43)))
    assert values["expected"]["token_id"] == 42
    assert values["got"]["token_id"] == 43
    assert values["differences"] == [{"field": "token_id", "expected": 42, "got": 43}]
