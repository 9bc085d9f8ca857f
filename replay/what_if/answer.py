"""The answer of `what-if`: three runs side by side, where they part, and whether the prediction is to be trusted."""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from replay.rendering import cut, record_as_values
from replay.transcript import describe, name_of
from replay.what_if.counterfactual import Fork
from replay.what_if.outcome import RANKS
from replay.what_if.trust import Trust

TRUSTED, NOT_TRUSTED = 0, 1
_COLUMNS = (("recorded", "recorded"), ("control", "control"), ("asked", "what if"))
_SHARES = {
    "good_share": "good, of all requests",
    "extra_tokens_share": "computed again",
    "cache_hit_share": "prompt found in the cache",
}
_FIGURES = {
    "goodput_rps": "good requests a second",
    "fairness": "fairness (Jain)",
    "preemptions": "preemptions",
    "steps": "steps",
    "seconds": "seconds",
}
_LATENCIES = {"ttft_ms": "TTFT", "itl_ms": "ITL", "e2e_ms": "E2E"}


class Changed(NamedTuple):
    recorded: Any
    asked: Any


@dataclass(frozen=True, slots=True)
class Answered:
    """
    changes       limit → recorded and asked for
    is_executed   the model ran: times are this machine's, now
    recorded, control, asked
                  values of `outcome.py`
    redealt       values of the recorded settings and of those asked for, each with the noise dealt out otherwise
    fork          the first decision that does something else; None where there is none, or where steps were executed
    opened_ns     the time that the fork's is counted from
    done          decisions by name, recorded and as asked
    """

    recording: str
    changes: dict[str, Changed]
    is_executed: bool
    recorded: dict[str, Any]
    control: dict[str, Any]
    asked: dict[str, Any]
    redealt: tuple[tuple[dict[str, Any], ...], tuple[dict[str, Any], ...]]
    trust: Trust
    fork: Fork | None
    opened_ns: int
    done: tuple[Counter[str], Counter[str]]
    notes: tuple[str, ...]
    seconds: float

    @property
    def exit_code(self) -> int:
        """0 trusted, 1 not."""
        return TRUSTED if self.trust.holds else NOT_TRUSTED

    def as_text(self) -> str:
        return "\n".join(_lines(self))

    def as_json(self) -> str:
        fork = self.fork
        values = {
            "verb": "what-if",
            "recording": self.recording,
            "result": "trusted" if self.trust.holds else "not_trusted",
            "exit_code": self.exit_code,
            "changes": {name: changed._asdict() for name, changed in self.changes.items()},
            "executed": self.is_executed,
            "recorded": self.recorded,
            "control": self.control,
            "what_if": self.asked,
            "redealt": {"recorded": list(self.redealt[0]), "what_if": list(self.redealt[1])},
            "trust": self.trust.as_values(),
            "first_difference": fork
            and {
                "sequence": fork.sequence,
                "time_ns": fork.now_ns - self.opened_ns,
                "event": name_of(fork.event),
                "recorded": record_as_values(fork.expected),
                "what_if": record_as_values(fork.got),
            },
            "decisions": {"recorded": dict(self.done[0]), "what_if": dict(self.done[1])},
            "notes": list(self.notes),
            "seconds": self.seconds,
        }
        return json.dumps(values, indent=2)


def _lines(answer: Answered) -> Iterator[str]:
    changes = ", ".join(f"{name} {it.recorded} → {it.asked}" for name, it in answer.changes.items())
    yield f"what if: {changes or 'the recorded settings, by this code'}"
    yield ""
    yield from _table(answer)
    tenants = answer.recorded["tenants"]
    if len(tenants) > 1:
        yield ""
        yield from _tenants(tenants, answer.asked["tenants"])
    yield ""
    yield from _decisions(answer)
    yield ""
    yield answer.trust.as_text()
    yield f"{'executed' if answer.is_executed else 'predicted'} in {answer.seconds:.1f} s"
    yield from (f"  note: {note}" for note in answer.notes)


