"""The formats are read as they are published, and fitted to a small model without losing bursts or prefixes."""

from pathlib import Path

import pytest

from replay.simulate.arrivals import NS_PER_S, Arrival, Fitting, UnusableTrace, fitted
from replay.simulate.trace_files import read_trace
from tests.replay.simulate import samples


def test_azure_times_keep_their_seventh_decimal_and_ties_their_order(tmp_path: Path) -> None:
    arrivals = read_trace(samples.azure(tmp_path))
    assert [arrival.at_ns for arrival in arrivals] == [0, 4_314_579_000, 4_314_579_000, 20_653_319_410_100]
    assert [(arrival.num_prompt_tokens, arrival.num_output_tokens) for arrival in arrivals] == [
        (374, 44),
        (396, 109),
        (7, 1),
        (2048, 12),
    ]


def test_mooncake_prefixes_come_along_and_a_piece_divided_by_32_is_half_a_kilotoken_no_more(tmp_path: Path) -> None:
    first, second, third = fitted(read_trace(samples.mooncake(tmp_path)), Fitting(divide_prompt=32, divide_output=32))
    assert (first.num_prompt_tokens, first.num_output_tokens, first.prefix_ids) == (48, 10, (0, 1, 2))
    assert (second.at_ns, second.num_prompt_tokens, second.num_output_tokens) == (3 * NS_PER_S, 50, 2)
    assert (third.num_prompt_tokens, third.num_output_tokens, third.tokens_per_id) == (32, 1, 16)


def test_a_division_that_splits_prefixes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnusableTrace, match="choose a divisor of 512"):
        fitted(read_trace(samples.mooncake(tmp_path)), Fitting(divide_prompt=10))


def test_servegen_tenants_are_drawn_as_their_rates_say_and_always_the_same(tmp_path: Path) -> None:
    arrivals = read_trace(samples.servegen(tmp_path))
    assert arrivals == read_trace(samples.servegen(tmp_path))
    assert arrivals == sorted(arrivals, key=lambda arrival: arrival.at_ns)
    by_tenant = {tenant: [a for a in arrivals if a.tenant == tenant] for tenant in ("7", "9")}
    assert len(by_tenant["7"]) == pytest.approx(300, rel=0.2)
    assert len(by_tenant["9"]) == pytest.approx(1_200, rel=0.2)
    assert all(arrival.at_ns < 600 * NS_PER_S for arrival in by_tenant["7"]), "a silent window has no arrivals"
    assert {arrival.num_prompt_tokens for arrival in by_tenant["9"]} == {50}
    assert min(arrival.num_output_tokens for arrival in by_tenant["7"]) == 1, "an output of none is one token"
    assert all(20 <= arrival.num_output_tokens <= 120 for arrival in by_tenant["9"])


def test_a_part_of_the_day_is_drawn_as_it_would_be_in_the_whole(tmp_path: Path) -> None:
    path = samples.servegen(tmp_path)
    part = fitted(read_trace(path, from_s=600, to_s=1_200), Fitting(from_s=600, to_s=1_200))
    whole = [arrival for arrival in read_trace(path) if arrival.at_ns >= 600 * NS_PER_S]
    assert [a.num_output_tokens for a in part] == [a.num_output_tokens for a in whole]
    assert part[0].at_ns == 0


def test_rates_are_divided_alike(tmp_path: Path) -> None:
    path = samples.servegen(tmp_path)
    tenants = [arrival.tenant for arrival in read_trace(path, divide_rate=4)]
    assert tenants.count("7") == pytest.approx(75, rel=0.3)
    assert tenants.count("9") == pytest.approx(300, rel=0.3)


def test_stretching_repeating_and_cutting_keep_order_gaps_and_count() -> None:
    raw = [Arrival(at_s * NS_PER_S, 10, 5) for at_s in (1, 2, 2, 7)]
    times = [arrival.at_ns / NS_PER_S for arrival in fitted(raw, Fitting(stretch=10, repeat=2))]
    assert times == [0, 10, 10, 60, 75, 85, 85, 135]
    cut = fitted(raw, Fitting(from_s=2, to_s=7, num_requests=1))
    assert [arrival.at_ns for arrival in cut] == [0]
    with pytest.raises(UnusableTrace, match="no arrival from 8 s to 9 s"):
        fitted(raw, Fitting(from_s=8, to_s=9))


def test_a_client_who_does_not_know_allows_more_than_it_uses_but_no_more_than_the_context_has() -> None:
    long, short = fitted([Arrival(0, 90, 30), Arrival(0, 10, 5)], Fitting(max_output_tokens=64, max_model_len=100))
    assert (long.max_output_tokens, long.num_output_tokens) == (10, 10)
    assert (short.max_output_tokens, short.num_output_tokens) == (64, 5)


def test_classes_are_drawn_by_place_and_all_occur() -> None:
    arrivals = fitted([Arrival(0, 1, 1)] * 100, Fitting(num_classes=4))
    assert [a.priority for a in arrivals] == [
        a.priority for a in fitted([Arrival(0, 1, 1)] * 100, Fitting(num_classes=4))
    ]
    assert {arrival.priority for arrival in arrivals} == {0, 1, 2, 3}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "begins with ''"),
        (b"a,b,c\n1,2,3\n", "begins with 'a,b,c'"),
        (b"TIMESTAMP,ContextTokens,GeneratedTokens\nyesterday,1,2\n", "line 2: timestamp is 'yesterday'"),
        (b'{"timestamp": 0}\n', "has the fields timestamp"),
        (b"\xff\xfe", "is no text"),
    ],
)
def test_what_is_no_trace_is_refused_with_its_beginning(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "trace"
    path.write_bytes(content)
    with pytest.raises(UnusableTrace, match=said):
        read_trace(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnusableTrace, match=r"nowhere\.csv cannot be read"):
        read_trace(tmp_path / "nowhere.csv")
