"""The recording's environment beside this one: what differs, and whether bits may be compared.

It imports no torch: versions are read from the installed distributions, so that `show` and `check` stay quick.
"""

import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple

from recorder.header import Header
from replay.refusal import CannotCompare

_DISTRIBUTIONS = ("torch", "numpy")
_DECIDING = ("backend", "dtype", "numeric_environment", "model_sha256", "torch", "numpy", "python", "cpu")
NUMERICS_CLASS = "numerics_class"


class Differences(NamedTuple):
    """lines: one per difference, both sides; versions_differ: another version of Reprise recorded."""

    lines: tuple[str, ...]
    versions_differ: bool


class Agreement(NamedTuple):
    """What the environments allow: bits, or tokens only.

    notes         what to say about it in advance
    differences   of the environments, one line each
    compare_flags   not of a redacted recording: its requests end where the originals did, whatever their tokens are
    """

    compare_bits: bool
    notes: tuple[str, ...]
    differences: tuple[str, ...]
    compare_flags: bool = True


def reprise_version() -> str:
    """Of the installed distribution; "unknown" in a bare source tree."""
    try:
        return version("reprise")
    except PackageNotFoundError:
        return "unknown"


def compare_here(header: Header) -> Differences:
    """What can be told without loading anything: versions and the machine."""
    here: dict[str, Any] = {"python": platform.python_version()}
    for name in _DISTRIBUTIONS:
        if name in header.environment:
            here[name] = version(name)
    lines = differing_lines(header.environment, here)
    is_other_version = bool(header.reprise_version) and header.reprise_version != reprise_version()
    if is_other_version:
        lines = (f"reprise: recorded {header.reprise_version}, here {reprise_version()}", *lines)
    return Differences(lines, is_other_version)


def differing_lines(recorded: dict[str, Any], here: dict[str, Any]) -> tuple[str, ...]:
    """One line per thing that numbers may depend on, that both know, and that differs."""
    return tuple(
        f"{name}: recorded {recorded[name]}, here {here[name]}"
        for name in _DECIDING
        if name in recorded and name in here and recorded[name] != here[name]
    )


def agree(header: Header, numerics_class: str, here: dict[str, Any], *, allow_drift: bool) -> Agreement:
    """Equal numerics classes promise equal bits; others only tokens, and only where the user accepts that.

    Raises CannotCompare, naming both classes and what differs.
    """
    recorded = str(header.environment.get(NUMERICS_CLASS, ""))
    if header.origin == "redacted" and not recorded:
        raise CannotCompare(
            "a redacted recording without results: its tokens are synthetic and nothing was computed from them",
            "make one with reprise redact REC OUT --execute, where the model is",
        )
    lines = differing_lines(header.environment, here)
    if recorded == numerics_class:
        return Agreement(True, _self_test_notes(header.environment, here), lines, header.origin != "redacted")
    what = "; ".join(lines) or "all that the header names is equal, so the kernels' sources differ"
    difference = f"numerics class {recorded or '(none)'} was recorded, this runner is of class {numerics_class}: {what}"
    if not allow_drift:
        raise CannotCompare(
            difference, "replay it where the class is equal, or compare tokens only with --allow-numeric-drift"
        )
    return Agreement(False, (f"only tokens are compared: {difference}",), lines)


def _self_test_notes(recorded: dict[str, Any], here: dict[str, Any]) -> tuple[str, ...]:
    """Where the start-up self-test found that bits depend on the company, a difference need not be a bug."""
    places = [place for place, facts in (("when recorded", recorded), ("here", here)) if facts.get("p4_holds") is False]
    return tuple(f"the kernels' self-test failed {place}: bits may depend on the batch" for place in places)
