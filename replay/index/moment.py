"""Where the reading stands: shared by all that make rows of what is read. It knows no records."""

from dataclasses import dataclass


@dataclass(slots=True)
class Moment:
    """
    life       counted from 1
    step       to be planned next; while an entry that plans one is read, that one
    policy     in charge
    """

    life: int = 0
    sequence: int = 0
    now_ns: int = 0
    step: int = 0
    policy: str = ""
