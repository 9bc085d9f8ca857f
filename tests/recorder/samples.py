"""Entries made by hand, and recorders over them."""

import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from engine.clock import Clock, SystemClock
from engine.core import decisions as d
from engine.core import events as e
from engine.core.limits import MAX_RECORD_QUEUE_ENTRIES, Limits
from engine.core.sampling_params import SamplingParams
from engine.core.vocabulary import Entry
from recorder.header import Header
from recorder.reader import Recording
from recorder.writer import Recorder

SALT = bytes(range(16))
DIGEST = b"\x80\xff" * 8
U64 = 2**64 - 1


def header(**changes: Any) -> Header:
    fields: dict[str, Any] = {
        "salt": SALT,
        "boot_id": "b00t",
        "reprise_version": "0.1.0",
        "limits": Limits().to_dict(),
        "config": {"model": "m"},
        "environment": {"backend": "scripted"},
    }
    return Header(**{**fields, **changes})


def recorder(directory: Path, *, clock: Clock | None = None, **changes: Any) -> Recorder:
    options: dict[str, Any] = {
        "record_content": False,
        "max_segment_bytes": 64 * 1024 * 1024,
        "sync_interval_ms": 1000,
        "max_queue_entries": MAX_RECORD_QUEUE_ENTRIES,
    }
    return Recorder(directory, header(), clock or SystemClock(), **{**options, **changes})


def one_of_every_kind() -> list[Entry]:
    """Every event and every decision at least once, with extreme values."""
    sampling = SamplingParams(temperature=0.7, top_k=5, seed=2**63, num_logprobs=-1, ignore_eos=True)
    arrived = e.RequestArrived(0, "chatcmpl-é☃", "tenant", -3, 2**62, 17, 9, (DIGEST, b"\0" * 16), sampling)
    events_and_decisions: list[tuple[Any, tuple[Any, ...]]] = [
        (
            arrived,
            (
                d.RequestDeferred(0, d.DeferReason.OUT_OF_BLOCKS, 2, 1, -1, 0),
                d.RequestAdmitted(0, (5, 4, 511), 1, (4,), 9, 3),
                d.StepPlanned(0, ((0, 16, 1),), ((0, 7),), (7,), 1, 0, 8, 511),
            ),
        ),
        (e.RequestArrived(1, "", "", 0, 0, 1, 1, (), SamplingParams()), ()),
        (
            e.RequestCancelled(1, e.CancelCause.DRAIN),
            (d.RequestRejected(2, d.RejectReason.QUEUE_FULL, 9, 8, 70),),
        ),
        (
            e.StepCompleted(0, ((0, e.FinishFlag.STOP, U64, 0xFFC00000),), ((0, DIGEST),), 123, 45),
            (
                d.TokensEmitted(0, ((0, 1),)),
                d.RequestPreempted(0, 0, d.PreemptReason.OUT_OF_BLOCKS, d.PreemptMode.RECOMPUTE, 3, 17, 1),
                d.RequestFinished(0, d.FinishReason.STOP, 17, 1, 16, 1, 0),
                d.ThrashingBegan(500, 4_100, 100),
                d.AdmissionThrottled(35, 7, 121),
                d.ThrashingEnded(180, 4_100, 100),
                d.StarvationSeen(0, d.StarvationCause.PREEMPTED, 0, 3, 3),
                d.RequestDemoted(0, -5, 2**40),
            ),
        ),
        (e.StepFailed(1, "CUDA error: " + "x" * 300), (d.RequestFinished(1, d.FinishReason.FAILED, 1, 0, 0, 0, 1),)),
        (e.StepLaunched(2), ()),
        (e.DrainRequested(), ()),
        (e.ExecutorRestarted(((3, "r3", 10, 2),)), ()),
        (e.KVMismatch(7, U64, 1, 0, (1, 2), e.KVNoticed.SWAP_IN, 1, 3), (d.PrefixIndexDropped(7, 40),)),
        (e.AuditCompleted(0, 17, 3, -1, e.AuditResult.DIFFERENT, ""), ()),
        (e.TimerFired(), (d.RequestFinished(4, d.FinishReason.EXPIRED, 1, 0, 0, 0, 0),)),
        (e.PolicyChanged("fair", (("tenant_weights", (("a", 2), ("é", 1))), ("decode_token_price", 3))), ()),
    ]
    return [
        Entry(sequence, 1000 + sequence, event, decisions)
        for sequence, (event, decisions) in enumerate(events_and_decisions)
    ]


def step_entry(sequence: int, num_rows: int = 16) -> Entry:
    """A step of decoding requests completed and the next one planned: what a loaded server writes all day."""
    requests = range(1000, 1000 + num_rows)
    emitted = tuple([(request, "", U64 - request * 2**40, 0xBF800000 + request) for request in requests])
    return Entry(
        sequence,
        10**15 + sequence * 10**7,
        e.StepCompleted(sequence, emitted, ((1003, DIGEST),), 9_000_000, 400_000),
        (
            d.TokensEmitted(sequence, tuple([(request, 40) for request in requests])),
            d.StepPlanned(
                sequence + 1,
                tuple([(request, 300, 1) for request in requests]),
                ((1005, 77),),
                (),
                num_rows,
                3,
                120,
                496,
            ),
        ),
    )


def small_entries(num_entries: int, first_sequence: int = 0) -> list[Entry]:
    return [
        Entry(sequence, sequence * 10, e.RequestCancelled(sequence, e.CancelCause.CLIENT), ())
        for sequence in range(first_sequence, first_sequence + num_entries)
    ]


def record(directory: Path, entries: Iterable[Entry], **options: Any) -> Path:
    """A closed recording of `entries`; its folder."""
    writer = recorder(directory, **options)
    for entry in entries:
        writer.record(entry)
    writer.close("test")
    return directory


def read(path: Path) -> tuple[list[Entry], Recording]:
    recording = Recording.open(path)
    return list(recording.entries()), recording


def wait_until_written(writer: Recorder, num_entries: int) -> None:
    """Returns when so many entries are on file; fails after 10 s."""
    waiting = threading.Event()
    for _ in range(5000):
        if writer.num_entries >= num_entries:
            return
        waiting.wait(0.002)
    raise AssertionError(f"{writer.num_entries} of {num_entries} entries were written in 10 s")
