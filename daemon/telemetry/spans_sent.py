"""How many OpenTelemetry spans were sent, and how many were not: a collector that is slow or away costs spans only."""


class SpansSent:
    """Each count is moved by one thread alone.

    num_taken     given to the sender
    num_dropped   not given to it, since its queue was full
    num_exported, num_failed   by the sender's thread: taken by the collector, given up
    """

    def __init__(self) -> None:
        self.num_taken = 0
        self.num_dropped = 0
        self.num_exported = 0
        self.num_failed = 0

    @property
    def num_waiting(self) -> int:
        return self.num_taken - self.num_exported - self.num_failed

    @property
    def by_fate(self) -> dict[str, float]:
        return {"exported": self.num_exported, "failed": self.num_failed, "dropped": self.num_dropped}
