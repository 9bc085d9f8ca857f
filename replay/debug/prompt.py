"""The interactive line: completion, history, and where one stands at the bottom. It knows commands by their table."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import InMemoryHistory

from replay.debug.breakpoints import INVARIANT
from replay.debug.commands import ALIASES, COMMAND, COMMANDS, EXPRESSION, PLACE, REQUEST, WATCHED
from replay.debug.expressions import NAMES
from replay.debug.looking import headline
from replay.refusal import CannotCompare

if TYPE_CHECKING:
    from prompt_toolkit.input import Input
    from prompt_toolkit.output import Output

    from replay.debug.session import Session

_MAX_OFFERED = 50


def converse(session: "Session", source: "Input | None" = None, output: "Output | None" = None) -> int:
    """Until quit or the end of input; whatever goes wrong in a command is told, and one stays where one was."""
    prompt: PromptSession[str] = PromptSession(
        completer=Completions(session),
        complete_while_typing=False,
        history=InMemoryHistory(),
        bottom_toolbar=lambda: headline(session.state),
        input=source,
        output=output,
    )
    print(headline(session.state), "help lists the commands, Tab completes them", sep="\n")
    while not session.is_over:
        try:
            line = prompt.prompt("(reprise) ")
        except KeyboardInterrupt:
            continue
        except EOFError:
            break
        if line.strip():
            _answer(session, line)
    return 0


def _answer(session: "Session", line: str) -> None:
    try:
        answer = session.ask(line)
        if answer.lines:
            print(*answer.lines, sep="\n")
    except CannotCompare as error:
        print(error.reason, *([f"  {error.remedy}"] if error.remedy else []), sep="\n")
    except KeyboardInterrupt:
        print("interrupted: the place is as before")


class Completions(Completer):
    """Commands, then what fits their argument: requests of this place and those that begin so, names of conditions."""

    def __init__(self, session: "Session") -> None:
        self._session = session

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        before = document.text_before_cursor.lstrip()
        name, space, _ = before.partition(" ")
        if not space:
            yield from _matching(COMMANDS, name)
            return
        command = COMMANDS.get(ALIASES.get(name, name))
        if command is not None:
            word = document.get_word_before_cursor(WORD=command.completes != EXPRESSION)
            yield from _matching(self._offered(command.completes, before, word), word)

    def _offered(self, completes: str, before: str, word: str) -> Iterable[str]:
        if completes == EXPRESSION:
            return [INVARIANT, *NAMES] if before.startswith("break ") else NAMES
        if completes == REQUEST or (completes == WATCHED and " request " in before):
            return self._requests(word)
        if completes == WATCHED and " tenant " in before:
            return [each.name for each in self._session.state.tenants()]
        return {WATCHED: ("request", "block", "tenant"), PLACE: ("seq", "time", "start", "end")}.get(
            completes, [*COMMANDS, "expressions"] if completes == COMMAND else ()
        )

    def _requests(self, word: str) -> list[str]:
        """Of those that begin so, some: the live ones first."""
        live = [request.request_id for request in self._session.state.requests.values()]
        rows = self._session.machine.database.execute(
            "SELECT request_id FROM requests WHERE substr(request_id, 1, ?) = ? LIMIT ?",
            (len(word), word, _MAX_OFFERED),
        )
        return list(dict.fromkeys([*live, *(row[0] for row in rows)]))


def _matching(offered: Iterable[str], word: str) -> Iterable[Completion]:
    for text in offered:
        if text.startswith(word):
            yield Completion(text, start_position=-len(word))
