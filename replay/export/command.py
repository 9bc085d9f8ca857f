"""The verb `export`: a recording in a format that other tools read. Whole or not at all: a cut file is never left.

Files are for their owner alone, as recordings are: names of requests and tenants are in them.
"""

import argparse
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from recorder.errors import RecordingError
from replay.refusal import CannotCompare
from replay.span import add_span_options, span_of

if TYPE_CHECKING:  # what reads recordings is imported when the verb runs
    from replay.lives import Run

    Write = Callable[[Run, BinaryIO, argparse.Namespace, list[str]], dict[str, int]]


class Format(NamedTuple):
    suffix: str
    meaning: str


FORMATS = {
    "perfetto": Format(".pftrace", "protobuf for ui.perfetto.dev"),
    "chrome": Format(".trace.json", "Chrome trace events, for small recordings"),
    "otlp": Format(".otlp.jsonl", "OpenTelemetry spans, a trace for each request"),
    "jsonl": Format(".jsonl", "every record by name"),
    "parquet": Format(".parquet", "a folder of tables; needs reprise[parquet]"),
    "mooncake": Format(".mooncake.jsonl", "the load, with ids of prompt blocks"),
    "openai-batch": Format(".batch.jsonl", "the load, with prompts"),
    "metrics": Format(".prom", "what /metrics showed at the end, as Prometheus text"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    meanings = "; ".join(f"{name}: {form.meaning}" for name, form in FORMATS.items())
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--format", choices=[*FORMATS], help=meanings)
    what.add_argument("--metrics", action="store_true", help="the figures that /metrics showed, as Prometheus text")
    what.add_argument(
        "--pytest", type=Path, metavar="DIR", help="a test of a few lines and a redacted fixture of 50 kB at most"
    )
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="default: the run's name and the format's suffix, here; -: to stdout"
    )
    parser.add_argument(
        "--tokens-per-id", type=int, default=0, metavar="N", help="mooncake: a multiple of the block size; its own: 512"
    )
    parser.add_argument("--vllm-names", action="store_true", help="otlp: the attributes of vLLM's spans, too")
    parser.add_argument(
        "--fails-with", default="", metavar="PREDICATE", help="pytest: what makes it a failure, as for shrink"
    )
    add_span_options(parser)
    parser.add_argument(
        "--at-pace", action="store_true", help="pytest: steps take their time, for failures that depend on a real clock"
    )


def run(args: argparse.Namespace) -> int:
    """Exit codes: 0 written, 2 it cannot be. Raises CannotCompare, RecordingError, OSError."""
    if args.pytest is not None:
        from replay.export.pytest_fixture import export_test

        exported = export_test(args.recording, args.pytest, args.fails_with, at_pace=args.at_pace, span=span_of(args))
        return _say(args, exported, str(args.pytest))
    if args.from_step is not None or args.to_step is not None:
        raise CannotCompare(
            "--from and --to are for --pytest", "leave them out: other formats hold the whole recording"
        )
    from replay.lives import Run

    recorded, notes = Run.open(args.recording), list[str]()
    args.format = "metrics" if args.metrics else args.format
    target = args.output or f"{args.recording.resolve().stem}{FORMATS[args.format].suffix}"
    counts = _write(recorded, args, target, notes)
    notes += recorded.notes()
    return _say(args, {"format": args.format, **counts, "is_whole": recorded.is_whole, "notes": notes}, target)


def _write(recorded: "Run", args: argparse.Namespace, target: str, notes: list[str]) -> dict[str, int]:
    if args.format == "parquet":
        from replay.export.parquet import write_parquet

        if target == "-":
            raise RecordingError("Parquet is a folder of tables: give it a name with -o")
        with _whole_folder(Path(target)) as folder:
            return write_parquet(recorded, folder)
    if target == "-":
        return _writer(args)(recorded, sys.stdout.buffer, args, notes)
    with _whole_file(Path(target)) as file:
        return _writer(args)(recorded, file, args, notes)


def _writer(args: argparse.Namespace) -> "Write":
    """Imported when it is needed: some formats load libraries."""
    match args.format:
        case "perfetto":
            from replay.export.perfetto import write_perfetto

            return lambda run, file, args, notes: write_perfetto(run, file)
        case "chrome":
            from replay.export.chrome import write_chrome

            return lambda run, file, args, notes: write_chrome(run, file)
        case "otlp":
            from replay.export.otlp import write_otlp

            return lambda run, file, args, notes: write_otlp(run, file, vllm_names=args.vllm_names)
        case "jsonl":
            from replay.export.jsonl import write_jsonl

            return lambda run, file, args, notes: write_jsonl(run, file)
        case "metrics":
            from replay.export.metrics import write_metrics

            return lambda run, file, args, notes: write_metrics(run, file)
        case "mooncake":
            from replay.export.load_traces import write_mooncake

            return lambda run, file, args, notes: write_mooncake(run, file, notes, args.tokens_per_id)
        case _:
            from replay.export.load_traces import write_openai_batch

            return lambda run, file, args, notes: write_openai_batch(run, file, notes)


@contextmanager
def _whole_file(path: Path) -> Iterator[BinaryIO]:
    """Under another name until it is whole; an earlier file of this name is replaced then."""
    part = path.with_name(f"{path.name}.part")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb", 1 << 20) as file:
            yield file
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def _whole_folder(path: Path) -> Iterator[Path]:
    if path.exists():
        raise RecordingError(f"{path} exists: tables go into a folder of their own")
    part = path.with_name(f"{path.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    try:
        yield part
        part.replace(path)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _say(args: argparse.Namespace, values: dict[str, Any], target: str) -> int:
    """What was written; on stderr where the export itself goes to stdout."""
    out = sys.stderr if target == "-" else sys.stdout
    notes = values.get("notes", [])
    if args.json:
        print(
            json.dumps({"verb": "export", "recording": str(args.recording), "target": target, **values}, indent=2),
            file=out,
        )
        return 0
    figures = [f"{count:,} {name.replace('_', ' ')}" for name, count in values.items() if type(count) is int]
    print(f"{target}: {', '.join(figures)}" if figures else target, file=out)
    for note in notes:
        print(f"  note: {note}", file=out)
    return 0
