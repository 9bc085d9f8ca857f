"""The refusal to compare: said in advance, with the reason and what to do instead. It knows no verb and no format."""

from engine.core.errors import EngineError


class CannotCompare(EngineError):
    """A comparison could not hold, so none is made.

    reason   what stands in the way, with the figures
    remedy   what would make the comparison possible
    """

    def __init__(self, reason: str, remedy: str = "") -> None:
        super().__init__(f"{reason}: {remedy}" if remedy else reason)
        self.reason = reason
        self.remedy = remedy
