"""The questions that every scheduling policy answers. A policy is pure: same requests, same answers."""

from collections.abc import Sequence
from typing import Protocol

from engine.core.request import Request


class Policy(Protocol):
    """Names and ranks are all that the scheduler takes from a policy; it never changes a request."""

    name: str

    def rank(self, request: Request) -> tuple[int, ...]:
        """Order of the waiting, lowest first; taken when the request arrives, total over all requests."""
        ...

    def victim(self, running: Sequence[Request], beneficiary: Request) -> Request:
        """Who gives up its blocks so that `beneficiary`, which is running, gets one. May be `beneficiary` itself."""
        ...

    def victims_for_admission(self, running: Sequence[Request], candidate: Request) -> list[Request]:
        """Running requests that may be preempted to admit `candidate`, first choice first; empty: none may."""
        ...
