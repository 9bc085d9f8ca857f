"""The verb `shrink`: arguments in, the shrunk recording and a report out."""

import argparse
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.core.limits import Limits
from recorder.format import VAULT_SUFFIX
from replay.refusal import CannotCompare
from replay.shrink.predicate_help import __doc__ as PREDICATES
from replay.span import add_span_options, span_of

if TYPE_CHECKING:
    from replay.shrink.scenario import Caller, Scenario

FAILS = 1
MAX_LISTED = 12  # requests in the report
_MAX_JOBS = 8


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Beside the recording and --json."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = (
        "Leave out of a failing recording whatever the failure does not need: requests first, then lengths, gaps, "
        "cancels\nand limits. The rest is performed by this build's core, on virtual time, with the recorded step "
        "times; by counts\nalone where they decide, with the recorded model where tokens do (that needs the vault). "
        "Exit codes: 1 it fails,\nand the smallest recording that does was written; 0 it does not fail; 2 it cannot "
        "be told."
    )
    parser.epilog = PREDICATES
    parser.add_argument("--fails-with", required=True, metavar="PREDICATE", help="what makes it a failure; see below")
    parser.add_argument("-o", "--output", type=Path, metavar="DIR", help="a new folder (default: REC-shrunk)")
    add_span_options(parser)
    parser.add_argument("--jobs", type=int, metavar="N", help="processes (default: the usable cores; 1 with a model)")
    parser.add_argument("--time-limit", type=float, default=600, metavar="S", help="0: none (default: %(default)s)")
    parser.add_argument(
        "--at-pace", action="store_true", help="let steps take their time: for failures that depend on a real clock"
    )
    parser.add_argument("--model", metavar="NAME|PATH", help="where the recorded model is now, if not where it was")
    parser.add_argument("--backend", metavar="NAME", help="another backend than the recorded one")


def run(args: argparse.Namespace) -> int:
    """The exit code. Raises what `shrink` raises."""
    from dataclasses import replace

    from replay.model_runs.open_model import Overrides
    from replay.shrink.shrink import setting_for, shrink

    recording: Path = args.recording
    target = args.output or recording.resolve().parent / f"{recording.stem}-shrunk"
    if target.exists():
        raise CannotCompare(f"{target} exists already", "name a new folder with -o")
    setting = setting_for(args.fails_with, has_vault=_has_vault(recording), at_pace=args.at_pace)
    setting = replace(setting, overrides=Overrides(args.model, args.backend))
    num_jobs = args.jobs or (1 if setting.uses_model else min(_MAX_JOBS, len(os.sched_getaffinity(0))))
    shrunk = shrink(recording, setting, target, num_jobs=num_jobs, time_limit_s=args.time_limit, span=span_of(args))
    if shrunk is None:
        values: dict[str, Any] = {"verb": "shrink", "recording": str(recording), "result": "does_not_fail"}
        text = (
            f"shrink: performed again as a whole, {recording} does not fail with {args.fails_with}: it was another "
            "build,\n  another machine's pace (--at-pace), or something that is not recorded"
        )
        print(json.dumps({**values, "exit_code": 0}, indent=2) if args.json else text)
        return 0
    values = {
        "verb": "shrink",
        "recording": str(recording),
        "result": "fails",
        "exit_code": FAILS,
        "finding": shrunk.finding._asdict(),
        "before": _sizes(shrunk.before),
        "after": _sizes(shrunk.after),
        "requests": [_request(caller, shrunk.after) for caller in shrunk.after.callers],
        "limits": _uncommon(shrunk.after.limits),
        "is_minimal": shrunk.is_minimal,
        "is_cut_short": shrunk.is_cut_short,
        "tries": shrunk.num_tries,
        "seconds": round(shrunk.seconds, 3),
        "target": str(target),
    }
    print(json.dumps(values, indent=2) if args.json else "\n".join(as_lines(values)))
    return FAILS


def _has_vault(recording: Path) -> bool:
    if recording.is_dir():
        return any(recording.glob(f"*{VAULT_SUFFIX}"))
    return recording.with_suffix(VAULT_SUFFIX).exists()


def _sizes(scenario: "Scenario") -> dict[str, int]:
    callers = scenario.callers
    return {
        "requests": len(callers),
        "prompt_tokens": sum(caller.arrived.num_prompt_tokens for caller in callers),
        "output_tokens": sum(caller.arrived.max_output_tokens for caller in callers),
        "cancels": sum(len(caller.cancels) for caller in callers),
        "limits_not_default": len(_uncommon(scenario.limits)),
    }


def _request(caller: "Caller", scenario: "Scenario") -> dict[str, Any]:
    arrived = caller.arrived
    return {
        "request": caller.number,
        "request_id": arrived.request_id,
        "at_ms": (caller.at_ns - scenario.callers[0].at_ns) / 1e6,
        "prompt_tokens": arrived.num_prompt_tokens,
        "max_output_tokens": arrived.max_output_tokens,
        "cancelled_after_ms": [delay_ns / 1e6 for delay_ns, _event in caller.cancels],
    }


def _uncommon(limits: Limits) -> dict[str, Any]:
    defaults = Limits().to_dict()
    return {name: value for name, value in limits.to_dict().items() if value != defaults[name]}


def as_lines(values: dict[str, Any]) -> Iterator[str]:
    """The report for people, of what --json gives."""
    before, after = values["before"], values["after"]
    sizes = ", ".join(f"{name.replace('_', ' ')} {before[name]:,} → {after[name]:,}" for name in before)
    yield f"shrink: {sizes}"
    yield f"  it fails: {values['finding']['text']}"
    for request in values["requests"][:MAX_LISTED]:
        left = "".join(f", leaves after {ms:,.1f} ms" for ms in request["cancelled_after_ms"])
        yield (
            f"  request {request['request']} ({request['request_id']}) at {request['at_ms']:,.1f} ms: "
            f"{request['prompt_tokens']:,} tokens in, {request['max_output_tokens']:,} out{left}"
        )
    if len(values["requests"]) > MAX_LISTED:
        yield f"  … and {len(values['requests']) - MAX_LISTED} more"
    yield "  limits: " + (", ".join(f"{name} {value}" for name, value in values["limits"].items()) or "the defaults")
    if values["is_cut_short"]:
        yield "  the time limit came first: it may not be minimal (--time-limit)"
    elif values["is_minimal"]:
        yield "  1-minimal: without any one of its requests it does not fail"
    yield f"  {values['tries']:,} tries, {values['seconds']:.1f} s; written to {values['target']}"
