"""The words of the table, on answers made by hand."""

import random

import numpy as np
import pytest

from daemon.bench.client import Answer
from daemon.bench.drive import Drive
from daemon.bench.events import Usage
from daemon.bench.statistics import METRICS, figures_of, metric, percentile, ratios, spread

MS = 1_000_000


def answer(
    chunk_ms: list[int], *, index: int = 0, kind: str = "chat", num_tokens: int | None = None, **changes: object
) -> Answer:
    made = Answer(index, kind, 10, len(chunk_ms) if num_tokens is None else num_tokens, None)
    made.chunk_ns = [ms * MS for ms in chunk_ms]
    made.ended_ns = (chunk_ms[-1] + 1) * MS if chunk_ms else 0
    if num_tokens is not None:
        made.usage = Usage(10, num_tokens)
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def test_percentiles_are_those_of_numpy() -> None:
    draw = random.Random(1)
    for size in (1, 2, 3, 10, 101):
        values = [draw.uniform(-5, 5) for _ in range(size)]
        for percent in (0, 1, 37.5, 50, 90, 99, 100):
            assert percentile(values, percent) == pytest.approx(float(np.percentile(values, percent)))


def test_ttft_gaps_tpot_and_e2e_are_what_they_are_said_to_be() -> None:
    figures = figures_of(Drive([answer([100, 110, 130, 160])], 161 * MS, 0))
    assert figures["ttft_p50_ms"] == 100
    assert figures["itl_p50_ms"] == 20
    assert figures["tpot_p50_ms"] == 20
    assert figures["e2e_p50_ms"] == 161
    assert figures["output_tokens_per_s"] == pytest.approx(4 / 0.161)
    assert figures["requests_per_s"] == pytest.approx(1 / 0.161)


def test_chunks_of_several_tokens_change_tpot_but_not_the_gaps() -> None:
    figures = figures_of(Drive([answer([100, 140], num_tokens=5)], 141 * MS, 0))
    assert (figures["itl_p50_ms"], figures["tpot_p50_ms"], figures["tokens_per_chunk"]) == (40, 10, 2.5)


def test_an_answer_of_one_token_has_a_ttft_and_no_gap() -> None:
    figures = figures_of(Drive([answer([100])], 101 * MS, 0))
    assert figures["ttft_p50_ms"] == 100
    assert not {"itl_p50_ms", "tpot_p50_ms"} & figures.keys()


def test_a_failed_request_counts_as_an_error_and_in_the_time_only() -> None:
    failed = answer([5, 900], index=1, error="HTTP 503: full")
    figures = figures_of(Drive([answer([100, 110]), failed], 1000 * MS, 0))
    assert (figures["num_errors"], figures["num_output_tokens"], figures["ttft_p99_ms"]) == (1, 2, 100)
    assert figures["output_tokens_per_s"] == 2.0


def test_a_drive_that_failed_altogether_still_has_its_counts() -> None:
    figures = figures_of(Drive([answer([], error="refused")], 10 * MS, 5 * MS))
    assert figures == {"wall_s": 0.01, "num_errors": 1, "client_cpu_share": 0.5}


def test_kinds_have_a_ttft_of_their_own() -> None:
    long, short = answer([700, 710], kind="long"), answer([50, 60], kind="short", index=1)
    figures = figures_of(Drive([long, short], 1000 * MS, 0))
    assert (figures["ttft_p50_ms.long"], figures["ttft_p50_ms.short"]) == (700, 50)
    assert metric("ttft_p50_ms.long").label == "TTFT p50 ms, long prompts"


def test_the_latest_sending_of_an_open_loop_is_known() -> None:
    late = [answer([9], index=i, due_ns=i * MS, sent_ns=i * MS + lag * MS) for i, lag in enumerate((0, 3, 1))]
    assert figures_of(Drive(late, 100 * MS, 0))["max_send_lag_ms"] == 3
    assert "max_send_lag_ms" not in figures_of(Drive([answer([9])], 100 * MS, 0))


def test_answers_short_of_what_was_asked_are_counted() -> None:
    short = answer([1, 2, 3], max_output_tokens=8)
    assert figures_of(Drive([short, answer([1, 2], index=1)], 10 * MS, 0))["num_short"] == 1


def test_tokens_are_counted_by_usage_then_by_ids_then_by_chunks() -> None:
    by_chunks = answer([1, 2, 3])
    by_ids = answer([1, 2, 3], token_ids=[1, 2, 3, 4])
    by_usage = answer([1, 2, 3], num_tokens=9, token_ids=[1, 2, 3, 4])
    assert [a.num_output_tokens for a in (by_chunks, by_ids, by_usage)] == [3, 4, 9]
    assert [a.counted_by for a in (by_chunks, by_ids, by_usage)] == ["chunks", "token ids", "usage"]


def test_ratios_are_taken_round_by_round() -> None:
    """Each pair met the machine in the same state; the medians of the two sides might come from different ones."""
    rounds = [
        ({"output_tokens_per_s": 10.0, "wall_s": 1.0}, {"output_tokens_per_s": 5.0, "wall_s": 1.0}),
        ({"output_tokens_per_s": 100.0}, {"output_tokens_per_s": 25.0}),
        ({"output_tokens_per_s": 30.0}, {"output_tokens_per_s": 10.0}),
    ]
    assert ratios(rounds) == {"output_tokens_per_s": (3.0, 2.0, 4.0)}


def test_a_ratio_to_nothing_is_left_out() -> None:
    assert ratios([({"itl_p50_ms": 1.0}, {"itl_p50_ms": 0.0}), ({"itl_p50_ms": 1.0}, {})]) == {}


def test_the_spread_is_median_and_ends() -> None:
    assert spread([4.0, 1.0, 3.0, 2.0]) == (2.5, 1.0, 4.0)


def test_every_figure_has_a_label() -> None:
    made = [answer([1, 2], index=0, due_ns=0), answer([3, 4], index=1, kind="long", due_ns=0)]
    figures = figures_of(Drive(made, 10 * MS, 0))
    assert {key.partition(".")[0] for key in figures} == METRICS.keys()
