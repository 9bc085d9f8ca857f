"""Answers → figures: what each word in the table means is defined here and nowhere else.

TTFT    sending the request → its first output (a chunk with a token)
ITL     between two chunks with output of one answer. A chunk may hold several tokens: see "tokens per chunk"
TPOT    first output → last output, divided by the tokens after the first: an answer's mean gap, however it was chunked
e2e     sending the request → the end of its answer
Percentiles are exact: of all values, linear between the two closest ranks. Failed requests count in `errors` and in
the time that passed, and nowhere else.
"""

from collections.abc import Sequence
from typing import NamedTuple

from daemon.bench.client import Answer
from daemon.bench.drive import Drive

Figures = dict[str, float]  # metric key → value; a metric that could not be measured is absent

_PERCENTILES = (50, 90, 99)


class Metric(NamedTuple):
    """
    is_compared   two endpoints are compared by it, as a ratio
    """

    label: str
    is_compared: bool = True


METRICS: dict[str, Metric] = {
    "output_tokens_per_s": Metric("output tokens/s"),
    "requests_per_s": Metric("requests/s"),
    **{
        f"{name}_p{percent}_ms": Metric(f"{label} p{percent} ms")
        for name, label in (("ttft", "TTFT"), ("itl", "ITL"), ("tpot", "TPOT"), ("e2e", "e2e"))
        for percent in _PERCENTILES
    },
    "wall_s": Metric("wall time s", is_compared=False),
    "num_prompt_tokens": Metric("prompt tokens", is_compared=False),
    "num_output_tokens": Metric("output tokens", is_compared=False),
    "tokens_per_chunk": Metric("tokens per chunk", is_compared=False),
    "num_errors": Metric("requests that failed", is_compared=False),
    "num_short": Metric("answers short of max_tokens", is_compared=False),
    "max_send_lag_ms": Metric("latest sending, ms late", is_compared=False),
    "client_cpu_share": Metric("CPU of this client, cores", is_compared=False),
}


def metric(key: str) -> Metric:
    """Of a key in METRICS, or of one for a kind of request: ttft_p50_ms.long."""
    name, _, kind = key.partition(".")
    found = METRICS[name]
    return found._replace(label=f"{found.label}, {kind} prompts") if kind else found


def figures_of(drive: Drive) -> Figures:
    """Everything that can be said of one drive."""
    whole = [answer for answer in drive.answers if not answer.error]
    wall_s = drive.wall_ns / 1e9
    figures: Figures = {
        "wall_s": wall_s,
        "num_errors": len(drive.answers) - len(whole),
        "client_cpu_share": drive.cpu_ns / drive.wall_ns if drive.wall_ns else 0.0,
    }
    lags = [answer.sent_ns - answer.due_ns for answer in drive.answers if answer.due_ns is not None]
    if lags:
        figures["max_send_lag_ms"] = max(lags) / 1e6
    return figures | (_figures_of_whole(whole, wall_s) if whole and wall_s else {})


def _figures_of_whole(answers: Sequence[Answer], wall_s: float) -> Figures:
    num_output_tokens = sum(answer.num_output_tokens for answer in answers)
    figures: Figures = {
        "output_tokens_per_s": num_output_tokens / wall_s,
        "requests_per_s": len(answers) / wall_s,
        "num_prompt_tokens": sum(answer.num_prompt_tokens for answer in answers),
        "num_output_tokens": num_output_tokens,
        "tokens_per_chunk": num_output_tokens / sum(len(answer.chunk_ns) for answer in answers),
        "num_short": sum(answer.num_output_tokens < answer.max_output_tokens for answer in answers),
        **_percentiles("ttft", [ttft_ns(answer) for answer in answers]),
        **_percentiles("itl", [gap for answer in answers for gap in gaps_ns(answer)]),
        **_percentiles("tpot", [tpot for answer in answers if (tpot := tpot_ns(answer)) is not None]),
        **_percentiles("e2e", [answer.ended_ns for answer in answers]),
    }
    kinds = sorted({answer.kind for answer in answers})
    if len(kinds) > 1:
        for kind in kinds:
            ttft = _percentiles("ttft", [ttft_ns(answer) for answer in answers if answer.kind == kind])
            figures |= {f"{key}.{kind}": value for key, value in ttft.items()}
    return figures


def ttft_ns(answer: Answer) -> int:
    return answer.chunk_ns[0]


def gaps_ns(answer: Answer) -> list[int]:
    return [later - earlier for earlier, later in zip(answer.chunk_ns, answer.chunk_ns[1:], strict=False)]


def tpot_ns(answer: Answer) -> float | None:
    """None for an answer of one token, which has no gap."""
    if answer.num_output_tokens < 2:
        return None
    return (answer.chunk_ns[-1] - answer.chunk_ns[0]) / (answer.num_output_tokens - 1)


def percentile(values: Sequence[float], percent: float) -> float:
    """Linear between the two closest ranks; `values` in any order, at least one."""
    ordered = sorted(values)
    rank = (len(ordered) - 1) * percent / 100
    below = int(rank)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (rank - below)


def _percentiles(name: str, values_ns: Sequence[float]) -> Figures:
    if not values_ns:
        return {}
    return {f"{name}_p{percent}_ms": percentile(values_ns, percent) / 1e6 for percent in _PERCENTILES}


class Spread(NamedTuple):
    """Of one figure over the rounds."""

    median: float
    min: float
    max: float


def spread(values: Sequence[float]) -> Spread:
    return Spread(percentile(values, 50), min(values), max(values))


def spreads(rounds: Sequence[Figures]) -> dict[str, Spread]:
    """Each metric over the rounds in which it could be measured."""
    keys = dict.fromkeys(key for figures in rounds for key in figures)
    return {key: spread([figures[key] for figures in rounds if key in figures]) for key in keys}


def ratios(rounds: Sequence[tuple[Figures, Figures]]) -> dict[str, Spread]:
    """First endpoint / second, round by round, as both met the machine in the same state; then their spread."""
    by_round = [
        {
            key: first[key] / second[key]
            for key in first
            if metric(key).is_compared and second.get(key)  # nothing is a multiple of 0
        }
        for first, second in rounds
    ]
    return spreads(by_round)
