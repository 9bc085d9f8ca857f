"""Divergences as text for people and as plain values for JSON. It decides nothing."""

import textwrap
from collections.abc import Iterator
from typing import Any

from replay.divergence import Divergence, EmittedToken, FieldDifference, Raised
from replay.transcript import describe, logprob, name_of

WIDTH = 120
_MARGIN = "  "
_LABEL_COLUMNS = 16
_SIDE_COLUMNS = (WIDTH - len(_MARGIN) - 2 - 24 - 2) // 2  # two sides beside a mark, a field's name and two gaps


def as_text(divergence: Divergence) -> str:
    """The report: where, what on both sides, what it was decided on, what came before, why perhaps, what next."""
    return "\n".join(_report(divergence))


def _report(divergence: Divergence) -> Iterator[str]:
    yield f"DIVERGED ({divergence.classification}) at {place_as_text(divergence)}"
    yield ""
    yield from _sides(divergence)
    yield ""
    yield from _labelled("decided on", divergence.decided_on)
    for line in divergence.circumstances:
        yield from _labelled("circumstances", line)
    for line in divergence.environment:
        yield from _labelled("environment", line)
    for line in divergence.proof.lines() if divergence.proof is not None else ():
        yield from _labelled("proof", line)
    yield from _labelled("likely cause", divergence.likely_cause)
    yield from _labelled("next", divergence.next_command, wrap=False)
    if divergence.before:
        yield ""
        yield f"{_MARGIN}before it:"
        yield from (_MARGIN + cut(line, WIDTH - len(_MARGIN)) for line in divergence.before)


def place_as_text(divergence: Divergence) -> str:
    """Sequence, time, step and which of the entry's records, in one line."""
    place = divergence.place
    parts = [f"sequence {place.sequence}", f"{place.time_ns / 1e6:.3f} ms"]
    if place.step >= 0:
        parts.append(f"step {place.step}")
    if place.request >= 0:
        parts.append(f"request {place.request}")
    if isinstance(divergence.expected, EmittedToken):
        parts.append(f"output token {divergence.expected.output_index}")
    elif place.record_index < 0:
        parts.append("its event")
    elif place.record_index >= place.num_records:
        parts.append(f"after its {place.num_records} decisions: one more")
    else:
        parts.append(f"decision {place.record_index + 1} of {place.num_records}")
    return ", ".join(parts)


def _sides(divergence: Divergence) -> Iterator[str]:
    """Both records field by field; `>` marks what differs, and a long equal record is left out."""
    yield f"{_MARGIN}  {'':<24} {'recorded':<{_SIDE_COLUMNS}} got"
    yield _row(" ", "record", _title(divergence.expected), _title(divergence.got))
    differing = {difference.field for difference in divergence.differences}
    for difference in divergence.differences:
        if difference.field == "record":  # one side has none, or another kind: show each whole
            yield _row(">", "", _whole(difference.expected), _whole(difference.got))
        else:
            yield _row(">", difference.field, *_values(difference))
    if divergence.num_more_differences:
        yield f"{_MARGIN}> … and {divergence.num_more_differences} more"
    if "record" not in differing:
        for name, value in divergence.expected._asdict().items():
            is_equal = not any(field == name or field.startswith((f"{name}[", f"{name}.")) for field in differing)
            if is_equal and not (isinstance(value, tuple) and len(value) > 4):
                yield _row(" ", name, value_as_text(name, value), "=")


def _row(mark: str, name: str, expected: str, got: str) -> str:
    lefts = textwrap.wrap(expected, _SIDE_COLUMNS) or [""]
    rights = textwrap.wrap(got, _SIDE_COLUMNS) or [""]
    num_lines = max(len(lefts), len(rights))
    lefts += [""] * (num_lines - len(lefts))
    rights += [""] * (num_lines - len(rights))
    first = f"{_MARGIN}{mark} {name:<24} {lefts[0]:<{_SIDE_COLUMNS}} {rights[0]}".rstrip()
    rest = [
        f"{_MARGIN}  {'':<24} {left:<{_SIDE_COLUMNS}} {right}".rstrip()
        for left, right in zip(lefts[1:], rights[1:], strict=True)
    ]
    return "\n".join([first, *rest])


def _title(record: Any) -> str:
    return "(nothing)" if record is None else name_of(record)


def _whole(record: Any) -> str:
    if record is None:
        return ""
    return record.error if isinstance(record, Raised) else describe(record)


def _values(difference: FieldDifference) -> tuple[str, str]:
    return value_as_text(difference.field, difference.expected), value_as_text(difference.field, difference.got)


def value_as_text(name: str, value: Any) -> str:
    """One field's value as people read it: digests in hexadecimal, log-probabilities with their bits."""
    if value is None:
        return "(nothing)"
    if name == "hidden_digest":
        return f"{value:016x}"
    if name == "logprob_bits":
        return f"{logprob(value):.7f} ({value:08x})"
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, tuple):
        return "(" + ", ".join(value_as_text("", item) for item in value) + ")"
    return repr(value) if value == "" else str(value)


def _labelled(label: str, text: str, *, wrap: bool = True) -> Iterator[str]:
    width = WIDTH - len(_MARGIN) - _LABEL_COLUMNS
    lines = textwrap.wrap(text, width, max_lines=6, placeholder=" …") if wrap else [text]
    for number, line in enumerate(lines):
        yield f"{_MARGIN}{label if number == 0 else '':<{_LABEL_COLUMNS}}{line}"


def cut(line: str, width: int = WIDTH) -> str:
    """The line within `width` columns; `…` says that there was more."""
    return line if len(line) <= width else line[: width - 2] + " …"


def as_values(divergence: Divergence) -> dict[str, Any]:
    """The report in plain values, ready for JSON."""
    place = divergence.place
    return {
        "sequence": place.sequence,
        "time_ns": place.time_ns,
        "step": place.step,
        "record_index": place.record_index,
        "request": place.request,
        "classification": str(divergence.classification),
        "record": _title(divergence.expected if divergence.expected is not None else divergence.got),
        "expected": record_as_values(divergence.expected),
        "got": record_as_values(divergence.got),
        "differences": [
            {"field": item.field, "expected": plain(item.expected), "got": plain(item.got)}
            for item in divergence.differences
        ],
        "num_more_differences": divergence.num_more_differences,
        "decided_on": divergence.decided_on,
        "before": list(divergence.before),
        "circumstances": list(divergence.circumstances),
        "environment": list(divergence.environment),
        "proof": divergence.proof.values() if divergence.proof is not None else None,
        "likely_cause": divergence.likely_cause,
        "next_command": divergence.next_command,
    }


def record_as_values(record: Any) -> dict[str, Any] | None:
    """A record as its name and its fields."""
    if record is None:
        return None
    return {"record": name_of(record), **{name: plain(value) for name, value in record._asdict().items()}}


def plain(value: Any) -> Any:
    """Bytes as hexadecimal text, tuples as lists, records as objects."""
    if isinstance(value, bytes):
        return value.hex()
    if hasattr(value, "_asdict"):
        return record_as_values(value)
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    return value
