"""Figures for people: tables at most 120 columns wide."""

from collections import Counter
from collections.abc import Sequence

from daemon.bench.bandwidth import Bandwidth
from daemon.bench.drift import Comparison, Drift
from daemon.bench.plan import Plan
from daemon.bench.rounds import SIDES, Round, by_side
from daemon.bench.statistics import METRICS, Spread, metric, percentile, ratios, spreads

WIDTH = 120
_LABEL_WIDTH, _COLUMN_WIDTH = 33, 29
_MAX_ERROR_LINES = 3


def table(plan: Plan, rounds: Sequence[Round]) -> list[str]:
    """The measurement: a line per metric, a column per endpoint, and one for their ratio."""
    figures = by_side(rounds)
    columns = {side: spreads(of_side) for side, of_side in figures.items()}
    if len(figures) == 2:
        columns["A / B"] = ratios(list(zip(figures["A"], figures["B"], strict=True)))
    keys = sorted({key for column in columns.values() for key in column}, key=_order)
    lines = [*_heading(plan, f"{plan.num_rounds} {'round' if plan.num_rounds == 1 else 'rounds'}"), ""]
    lines.append(_row("", [*columns]))
    lines += [_row(metric(key).label, [_cell(column.get(key)) for column in columns.values()]) for key in keys]
    lines += _bandwidth_rows(rounds, list(figures))
    return [*lines, *_remarks(rounds)]


def drift_table(plan: Plan, drift: Drift) -> list[str]:
    """How many answers differ, and where the first of each differs."""
    lines = [*_heading(plan, "twice, then the same requests one at a time"), ""]
    for name, figures in drift.figures.items():
        rate = (
            f"{figures['output_tokens_per_s']:.1f} output tokens/s" if "output_tokens_per_s" in figures else "no output"
        )
        lines.append(f"{name:<21}{rate}, {figures['num_errors']:.0f} failed")
    lines += [_drift_line(comparison) for comparison in drift.comparisons]
    return [_fit(line) for line in [*lines, *(f"error: {text}" for text in drift.errors[:_MAX_ERROR_LINES])]]


def _heading(plan: Plan, how_often: str) -> list[str]:
    workload = plan.workload
    num_in = sum(request.num_prompt_tokens for request in workload.requests)
    num_out = sum(request.num_output_tokens for request in workload.requests)
    lines = [
        f"{workload.name}: {workload.load}; {how_often}",
        f"asked for: {num_in:,} tokens in, as {plan.form}, and {num_out:,} out "
        f"(seed {workload.seed}, content seed {plan.content_seed})",
        *(f"{side}: {at.url}  {at.model}" for side, at in zip(SIDES, plan.endpoints, strict=False)),
    ]
    return [_fit(line) for line in lines]


def _order(key: str) -> tuple[int, str]:
    """As METRICS has them; a kind's own right behind the whole's."""
    return list(METRICS).index(key.partition(".")[0]), key


def _row(label: str, cells: Sequence[str]) -> str:
    return (f"{label:<{_LABEL_WIDTH}}" + "".join(f"{cell:>{_COLUMN_WIDTH}}" for cell in cells)).rstrip()


def _cell(value: Spread | None) -> str:
    if value is None:
        return "–"
    if value.min == value.max:
        return _number(value.median)
    return f"{_number(value.median)} ({_number(value.min)}–{_number(value.max)})"


def _number(value: float) -> str:
    if value == int(value) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def _bandwidth_rows(rounds: Sequence[Round], sides: Sequence[str]) -> list[str]:
    """Each side's probes, before and after its drives."""
    rows = []
    for label, field in (("memory read by all cores GB/s", 1), ("memory read by one core GB/s", 0)):
        cells = [_cell(spreads([{"": probe[field]} for probe in _probes(rounds, side)])[""]) for side in sides]
        rows.append(_row(label, cells))
    return rows


def _probes(rounds: Sequence[Round], side: str) -> list[Bandwidth]:
    return [probe for one in rounds if one.side == side for probe in (one.before, one.after)]


def _remarks(rounds: Sequence[Round]) -> list[str]:
    """What a reader must know about the figures; after an empty line, if there is anything."""
    remarks = []
    counted = {side: sum((one.counted_by for one in rounds if one.side == side), Counter[str]()) for side in SIDES}
    for side, counts in counted.items():
        if counts["chunks"]:
            remarks.append(
                f"{side}: {counts['chunks']} answers came without usage or token ids: a chunk counts as a token"
            )
    errors = Counter[tuple[str, str]]()
    for one in rounds:
        errors.update({(one.side, text): number for text, number in one.errors.items()})
    remarks += [f"{side}: {number} × {text}" for (side, text), number in errors.most_common(_MAX_ERROR_LINES)]
    if len(errors) > _MAX_ERROR_LINES:
        remarks.append(f"and {len(errors) - _MAX_ERROR_LINES} other errors")
    return ["", *map(_fit, remarks)] if remarks else []


def _drift_line(comparison: Comparison) -> str:
    line = f"{comparison.name:<21}{len(comparison.differences)} of {comparison.num_compared} answers differ"
    if comparison.differences:
        positions = [difference.position for difference in comparison.differences]
        unit = comparison.differences[0].unit
        line += f", from {unit} {min(positions)} on at the earliest ({percentile(positions, 50):g} in the median)"
    if comparison.not_compared:
        line += f"; {len(comparison.not_compared)} not compared, as they failed"
    return line


def _fit(line: str) -> str:
    return line if len(line) <= WIDTH else line[: WIDTH - 1] + "…"
