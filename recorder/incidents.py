"""Moments worth keeping a segment for, and the pin file that keeps it: `000001.pin` beside `000001.rps`.

A pin is a text file of JSON objects, one a line, so that an operator can read, write and remove it with any tool.
"""

import json
import os
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

from engine.core.decisions import FinishReason, RequestFinished, StarvationSeen, ThrashingBegan
from engine.core.events import AuditCompleted, AuditResult, ExecutorRestarted, KVMismatch, StepFailed
from engine.core.vocabulary import Entry

PIN_SUFFIX = ".pin"
MAX_PIN_BYTES = 64 * 1024  # more reasons than anybody reads


class Incident(StrEnum):
    """Why a segment is pinned without anybody asking for it."""

    STEP_FAILED = "step_failed"
    REQUEST_FAILED = "request_failed"
    STARVATION = "starvation"
    THRASHING = "thrashing"
    ENGINE_CRASH = "engine_crash"  # the engine process died
    REQUEST_KILLS_ENGINE = "request_kills_engine"  # it died again on the same request, which was ended for it
    ENGINE_ERROR = "engine_error"  # an invariant of the engine was broken
    KV_MISMATCH = "kv_mismatch"  # a block did not hold what was written to it
    AUDIT_DIFFERENCE = "audit_difference"  # a finished request was not the same when it was computed again
    SLO_BREACH = "slo_breach"  # a request waited longer for a token than was promised


class Pin(NamedTuple):
    """
    reason        an Incident, or an operator's words
    is_automatic  nobody asked for it: it goes first when the budget for pins is spent
    """

    reason: str
    is_automatic: bool
    wall_ns: int


def incident_in(entry: Entry) -> Incident | None:
    """What the entry tells that should be kept; in the writer thread, for every entry."""
    if isinstance(entry.event, StepFailed):
        return Incident.STEP_FAILED
    if isinstance(entry.event, ExecutorRestarted):
        return Incident.REQUEST_KILLS_ENGINE if entry.event.blamed else Incident.ENGINE_CRASH
    if isinstance(entry.event, KVMismatch):
        return Incident.KV_MISMATCH
    if isinstance(entry.event, AuditCompleted) and entry.event.result != AuditResult.EQUAL:
        return Incident.AUDIT_DIFFERENCE
    for decision in entry.decisions:
        if isinstance(decision, RequestFinished) and decision.reason is FinishReason.FAILED:
            return Incident.REQUEST_FAILED
        if isinstance(decision, StarvationSeen):
            return Incident.STARVATION
        if isinstance(decision, ThrashingBegan):
            return Incident.THRASHING
    return None


def pin_segment(segment: Path, pin: Pin) -> Path:
    """Keep the segment, and say why; returns the pin's path. Raises OSError."""
    path = segment.with_suffix(PIN_SUFFIX)
    line = json.dumps({"reason": pin.reason, "automatic": pin.is_automatic, "wall_ns": pin.wall_ns}) + "\n"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        if os.fstat(descriptor).st_size + len(line) <= MAX_PIN_BYTES:
            os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)
    return path


def pins_of(segment: Path) -> list[Pin]:
    """Why it is pinned; empty when it is not. A line that cannot be read still pins, as an operator's."""
    try:
        with segment.with_suffix(PIN_SUFFIX).open("rb") as file:
            text = file.read(MAX_PIN_BYTES).decode("utf-8", "replace")
    except FileNotFoundError:
        return []
    return [_pin(line) for line in text.splitlines() or [""]]


def _pin(line: str) -> Pin:
    try:
        values: dict[str, Any] = json.loads(line)
        return Pin(str(values["reason"]), bool(values.get("automatic", False)), int(values.get("wall_ns", 0)))
    except (ValueError, KeyError, TypeError, AttributeError):
        return Pin(line, False, 0)
