"""Where indexing goes on, and from where on entries are read again so that all is known there as it was.

What lives is known from its arrival on, so reading begins again at the oldest arrival of those that live.
"""

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Resume:
    """
    life, sequence, now_ns   of the last entry indexed; life 0: none is
    step, policy             as in `Moment`, after it
    is_lost                  entries are missing, and no keyframe has come since
    from_life, from_sequence reading begins again there
    """

    life: int = 0
    sequence: int = -1
    now_ns: int = 0
    step: int = 0
    policy: str = ""
    is_lost: bool = False
    from_life: int = 1
    from_sequence: int = 0

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Resume":
        return cls(**json.loads(text))

    def covers(self, life: int, sequence: int) -> bool:
        """The entry is indexed."""
        return (life, sequence) <= (self.life, self.sequence)


class NoLongerTheSame(Exception):
    """What was indexed is not what the recording holds now: the index is built anew."""
