"""The verb `debug`: commands from the terminal, from --command, or line by line from stdin."""

import argparse
import json
import re
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from replay.refusal import CannotCompare
from replay.span import StepOf, step_of

if TYPE_CHECKING:  # the machinery is imported when the verb runs
    from replay.debug.session import Session

DESCRIPTION = """\
Time travel in the terminal: go to any step, there and back, until a condition holds, and ask who has a block, why a
request waits, who was preempted for whom. The index that answers is built on first use, in the user's cache folder.

Conditions are Python expressions and can do all that Python can: they run as you, on your own machine.
Exit codes: 0 all was answered, 1 a condition was never met or this version decides otherwise than recorded, 2 a command
or the recording cannot be used. A script ends with its first command that fails.
"""
_PARTS = re.compile(r"""(?:[^;"']|"[^"]*"|'[^']*')+""")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Beside the recording and --json."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = DESCRIPTION
    parser.add_argument(
        "--from",
        dest="from_step",
        type=step_of,
        metavar="[N:]STEP",
        help="begin there (of engine process N, else of the last one) instead of at the beginning",
    )
    parser.add_argument(
        "--command",
        action="append",
        metavar="TEXT",
        help="commands, parted by semicolons: 'goto 120; why req-7'; again for more. Without it: those on stdin, or "
        "the prompt on a terminal",
    )


def run(args: argparse.Namespace) -> int:
    """Raises CannotCompare, RecordingError."""
    from replay.debug.prompt import converse
    from replay.time_machine.time_machine import TimeMachine

    machine = TimeMachine(args.recording)
    try:
        session = _session(machine, args.from_step)
        if args.command is None and sys.stdin.isatty() and not args.json:
            return converse(session)
        return run_script(session, commands_of(args.command if args.command is not None else sys.stdin), args)
    finally:
        machine.close()


def _session(machine: Any, first: StepOf | None) -> "Session":
    from replay.debug.session import Session

    if first is not None:
        return Session(machine, machine.at_step(first.step, first.life))
    return Session(machine, machine.at_first_known())


def commands_of(texts: Iterable[str]) -> Iterator[str]:
    """Parted by semicolons that stand in no quotes; empty ones and lines that begin with # are left out."""
    for text in texts:
        if text.lstrip().startswith("#"):
            continue
        for part in _PARTS.findall(text):
            if part.strip():
                yield part.strip()


def run_script(session: "Session", lines: Iterable[str], args: argparse.Namespace) -> int:
    answers: list[dict[str, Any]] = []
    code, refusal = 0, None
    for line in lines:
        try:
            answer = session.ask(line)
        except CannotCompare as error:
            code, refusal = exit_code_of(error), error
            print(f"debug: {line}: {error.reason}", file=sys.stderr)
            if error.remedy:
                print(f"  remedy: {error.remedy}", file=sys.stderr)
            break
        answers.append({"command": line, **answer.values})
        if not args.json:
            print(f"> {line}", *answer.lines, sep="\n")
        if session.is_over:
            break
    if args.json:
        print(json.dumps(_values(args, answers, code, refusal), indent=2))
    return code


def exit_code_of(error: CannotCompare) -> int:
    from replay.debug.answer import NeverMet
    from replay.time_machine.rewinding import Departed

    return 1 if isinstance(error, NeverMet | Departed) else 2


def _values(
    args: argparse.Namespace, answers: list[dict[str, Any]], code: int, refusal: CannotCompare | None
) -> dict[str, Any]:
    failed = {} if refusal is None else {"reason": refusal.reason, "remedy": refusal.remedy}
    result = ("answered", "not_met", "cannot_compare")[code]
    return {
        "verb": "debug",
        "recording": str(args.recording),
        "result": result,
        "exit_code": code,
        **failed,
        "answers": answers,
    }
