"""`reprise export --pytest`: a recording's failure as a test of a few lines and a fixture of 50 kB at most.

The fixture is a redacted recording: no contents, no names. What fails when the load is served again by the core of
today becomes a test that this does not happen; a recording in which nothing fails becomes one that it is decided as
recorded. No weights are needed: steps are counted, or computed with a small stand-in model where bits decide.
"""

import json
import re
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from engine.core.limits import Limits
from engine.core.vocabulary import Entry
from recorder.errors import RecordingError
from recorder.format import segment_paths
from recorder.header import Header
from replay.check import check
from replay.export.served_again import INVARIANTS, finding_in, serve_again
from replay.lives import Run
from replay.model_runs.redaction import redact
from replay.refusal import CannotCompare
from replay.shrink.evidence import Evidence
from replay.shrink.invariants import Finding
from replay.shrink.predicates import parse
from replay.shrink.scenario import Scenario, scenario_of_stretch
from replay.shrink.written import write_recording
from replay.span import Span
from replay.stretch import Stretch, stretches_of

MAX_FIXTURE_BYTES = 50_000

_FAILS = '''"""Exported by `reprise export --pytest` from the recording {run}: {text}."""

from pathlib import Path

from replay.export.served_again import finding_in


def test_{name}_does_not_fail_again() -> None:
    found = finding_in(Path(__file__).with_name("{name}.rps"), {predicate}{pace})
    assert found is None, found
'''
_EQUAL = '''"""Exported by `reprise export --pytest` from the recording {run}, in which nothing fails."""

from pathlib import Path

from replay.check import check


def test_{name}_is_decided_as_recorded() -> None:
    verdict = check(Path(__file__).with_name("{name}.rps"))
    assert verdict.exit_code == 0, verdict.as_text()
'''


class _Chosen(NamedTuple):
    """
    entries   of the life that the fixture is to be of
    finding   what fails there; None when nothing does
    is_here   it fails when served again by this build, too
    """

    header: Header
    entries: list[Entry]
    finding: Finding | None
    is_here: bool


def export_test(
    recording: Path,
    folder: Path,
    fails_with: str = "",
    *,
    at_pace: bool = False,
    span: Span = Span(),  # noqa: B008  # immutable
) -> dict[str, Any]:
    """Write both files into the folder; what was written. Raises RecordingError, CannotCompare, UnknownPredicate.

    at_pace   its steps take their time, here and in the test: for failures that depend on a real clock
    span      what of the recording; whoever was under way where it begins comes there with the tokens that it had
    """
    predicate = fails_with or INVARIANTS
    name = re.sub(r"\W+", "_", recording.resolve().stem).strip("_").lower() or "recording"
    fixture, test = folder / f"{name}.rps", folder / f"test_{name}.py"
    for path in (fixture, test):
        if path.exists():
            raise RecordingError(f"{path} exists: export into another folder, or move it away")
    chosen = _choose(recording, predicate, at_pace, span)
    if chosen.finding is None and fails_with:
        raise CannotCompare(f"{fails_with!r} does not hold for {recording}, nor when its load is served again")
    with TemporaryDirectory() as scratch:
        data = _fixture(chosen, predicate, Path(scratch), at_pace)
    folder.mkdir(parents=True, exist_ok=True)
    fixture.write_bytes(data)
    template, text = (_FAILS, chosen.finding.text) if chosen.finding else (_EQUAL, "")
    run = recording.resolve().name
    pace = ", at_pace=True" if at_pace else ""
    says = {"run": run, "name": name, "predicate": json.dumps(predicate), "pace": pace, "text": _plain(text)}
    test.write_text(template.format(**says), "utf-8")
    return {
        "fixture": str(fixture),
        "test": str(test),
        "fixture_bytes": len(data),
        "finding": text,
        "notes": _notes(chosen, text),
    }


