"""One request's life as the entries tell it. TTFT, ITL, TPOT and the other spans of time are defined here only.

All times are monotonic nanoseconds: `now_ns` of the entry in which something was decided, except `arrival_ns`, which
the daemon read when it had the whole HTTP request. A span that did not happen is None.
"""

from enum import StrEnum
from itertools import pairwise
from typing import Any

from engine.core.events import RequestArrived


class Phase(StrEnum):
    WAITING = "waiting"  # never admitted
    RUNNING = "running"
    PREEMPTED = "preempted"  # waits again
    ENDED = "ended"


class RequestSpan:
    """
    first_admitted_ns, first_token_ns, last_token_ns, ended_ns   None until they happen
    outcome              finish or reject reason; "" while it lives
    num_output_tokens    emitted so far, by engines before this recording too
    num_cached_tokens    prompt tokens found in the prefix cache at first admission; -1 before
    num_handovers        engines that held it and died, as far as it went on; is_between_engines: since the last of them
    num_swaps            preemptions by swap; num_host_blocks: what it has in the host pool now
    num_prefill_chunks   planned rows other than decodes: those of the first prefill and of recomputing
    deferred_passes      reason → planning passes it waited for it, as far as told by decisions
    deferred_ns          reason → time
    history              with `keep_histories`: (now_ns, record) of its arrival, each decision on it but rows of steps
    chunks               with `keep_histories`: (step, start, count) of its planned rows
    token_times_ns       with `keep_spans`: of every emitted token
    """

    __slots__ = (
        "arrival_ns",
        "chunks",
        "deferral",
        "deferral_since_ns",
        "deferred_ns",
        "deferred_passes",
        "ended_ns",
        "first_admitted_ns",
        "first_token_ns",
        "history",
        "is_between_engines",
        "last_token_ns",
        "max_output_tokens",
        "num_cached_tokens",
        "num_choices",
        "num_handovers",
        "num_host_blocks",
        "num_output_tokens",
        "num_passes_told",
        "num_preemptions",
        "num_prefill_chunks",
        "num_prompt_tokens",
        "num_swaps",
        "operation",
        "outcome",
        "phase",
        "priority",
        "request",
        "request_id",
        "tenant",
        "token_times_ns",
        "trace_context",
    )

    def __init__(self, event: RequestArrived, now_ns: int, *, keep_times: bool, keep_history: bool) -> None:
        self.request = event.request
        self.request_id = event.request_id
        self.tenant = event.tenant
        self.priority = event.priority
        self.arrival_ns = event.arrival_ns
        self.num_prompt_tokens = event.num_prompt_tokens
        self.max_output_tokens = event.max_output_tokens
        self.trace_context = event.trace_context
        self.operation = event.operation
        self.phase = Phase.WAITING
        self.outcome = ""
        self.first_admitted_ns: int | None = None
        self.first_token_ns: int | None = None
        self.last_token_ns: int | None = None
        self.ended_ns: int | None = None
        self.num_output_tokens = event.num_output_tokens
        self.num_cached_tokens = event.num_cached_tokens
        self.num_choices = event.num_choices
        self.num_handovers = event.num_handovers
        self.is_between_engines = False
        self.num_preemptions = 0
        self.num_swaps = 0
        self.num_host_blocks = 0
        self.num_prefill_chunks = 0
        self.deferral = ""
        self.deferral_since_ns = now_ns
        self.num_passes_told = 0
        self.deferred_passes: dict[str, int] = {}
        self.deferred_ns: dict[str, int] = {}
        self.history: list[tuple[int, Any]] | None = [(now_ns, event)] if keep_history else None
        self.chunks: list[tuple[int, int, int]] | None = [] if keep_history else None
        self.token_times_ns: list[int] | None = [] if keep_times else None

    @property
    def ttft_ns(self) -> int | None:
        """Time to first token: arrival → the entry that emitted the first token."""
        return _between(self.arrival_ns, self.first_token_ns)

    @property
    def itl_ns(self) -> list[int] | None:
        """Inter-token latencies: the gap between each two neighbouring tokens; None unless spans are kept."""
        return None if self.token_times_ns is None else [b - a for a, b in pairwise(self.token_times_ns)]

    @property
    def tpot_ns(self) -> float | None:
        """Time per output token: the mean gap, (last - first) / (tokens - 1); None below two tokens."""
        decode_ns = self.decode_ns
        return (
            decode_ns / (self.num_output_tokens - 1) if decode_ns is not None and self.num_output_tokens > 1 else None
        )

    @property
    def queue_ns(self) -> int | None:
        """Arrival → first admission. Waiting after a preemption is not in it: that is part of prefill or decode."""
        return _between(self.arrival_ns, self.first_admitted_ns)

    @property
    def prefill_ns(self) -> int | None:
        """First admission → first token."""
        return _between(self.first_admitted_ns, self.first_token_ns)

    @property
    def decode_ns(self) -> int | None:
        """First token → last token."""
        return _between(self.first_token_ns, self.last_token_ns)

    @property
    def inference_ns(self) -> int | None:
        """First admission → last token: prefill and decode."""
        return _between(self.first_admitted_ns, self.last_token_ns)

    @property
    def e2e_ns(self) -> int | None:
        """Arrival → the entry that ended it."""
        return _between(self.arrival_ns, self.ended_ns)

    def end_deferral(self, num_passes: int, now_ns: int) -> None:
        """The reason that it waited for is over, after so many passes."""
        if self.deferral:
            self.deferred_passes[self.deferral] = self.deferred_passes.get(self.deferral, 0) + num_passes
            self.deferred_ns[self.deferral] = self.deferred_ns.get(self.deferral, 0) + now_ns - self.deferral_since_ns
        self.deferral = ""
        self.deferral_since_ns = now_ns


def _between(begin_ns: int | None, end_ns: int | None) -> int | None:
    return None if begin_ns is None or end_ns is None else end_ns - begin_ns
