"""The result of `diff` for people and for programs: the first difference first, then figures, then requests."""

import json
from collections.abc import Iterator
from typing import Any

from replay.diff.diff import Compared
from replay.diff.requests import NOTHING, RANKS, Pair
from replay.rendering import as_text, as_values, cut

MAX_ROWS = 12
_LATENCIES = {"ttft_ms": "TTFT", "itl_ms": "ITL", "e2e_ms": "E2E"}


def text(compared: Compared) -> str:
    return "\n".join(_lines(compared))


def _lines(compared: Compared) -> Iterator[str]:
    for divergence in compared.divergences:
        yield as_text(divergence)
        yield ""
    yield from _alignment(compared)
    for name, (ours, theirs) in compared.limits.items():
        yield f"  limit {name}: {ours} → {theirs}"
    yield ""
    yield from _latencies(compared)
    counts = ", ".join(f"{name} {ours:,} → {theirs:,}" for name, (ours, theirs) in compared.decisions.items())
    yield f"decisions: {counts}"
    yield ""
    yield from _requests(compared.pairs)
    outcome = str(compared.outcome).replace("_", " ")
    alike = " (everybody was served alike)" if compared.divergences and compared.is_served_alike else ""
    by = " and ".join(sorted({pair.compared_by for pair in compared.pairs}))
    figures = f"{compared.num_entries:,} entries alike, {len(compared.pairs)} requests, tokens compared by {by}"
    yield f"diff: {outcome}{alike} ({figures})"
    yield from (f"  note: {note}" for note in notes(compared))


def _alignment(compared: Compared) -> Iterator[str]:
    alignment = compared.alignment
    how = "request id" if alignment.by_id else "order of arrival"
    yield f"{compared.left.path} → {compared.right.path}: {len(alignment.pairs)} requests aligned by {how}"
    for side, numbers in ((compared.left, alignment.left_only), (compared.right, alignment.right_only)):
        if numbers:
            shown = ", ".join(side.parties[number].arrived.request_id for number in numbers[:5])
            yield f"  {len(numbers)} only in {side.path.name}: {shown}{' …' if len(numbers) > 5 else ''}"


def _latencies(compared: Compared) -> Iterator[str]:
    for name, title in _LATENCIES.items():
        ours, theirs = (each[name] for each in compared.latencies)
        if ours is None or theirs is None:
            continue
        cells = [f"p{rank} {ours[f'p{rank}']:,.1f} → {theirs[f'p{rank}']:,.1f}" for rank in RANKS]
        yield f"{title:<5} ms  " + ",  ".join(cells)


def _requests(pairs: tuple[Pair, ...]) -> Iterator[str]:
    """Those with other tokens first, then by how much later or earlier they ended."""
    ordered = sorted(pairs, key=lambda pair: (pair.first_token is None, -abs(pair.delay_ns)))
    shown = [pair for pair in ordered if pair.first_token is not None or pair.delay_ns][:MAX_ROWS]
    if not shown:
        return
    yield f"{'request':<26}{'TTFT, ms':>20}{'E2E, ms':>22}{'output':>12}{'preempted':>11}  first other token"
    for pair in shown:
        yield _row(pair)
    if len(pairs) > len(shown):
        yield f"… and {len(pairs) - len(shown)} more"
    yield ""


def _row(pair: Pair) -> str:
    left, right = pair.left.span, pair.right.span
    name = cut(pair.left.arrived.request_id, 25)
    other = "" if pair.first_token is None else str(pair.first_token)
    output = f"{left.num_output_tokens} → {right.num_output_tokens}"
    preempted = f"{left.num_preemptions} → {right.num_preemptions}"
    ends = "" if left.outcome == right.outcome else f"  {left.outcome} → {right.outcome}"
    return (
        f"{name:<26}{_pair(left.ttft_ns, right.ttft_ns):>20}{_pair(left.e2e_ns, right.e2e_ns):>22}{output:>12}"
        f"{preempted:>11}  {other}{ends}".rstrip()
    )


def _pair(left: int | None, right: int | None) -> str:
    return " → ".join("-" if value is None else f"{value / 1e6:,.0f}" for value in (left, right))


def notes(compared: Compared) -> list[str]:
    """What was not compared, and why."""
    found = [*compared.left.notes, *compared.right.notes]
    if any(pair.compared_by == NOTHING for pair in compared.pairs):
        found.append(
            f"tokens were not compared, only their number: numerics class {compared.left.numerics_class or '(none)'} "
            f"here, {compared.right.numerics_class or '(none)'} there, and not both have contents"
        )
    return list(dict.fromkeys(found))


def as_json(compared: Compared) -> str:
    alignment, refusal = compared.alignment, compared.refusal
    values: dict[str, Any] = {
        "verb": "diff",
        "recording": str(compared.left.path),
        "other": str(compared.right.path),
        "result": str(compared.outcome),
        "exit_code": compared.exit_code,
        "served_alike": compared.is_served_alike,
        "entries_alike": compared.num_entries,
        "aligned_by": "id" if alignment.by_id else "order",
        "only_left": [compared.left.parties[number].arrived.request_id for number in alignment.left_only],
        "only_right": [compared.right.parties[number].arrived.request_id for number in alignment.right_only],
        "divergences": [as_values(divergence) for divergence in compared.divergences],
        "limits": {name: list(pair) for name, pair in compared.limits.items()},
        "decisions": {name: list(pair) for name, pair in compared.decisions.items()},
        "latencies": list(compared.latencies),
        "requests": [pair.values() for pair in compared.pairs],
        "notes": notes(compared),
        "reason": refusal.reason if refusal else "",
        "remedy": refusal.remedy if refusal else "",
    }
    return json.dumps(values, indent=2)