def _notes(chosen: _Chosen, text: str) -> list[str]:
    if chosen.finding is None:
        return ["nothing fails: the test asserts that it is decided as recorded"]
    here = "fails here" if chosen.is_here else "passes here: this build does not fail"
    return [f"{text}: the test {here}"]


def _choose(recording: Path, predicate: str, at_pace: bool, span: Span) -> _Chosen:
    """The first life that fails when served again, else the first that failed when recorded, else the first."""
    refusals: list[CannotCompare] = []
    stretches = stretches_of(Run.open(recording).lives, span, refusals.append)
    if not stretches:
        raise refusals[0]
    for stretch in stretches:
        chosen = _failing_again(stretch, predicate, at_pace)
        if chosen is not None:
            return chosen
    whole = [
        stretch for stretch in stretches if stretch.under_way is None
    ]  # others' entries need the state before them
    for stretch in whole if not parse(predicate).needs_model else ():
        entries = list(stretch.entries(lambda refusal: None))
        evidence = Evidence(stretch.header, Limits.from_dict(stretch.header.limits), entries)
        finding = parse(predicate).find(evidence)
        if finding is not None:
            return _Chosen(stretch.header, entries, finding, is_here=False)
    if not whole:
        performed = serve_again(_scenario(stretches[0]), INVARIANTS).performed
        return _Chosen(stretches[0].header, performed.entries, None, is_here=False)
    verdict = check(recording, span=span)
    if verdict.exit_code:
        raise CannotCompare(
            "nothing fails, but this build does not decide as recorded, so there is nothing to assert",
            "say with --fails-with what was wrong, or export with the build that recorded",
        )
    return _Chosen(whole[0].header, list(whole[0].entries(lambda refusal: None)), None, is_here=False)


def _scenario(stretch: Stretch) -> Scenario:
    return scenario_of_stretch(stretch, lambda refusal: None, with_contents=False)


def _failing_again(stretch: Stretch, predicate: str, at_pace: bool) -> _Chosen | None:
    scenario = _scenario(stretch)
    performed, finding = serve_again(scenario, predicate, at_pace=at_pace)
    if finding is None:
        return None
    if 0 <= finding.sequence < len(performed.entries):  # who came later has no part in it
        until_ns = performed.entries[finding.sequence].now_ns
        early = replace(scenario, callers=tuple([item for item in scenario.callers if item.at_ns <= until_ns]))
        again = serve_again(early, predicate, at_pace=at_pace)
        if again.finding is not None:
            performed = again.performed
    return _Chosen(stretch.header, performed.entries, finding, is_here=True)


def _fixture(chosen: _Chosen, predicate: str, scratch: Path, at_pace: bool) -> bytes:
    """Whole, or cut behind the finding where that is too large; it must show the finding, too."""
    cuts = [len(chosen.entries)]
    if chosen.finding is not None and chosen.finding.sequence >= 0:
        cuts.append(chosen.finding.sequence + 1)
    size = 0
    for number, num_entries in enumerate(cuts):
        path = _redacted(chosen.header, chosen.entries[:num_entries], scratch / str(number))
        size = path.stat().st_size
        is_shown = not chosen.is_here or finding_in(path, predicate, at_pace=at_pace) is not None
        if size <= MAX_FIXTURE_BYTES and is_shown:
            return path.read_bytes()
    raise CannotCompare(
        f"the fixture has {size:,} bytes, and at most {MAX_FIXTURE_BYTES:,} are for a test",
        "shrink the recording first (reprise shrink), then export the result",
    )


def _redacted(header: Header, entries: list[Entry], scratch: Path) -> Path:
    plain, target = scratch / "plain", scratch / "redacted"
    scratch.mkdir()
    write_recording(plain, header, entries, None)
    redact(plain, target)
    return segment_paths(target)[0]


def _plain(text: str) -> str:
    """On one line of a docstring."""
    return " ".join(text.replace("\\", "/").replace('"', "'").split())[:80]
