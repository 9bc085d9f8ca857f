"""An answer's text as it comes → what is said, and the calls of functions in it, piece by piece.

The grammar has held the answer to the format, so names and places are found where the format puts them; what is no
call, for it was cut off or nobody held it to anything, stays text. It must not know tokens or the API's JSON.
"""

import json
import re
from typing import NamedTuple

from engine.text.tool_format import ToolFormat


class CallDelta(NamedTuple):
    """
    number      of the call in its answer
    name        of the function, with the first piece of a call; "" with the others
    arguments   the next piece of them, JSON
    """

    number: int
    name: str
    arguments: str


class CallReader:
    """`push` each piece of the text, `finish` at the end; each gives the text and the calls that can be told now.

    num_calls   begun so far
    """

    def __init__(self, form: ToolFormat) -> None:
        self._form = form
        self._opening = form.begins + form.opening
        self._read = self._text
        self._rest = ""  # not understood yet
        self._has_said = False
        self._arguments = _JsonObject()
        self.num_calls = 0

    def push(self, text: str) -> tuple[str, list[CallDelta]]:
        self._rest += text
        said: list[str] = []
        calls: list[CallDelta] = []
        while self._read(said, calls):
            pass
        return "".join(said), calls

    def finish(self) -> str:
        """Text that looked as if a call came; what stands behind or within one is none."""
        is_in_a_name = self._read == self._name
        rest = "" if self.num_calls else (self._opening if is_in_a_name else "") + self._rest
        self._rest = ""
        return rest

    def _text(self, said: list[str], calls: list[CallDelta]) -> bool:
        """Up to a call. Whether there is more to read."""
        place, num_held = self._next_call()
        end = place if place >= 0 else len(self._rest) - num_held
        if end > 0:
            said.append(self._rest[:end])
            self._has_said = True
        self._rest = self._rest[end:]
        if place < 0:
            return False
        self._rest = self._rest[len(self._opening) :]
        self._read = self._name
        return True

    def _next_call(self) -> tuple[int, int]:
        """Where one begins, -1 for nowhere; and how many of the last characters may be the beginning of one."""
        opening, rest = self._opening, self._rest
        if not self._form.is_whole:
            return rest.find(opening), _overlap(rest, opening)
        if self._has_said:
            return -1, 0
        return (0 if rest.startswith(opening) else -1), (len(rest) if opening.startswith(rest) else 0)

    def _name(self, said: list[str], calls: list[CallDelta]) -> bool:
        name, between, behind = self._rest.partition(self._form.between)
        if not between:
            return False
        calls.append(CallDelta(self.num_calls, _json_text(name), ""))
        self._rest, self._arguments, self._read = behind, _JsonObject(), self._argument_text
        self.num_calls += 1
        return True

    def _argument_text(self, said: list[str], calls: list[CallDelta]) -> bool:
        num_chars = self._arguments.take(self._rest)
        if num_chars:
            calls.append(CallDelta(self.num_calls - 1, "", self._rest[:num_chars]))
        self._rest = self._rest[num_chars:]
        if not self._arguments.is_whole:
            return False
        self._read = self._behind
        return True

    def _behind(self, said: list[str], calls: list[CallDelta]) -> bool:
        """Between two calls, or behind the last one."""
        next_call = self._form.closing + (self._form.separator or "") + self._form.opening
        call_id = re.match(self._form.call_id, self._rest)  # the model's own; clients are given others
        begins = call_id.end() if call_id else 0
        if self._form.separator is None or not self._rest.startswith(next_call, begins):
            return False
        self._rest = self._rest[begins + len(next_call) :]
        self._read = self._name
        return True


class _JsonObject:
    """Finds the end of a JSON object that comes in pieces."""

    def __init__(self) -> None:
        self._depth = 0
        self._is_in_string = False
        self._is_escaped = False
        self.is_whole = False

    def take(self, text: str) -> int:
        """How many characters of `text` belong to it."""
        for index, char in enumerate(text):
            if self._is_in_string:
                if self._is_escaped:
                    self._is_escaped = False
                elif char == "\\":
                    self._is_escaped = True
                elif char == '"':
                    self._is_in_string = False
            elif char == '"':
                self._is_in_string = True
            elif char in "{[":
                self._depth += 1
            elif char in "}]":
                self._depth -= 1
                if self._depth == 0:
                    self.is_whole = True
                    return index + 1
        return len(text)


def _overlap(text: str, opening: str) -> int:
    """How many of the last characters of `text` may be the first of `opening`."""
    for length in range(min(len(text), len(opening) - 1), 0, -1):
        if opening.startswith(text[-length:]):
            return length
    return 0


def _json_text(text: str) -> str:
    """As the format writes a name; the text itself where nobody held it to that."""
    try:
        name = json.loads(text)
    except ValueError:
        return text
    return name if isinstance(name, str) else text
