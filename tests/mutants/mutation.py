"""One mistake: a replacement of text in one file."""

from typing import NamedTuple


class Mutation(NamedTuple):
    """`old` occurs once in `file`; a replacement that does not is an error, so that the list follows the code."""

    name: str
    file: str
    old: str
    new: str
