"""The three questions that every scheduling policy answers. A policy is pure: same requests, same answers."""

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

    def split(self, token_budget: int, running: Sequence[Request]) -> list[tuple[Request, int]]:
        """How many tokens each running request computes in the next step: positive counts, ≤ budget in sum."""
        ...


def decodes_first(token_budget: int, running: Sequence[Request]) -> list[tuple[Request, int]]:
    """Every decoding request gets its token; prefills under way share what is left in order of their ranks.

    So a running stream gets one token in every step, whatever is being prefilled beside it (chunked prefill as in
    Agrawal et al., Sarathi-Serve, OSDI 2024). Limits guarantee max_num_batched_tokens ≥ max_num_seqs.
    """
    shares: list[tuple[Request, int]] = []
    prefills: list[Request] = []
    for request in running:
        if request.num_uncomputed_tokens == 1:
            shares.append((request, 1))
        else:
            prefills.append(request)
    left = token_budget - len(shares)
    for request in sorted(prefills, key=lambda request: request.rank):
        count = min(left, request.num_uncomputed_tokens)
        if count <= 0:
            break
        shares.append((request, count))
        left -= count
    return shares
