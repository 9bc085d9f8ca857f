"""What a comparing verb ends with: equal, diverged, or not comparable, with its figures; and the exit codes."""

import json
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from replay.divergence import Divergence
from replay.refusal import CannotCompare
from replay.rendering import as_text, as_values


class Outcome(StrEnum):
    EQUAL = "equal"
    DIVERGED = "diverged"
    CANNOT_COMPARE = "cannot_compare"


EXIT_CODES = {Outcome.EQUAL: 0, Outcome.DIVERGED: 1, Outcome.CANNOT_COMPARE: 2}


@dataclass(frozen=True, slots=True)
class Verdict:
    """One verb's result on one recording.

    figures        what was compared, in the order in which it is shown
    divergences    the first one, or one per request
    notes          what the reader should know though it changes nothing: a torn tail, steps without a result
    table          lines shown before the figures (one per request)
    refusal        why nothing, or not everything, could be compared
    """

    verb: str
    recording: str
    figures: dict[str, Any]
    divergences: tuple[Divergence, ...] = ()
    notes: tuple[str, ...] = ()
    table: tuple[str, ...] = ()
    refusal: CannotCompare | None = None
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def outcome(self) -> Outcome:
        if self.divergences:
            return Outcome.DIVERGED
        return Outcome.CANNOT_COMPARE if self.refusal else Outcome.EQUAL

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.outcome]

    def as_text(self) -> str:
        """For people: the table, each divergence, the figures on one line, the notes. The refusal goes to stderr."""
        lines = [*self.table]
        for divergence in self.divergences:
            lines += [as_text(divergence), ""]
        figures = ", ".join(f"{name.replace('_', ' ')} {_figure(value)}" for name, value in self.figures.items())
        outcome = str(self.outcome).replace("_", " ")
        lines.append(f"{self.verb}: {outcome}" + (f" ({figures})" if figures else ""))
        lines += [f"  note: {note}" for note in self.notes]
        return "\n".join(lines)

    def as_json(self) -> str:
        return json.dumps(
            {
                "verb": self.verb,
                "recording": self.recording,
                "result": str(self.outcome),
                "exit_code": self.exit_code,
                "figures": self.figures,
                "divergences": [as_values(divergence) for divergence in self.divergences],
                "notes": list(self.notes),
                "reason": self.refusal.reason if self.refusal else "",
                "remedy": self.refusal.remedy if self.refusal else "",
                **self.details,
            },
            indent=2,
        )


def _figure(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.3f}"
    return f"{value:,}" if isinstance(value, int) else str(value)
