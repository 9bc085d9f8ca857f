"""The verbs `bisect` and `trace` on the command line."""

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from replay.refusal import CannotCompare

if TYPE_CHECKING:
    from replay.bisect.revisions import RevisionsVerdict
    from replay.verdict import Verdict

BISECT = """\
The first step where two sides part, then the token position, layer and operation where both can be executed.
REC alone: the recording against this build. REC OTHER: two recordings of the same arrivals. With --good and --bad:
which git revision brought the difference; revisions are judged by their own check and execute of REC, or by --command.
Exit codes: 0 the sides are equal, 1 the first difference is named, 2 it cannot be told.
"""
TRACE = """\
Carry a recording's steps out again and print a running digest over every operation of every row, step by step; with
--step, every operation's digest of each row of that step. Equal lines on two builds mean equal bits up to there.
"""


def add_bisect(parser: argparse.ArgumentParser) -> None:
    """Beside the recording, --json and the options for models."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = BISECT
    parser.add_argument("other", nargs="?", type=Path, metavar="OTHER", help="a second recording of the same arrivals")
    parser.add_argument("--good", metavar="REV", help="a git revision without the difference")
    parser.add_argument("--bad", metavar="REV", help="a git revision with it (default: HEAD)")
    parser.add_argument(
        "--repo", type=Path, metavar="DIR", help="the repository (default: that of these sources); it stays as it is"
    )
    parser.add_argument(
        "--command",
        metavar="SHELL",
        help="judge each revision by this, run in its checkout: exit code 0 good, 125 cannot be told, else bad",
    )


def add_trace(parser: argparse.ArgumentParser) -> None:
    """Beside the recording, --json and the options for models."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = TRACE
    parser.add_argument("--step", type=int, metavar="N", help="this step in full")
    parser.add_argument("--life", type=int, default=0, metavar="N", help="which engine process, 0-based (default: 0)")


def run_bisect(args: argparse.Namespace) -> "Verdict | RevisionsVerdict":
    """Raises CannotCompare for flags that do not go together."""
    from replay.bisect.recordings import bisect_recordings
    from replay.bisect.this_build import bisect_this_build
    from replay.model_runs.open_model import Overrides, open_recorded_model

    if args.good is not None:
        return _revisions(args)
    if args.bad is not None or args.command is not None:
        raise CannotCompare(
            "--bad and --command search git revisions", "give a revision without the difference: --good"
        )
    overrides = Overrides(args.model, args.backend)
    if args.other is not None:
        return bisect_recordings(args.recording, args.other, overrides=overrides, open_runner=open_recorded_model)
    return bisect_this_build(args.recording, overrides=overrides, allow_numeric_drift=args.allow_numeric_drift)


def _revisions(args: argparse.Namespace) -> "RevisionsVerdict":
    from replay.bisect.revisions import bisect_revisions, judge_by_command, judge_by_replay

    if args.other is not None:
        raise CannotCompare("one recording is laid before the revisions", "leave the second one away")
    repository = args.repo or Path(__file__).parent.parent.parent
    recording = args.recording.absolute()
    has_contents = any(recording.glob("*.vault")) if recording.is_dir() else recording.with_suffix(".vault").is_file()
    model = [part for name in ("model", "backend") if (value := getattr(args, name)) for part in (f"--{name}", value)]
    by_replay = judge_by_replay(recording, executes=has_contents, options=tuple(model))
    judge = judge_by_command(args.command) if args.command is not None else by_replay
    return bisect_revisions(repository, args.good, args.bad or "HEAD", judge, recording if has_contents else None)


def run_trace(args: argparse.Namespace) -> int:
    """Prints; raises CannotCompare where a step is not reached."""
    from replay.model_runs.open_model import Overrides, open_recorded_model
    from replay.model_runs.step_trace import StepKey, StepTracer, name_of_place
    from replay.progress import Progress

    tracer = StepTracer(args.recording, Overrides(args.model, args.backend), open_recorded_model)
    with Progress("trace", "steps") as progress:
        if args.step is None:
            links = tracer.chain(progress.at)
            steps = [{"key": list(link.key), "digest": f"{link.digest:016x}"} for link in links]
        else:
            rows, num_layers = tracer.rows(StepKey(args.life, args.step), progress.at)
    if args.step is None:
        lines = [f"life {link.key.life} step {link.key.step:>6}  {link.digest:016x}" for link in links]
        print(json.dumps({"verb": "trace", "steps": steps}) if args.json else "\n".join(lines))
        return 0
    if args.json:
        values = [{**row._asdict(), "digests": [f"{digest:x}" for digest in row.digests]} for row in rows]
        print(json.dumps({"verb": "trace", "num_layers": num_layers, "rows": values}))
        return 0
    for row in rows:
        for place, digest in enumerate(row.digests):
            layer, operation = name_of_place(place, num_layers)
            if digest:
                where = "     " if layer < 0 else f"{layer:>5}"
                print(f"request {row.request:>5} position {row.position:>6} {where} {operation:<18} {digest:016x}")
    return 0