def _table(answer: Answered) -> Iterator[str]:
    runs = [getattr(answer, attribute) for attribute, _title in _COLUMNS]
    has_ranges = bool(answer.redealt[0])
    titles = [title for _attribute, title in _COLUMNS]
    yield (
        f"{'':<26}{titles[0]:>10}{titles[1]:>10}{'by chance' if has_ranges else '':>20}{titles[2]:>10}"
        f"{'by chance' if has_ranges else '':>20}{'of recorded':>13}"
    )
    for latency, title in _LATENCIES.items():
        for rank in RANKS:
            yield _row(answer, f"{title} p{rank}, ms", lambda run: _at(run[latency], rank), "{:,.1f}")  # noqa: B023  # at once
    for name, title in _FIGURES.items():
        yield _row(answer, title, lambda run: run[name], "{:,.2f}")  # noqa: B023  # called at once
    for name, title in _SHARES.items():
        yield _row(answer, title, lambda run: run[name], "{:.1%}")  # noqa: B023  # called at once
    for run, (_attribute, title) in zip(runs, _COLUMNS, strict=True):
        ends = ", ".join(f"{reason} {count}" for reason, count in {**run["finished"], **run["rejected"]}.items())
        yield f"{'ends, ' + title:<28}  {ends}"


def _at(values: dict[str, float] | None, rank: int) -> float | None:
    return None if values is None else values[f"p{rank}"]


def _row(answer: Answered, title: str, of: Callable[[dict[str, Any]], Any], form: str) -> str:
    recorded, control, asked = of(answer.recorded), of(answer.control), of(answer.asked)
    by_chance = [_range([of(run) for run in (own, *redealt)], form) for own, redealt in
                 zip((answer.control, answer.asked), answer.redealt, strict=True)]  # fmt: skip
    line = (
        f"{title:<26}{_cell(recorded, form):>10}{_cell(control, form):>10}{by_chance[0]:>20}"
        f"{_cell(asked, form):>10}{by_chance[1]:>20}"
    )
    return (line + (f"{asked / recorded:>12.2f}×" if recorded and asked is not None else "")).rstrip()


def _cell(value: float | None, form: str) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else (f"{value:,.0f}" if value >= 1_000 else form.format(value))


def _range(values: list[Any], form: str) -> str:
    """From the smallest to the largest, where chance makes a difference."""
    known = [value for value in values if value is not None]
    if len(known) < 2:
        return ""
    least, most = _cell(min(known), form), _cell(max(known), form)
    return "" if least == most else f"{least} … {most}"


def _tenants(recorded: dict[str, Any], asked: dict[str, Any]) -> Iterator[str]:
    yield f"{'tenant':<20}{'requests':>9}{'TTFT p50, ms':>22}{'TTFT p99, ms':>22}{'ITL p99, ms':>22}{'good':>16}"
    for tenant, was in recorded.items():
        come = asked.get(tenant, was)
        pairs = [(was[name] and was[name][rank], come[name] and come[name][rank]) for name, rank in _TENANT_COLUMNS]
        cells = "".join(f"{_cell(left, '{:,.0f}')} → {_cell(right, '{:,.0f}')}".rjust(22) for left, right in pairs)
        good = f"{was['good_share']:.0%} → {come['good_share']:.0%}"
        yield f"{cut(tenant or '(none)', 19):<20}{was['requests']:>9}{cells}{good:>16}"


_TENANT_COLUMNS = (("ttft_ms", "p50"), ("ttft_ms", "p99"), ("itl_ms", "p99"))


def _decisions(answer: Answered) -> Iterator[str]:
    fork = answer.fork
    if fork is not None:
        time_ms = (fork.now_ns - answer.opened_ns) / 1e6
        place = f"sequence {fork.sequence}, {time_ms:,.3f} ms, on {name_of(fork.event)}"
        yield f"the first decision that differs: {place}"
        yield cut(f"  recorded  {_record(fork.expected)}")
        yield cut(f"  what if   {_record(fork.got)}")
    elif not answer.is_executed:
        yield "every decision does what the recorded one did"
    was, come = answer.done
    counts = ", ".join(f"{name} {was[name]:,} → {come[name]:,}" for name in sorted({*was, *come}))
    yield f"decisions: {counts}"


def _record(record: Any) -> str:
    if record is None:
        return "(nothing more)"
    request = getattr(record, "request", None)
    return f"{name_of(record)} " + (f"request {request}: " if request is not None else "") + describe(record)
