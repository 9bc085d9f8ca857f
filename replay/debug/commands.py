"""Which commands there are: names, how they are written, what they do, and what can be completed in them."""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from replay.debug import around, asking, looking, moving
from replay.debug.answer import Answer, BadCommand
from replay.debug.breakpoints import INVARIANT, OnChange, OnCondition, OnInvariant
from replay.debug.expressions import NAMES

if TYPE_CHECKING:
    from replay.debug.session import Session

EXPRESSION, REQUEST, WATCHED, PLACE, COMMAND = "expression", "request", "watched", "place", "command"


class Command(NamedTuple):
    """
    usage      as it is written
    completes  what its argument is made of; "" for nothing that is known
    """

    run: "Callable[[Session, str], Answer]"
    usage: str
    meaning: str
    completes: str = ""


def _break(session: "Session", argument: str) -> Answer:
    stop = OnInvariant() if argument.strip() == INVARIANT else OnCondition(argument)
    return session.add(stop)


def _watch(session: "Session", argument: str) -> Answer:
    stop = OnChange(argument)
    stop.begin(session.state)
    return session.add(stop)


def _delete(session: "Session", argument: str) -> Answer:
    number = moving.number(argument, "a number of a break or watch")
    if number not in session.breakpoints:
        known = ", ".join(map(str, session.breakpoints)) or "there are none"
        raise BadCommand(f"there is no break or watch {number}", f"known: {known}")
    gone = session.breakpoints.pop(number)
    return Answer((f"deleted {number}: {gone.text}",), {"deleted": number})


def _breaks(session: "Session", argument: str) -> Answer:
    found = {number: stop.text for number, stop in session.breakpoints.items()}
    lines = [f"{number}: {text}" for number, text in found.items()] or ["no break, no watch"]
    return Answer(tuple(lines), {"breaks": {str(number): text for number, text in found.items()}})


def _help(session: "Session", argument: str) -> Answer:
    wanted = ALIASES.get(argument.strip(), argument.strip())
    if wanted in ("expressions", "names"):
        lines = [f"{name:<18} {meaning}" for name, meaning in NAMES.items()]
        return Answer(("Python over these names, run as it is:", *lines), {"names": NAMES})
    if wanted and wanted not in COMMANDS:
        raise _unknown(wanted)
    shown = {wanted: COMMANDS[wanted]} if wanted else COMMANDS
    lines = [f"{command.usage:<32} {command.meaning}" for command in shown.values()]
    return Answer(tuple(lines), {name: command.meaning for name, command in shown.items()})


def _quit(session: "Session", argument: str) -> Answer:
    session.is_over = True
    return Answer((), {})


COMMANDS: dict[str, Command] = {
    "goto": Command(
        moving.goto, "goto STEP | seq N | time S", "to a step (2:STEP in process 2), entry, second; start, end", PLACE
    ),
    "next": Command(moving.forward, "next [N]", "to the next step that is planned, or the Nth"),
    "forward": Command(moving.forward, "forward N", "the same"),
    "back": Command(moving.back, "back [N]", "to the step before, or N steps back"),
    "entry": Command(moving.by_entries, "entry [N]", "by entries instead of steps; entry -1 goes back"),
    "until": Command(moving.until, "until EXPR", "on to the first entry behind which it holds", EXPRESSION),
    "reverse-until": Command(
        moving.reverse_until, "reverse-until EXPR", "back to the last one before here", EXPRESSION
    ),
    "continue": Command(moving.go_on, "continue", "on to the first break or change of what is watched"),
    "reverse-continue": Command(moving.reverse_go_on, "reverse-continue", "back to the last one before here"),
    "break": Command(
        _break,
        "break EXPR | invariant",
        "stop where it begins to hold; where blocks are not as they must be",
        EXPRESSION,
    ),
    "watch": Command(_watch, "watch request|block|tenant X", "tell of it, and stop where it changes", WATCHED),
    "breaks": Command(_breaks, "breaks", "what is set"),
    "delete": Command(_delete, "delete N", "one of those"),
    "state": Command(looking.show_state, "state", "the scheduler's state in full"),
    "running": Command(looking.show_running, "running", "who runs, in order of admission"),
    "waiting": Command(looking.show_waiting, "waiting", "who waits, in the policy's order, and why each does"),
    "blocks": Command(looking.show_blocks, "blocks", "the pool, the free list, what is evicted next"),
    "tenants": Command(looking.show_tenants, "tenants", "what each has, and its counter"),
    "limits": Command(looking.show_limits, "limits", "those in force"),
    "why": Command(asking.why, "why REQUEST", "what it waits for, and who stands before it", REQUEST),
    "preempted": Command(asking.preempted, "preempted REQUEST", "when, for whom, through which chain", REQUEST),
    "request": Command(asking.request, "request REQUEST", "its counts, blocks, and when its status changed", REQUEST),
    "block": Command(asking.block, "block N", "who has it, wrote it last, has read it; its history"),
    "list": Command(around.around, "list [N]", "N entries before and behind this one"),
    "help": Command(_help, "help [COMMAND | expressions]", "this", COMMAND),
    "quit": Command(_quit, "quit", "leave"),
}
ALIASES = {
    "g": "goto",
    "n": "next",
    "f": "forward",
    "b": "back",
    "u": "until",
    "ru": "reverse-until",
    "c": "continue",
    "rc": "reverse-continue",
    "w": "watch",
    "s": "state",
    "l": "list",
    "h": "help",
    "?": "help",
    "q": "quit",
    "exit": "quit",
    "r": "request",
    "step": "next",
}


def command_of(line: str) -> tuple[Command, str]:
    """The command and its argument. Raises BadCommand."""
    name, _, argument = line.strip().partition(" ")
    name = ALIASES.get(name, name)
    if name not in COMMANDS:
        raise _unknown(name)
    return COMMANDS[name], argument.strip()


def _unknown(name: str) -> BadCommand:
    return BadCommand(f"there is no command {name!r}", f"choose of {', '.join(COMMANDS)}")
