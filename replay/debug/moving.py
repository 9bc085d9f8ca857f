"""There and back: to a step, a sequence or a time, by steps and entries, and on until something holds."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from replay.debug.answer import Answer, BadCommand, NeverMet
from replay.debug.breakpoints import Breakpoint, OnChange
from replay.debug.expressions import Condition
from replay.debug.looking import headline
from replay.progress import Progress
from replay.time_machine.places import Place
from replay.time_machine.state import State

if TYPE_CHECKING:
    from replay.debug.session import Session


def goto(session: "Session", argument: str) -> Answer:
    """goto 120, 2:120, seq 500, time 1.25, start, end."""
    machine, life = session.machine, session.state.life
    kind, _, value = argument.partition(" ")
    if kind in ("start", "end") and not value:
        return session.stand(machine.at_beginning(life) if kind == "start" else machine.at_end(life))
    if kind in ("seq", "sequence"):
        return session.stand(machine.at_sequence(number(value, "a sequence"), life))
    if kind == "time":
        opened_ns = machine.extent(life).opened_ns
        return session.stand(machine.at_time(opened_ns + round(_seconds(value) * 1e9), life))
    process, colon, step = (value if kind == "step" else argument).rpartition(":")
    life = number(process, "an engine process") if colon else life
    return session.stand(machine.at_step(number(step, "a step"), life))


def forward(session: "Session", argument: str) -> Answer:
    return _by_steps(session, _count(argument))


def back(session: "Session", argument: str) -> Answer:
    return _by_steps(session, -_count(argument))


def by_entries(session: "Session", argument: str) -> Answer:
    is_back = argument.startswith("-")
    num_entries = _count(argument.removeprefix("-")) * (-1 if is_back else 1)
    return session.stand(session.machine.at_sequence(session.state.sequence + num_entries, session.state.life))


def until(session: "Session", argument: str) -> Answer:
    condition = Condition(argument)
    return _on(session, "until", lambda state: condition.text if condition.holds(state) else "")


def reverse_until(session: "Session", argument: str) -> Answer:
    condition = Condition(argument)
    return _reverse(session, "reverse-until", lambda state: condition.text if condition.holds(state) else "")


def go_on(session: "Session", argument: str) -> Answer:
    stops = _stops(session)
    for stop in stops:
        stop.begin(session.state)
    return _on(session, "continue", lambda state: "; ".join([why for stop in stops if (why := stop.hit(state))]))


def reverse_go_on(session: "Session", argument: str) -> Answer:
    """Stops where going forward would stop, the last such place before here."""
    stops = _stops(session)

    def begin(state: State) -> None:
        for stop in stops:
            stop.begin(state)

    return _reverse(
        session,
        "reverse-continue",
        lambda state: "; ".join([why for stop in stops if (why := stop.hit(state))]),
        begin,
    )


def number(text: str, what: str) -> int:
    if not text.strip().isdecimal():
        raise BadCommand(f"{text.strip()!r} is not {what}", "give a number; help says how the command is written")
    return int(text)


def _seconds(text: str) -> float:
    try:
        return float(text.strip().removesuffix("s"))
    except ValueError as error:
        raise BadCommand(
            f"{text!r} is no time", "give seconds since the recording was opened: goto time 1.25"
        ) from error


def _count(argument: str) -> int:
    return number(argument, "a number of steps") if argument else 1


def _by_steps(session: "Session", num_steps: int) -> Answer:
    """To the plan of a step; from between two plans the nearest counts as one step."""
    state = session.state
    order, compare = ("ASC", ">") if num_steps > 0 else ("DESC", "<")
    row = session.machine.database.execute(
        f"SELECT step FROM steps WHERE life = ? AND sequence {compare} ? ORDER BY sequence {order} LIMIT 1 OFFSET ?",
        (state.life, state.sequence, abs(num_steps) - 1),
    ).fetchone()
    if num_steps == 0:
        return session.stand(state)
    if row is None:
        extent = session.machine.extent(state.life)
        raise BadCommand(
            f"there are no {abs(num_steps)} steps {'after' if num_steps > 0 else 'before'} this place",
            f"the steps are {extent.first_step} to {extent.last_step}",
        )
    return session.stand(session.machine.at_step(row[0], state.life))


def _stops(session: "Session") -> list[Breakpoint]:
    stops = list(session.breakpoints.values())
    if not stops:
        raise BadCommand("nothing would make it stop", "set a break or a watch first, or use until or goto end")
    return stops


def _on(session: "Session", verb: str, hit: Callable[[State], str]) -> Answer:
    state = session.state
    return session.stand(*_first(session, verb, session.machine.forward(Place(state.life, state.sequence)), hit))


def _first(session: "Session", verb: str, states: Iterable[State], hit: Callable[[State], str]) -> tuple[State, str]:
    with Progress(verb, "entries") as progress:
        for count, state in enumerate(states, 1):
            progress.at(count)
            why = hit(state)
            if why:
                return state, why
    raise NeverMet(
        f"{verb}: it does not stop before the recording's end", "the place is as before; goto end goes there"
    )


def _reverse(
    session: "Session", verb: str, hit: Callable[[State], str], begin: Callable[[State], None] = lambda state: None
) -> Answer:
    """Stretch after stretch towards the beginning, each gone through forward: the last hit in one is the answer."""
    here, machine, num_seen = session.state, session.machine, 0
    beginning = machine.extent(here.life).first_sequence - 1
    with Progress(verb, "entries") as progress:
        for first, last in machine.backward(Place(here.life, here.sequence)):
            before = machine.at_place(first._replace(sequence=max(beginning, first.sequence - 1)))
            begin(before)
            found = (before, why) if first.sequence == beginning and (why := hit(before)) else None
            for state in machine.forward(first._replace(sequence=before.sequence)):
                if state.sequence > last.sequence:
                    break
                if why := hit(state):
                    found = (state, why)
            num_seen += last.sequence - first.sequence + 1
            progress.at(num_seen)
            if found is not None:
                return session.stand(machine.at_place(Place(here.life, found[0].sequence)), found[1])
    raise NeverMet(f"{verb}: it does not stop before the recording's beginning", "the place is as before")


def watched_lines(session: "Session") -> list[str]:
    return [f"  {each.line(session.state)}" for each in session.breakpoints.values() if isinstance(each, OnChange)]


def standing(session: "Session", why: str) -> Answer:
    """Where it stands now, why, and what is watched."""
    state = session.state
    watched = {each.text: each.value(state) for each in session.breakpoints.values() if isinstance(each, OnChange)}
    values = {"life": state.life, "sequence": state.sequence, "step": state.step, "time_s": state.time_s}
    lines = [headline(state), *([f"  stopped by {why}"] if why else []), *watched_lines(session)]
    return Answer(tuple(lines), {**values, **({"stopped_by": why} if why else {}), "watched": watched})
