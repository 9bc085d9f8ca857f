"""One request as the core sees it: counts, blocks and a status that only decisions can change.

There is no prefill status: in each step `num_computed_tokens` catches up with `num_tokens`, which covers chunked
prefill, prefix hits and recomputing after preemption. It must not know tokens, nor who else runs.
"""

from enum import StrEnum

from engine.core.decisions import (
    Decision,
    DeferReason,
    RequestAdmitted,
    RequestFinished,
    RequestPreempted,
)
from engine.core.events import RequestArrived


class Status(StrEnum):
    WAITING = "waiting"
    RUNNING = "running"
    PREEMPTED = "preempted"
    FINISHED = "finished"


TRANSITIONS: dict[Status, dict[type[Decision], Status]] = {
    Status.WAITING: {RequestAdmitted: Status.RUNNING, RequestFinished: Status.FINISHED},
    Status.RUNNING: {RequestPreempted: Status.PREEMPTED, RequestFinished: Status.FINISHED},
    Status.PREEMPTED: {RequestAdmitted: Status.RUNNING, RequestFinished: Status.FINISHED},
    Status.FINISHED: {},
}


class Request:
    """A live request.

    num_computed_tokens   tokens whose KV lies in `block_table`
    block_digests         digests of its full blocks known so far: the prompt's, then those that outputs filled
    num_once_computed     tokens computed before its latest preemption: as far as there they are computed again
    host_blocks           host blocks that its leading blocks were swapped to; empty unless it waits for its return
    num_swapped_tokens    computed tokens whose KV lies there
    num_hit_blocks        leading blocks of `block_table` that were found in the prefix cache at its latest admission
    num_cached_tokens     prompt tokens found in the prefix cache when it was first admitted; -1 before
    queued_pass           planning pass in which it was queued (again)
    deferral              reason it waits for, and the pass that gave it; None until it was explained
    chain, chain_length   cascade that made room for it, handed on when it is preempted itself
    rank                  its place among the waiting when it was last queued or looked at, by the policy
    num_passes_over       passes that admitted a younger one while it was the oldest of the waiting
    is_protected          by the starvation guard: next to be admitted, not to be preempted
    sampling              carried, so that a keyframe tells how its tokens are drawn; never read here
    wants_prompt_logprobs every row of its prompt must be computed
    """

    __slots__ = (
        "arrival_ns",
        "block_digests",
        "block_table",
        "chain",
        "chain_length",
        "deadline_ns",
        "deferral",
        "host_blocks",
        "is_protected",
        "itl_target_ms",
        "max_output_tokens",
        "num_cached_tokens",
        "num_computed_tokens",
        "num_hit_blocks",
        "num_once_computed",
        "num_output_tokens",
        "num_passes_over",
        "num_preemptions",
        "num_prompt_tokens",
        "num_swapped_tokens",
        "number",
        "priority",
        "queued_pass",
        "rank",
        "request_id",
        "sampling",
        "status",
        "tenant",
        "ttft_target_ms",
        "wants_prompt_logprobs",
    )

    def __init__(self, event: RequestArrived) -> None:
        self.number = event.request
        self.request_id = event.request_id
        self.tenant = event.tenant
        self.priority = event.priority
        self.arrival_ns = event.arrival_ns
        self.num_prompt_tokens = event.num_prompt_tokens
        self.max_output_tokens = event.max_output_tokens
        self.deadline_ns = event.deadline_ns
        self.ttft_target_ms = event.ttft_target_ms
        self.itl_target_ms = event.itl_target_ms
        self.sampling = event.sampling
        self.block_digests = list(event.prompt_digests)
        self.status = Status.WAITING
        self.num_output_tokens = event.num_output_tokens
        self.num_computed_tokens = 0
        self.block_table: list[int] = []
        self.host_blocks: list[int] = []
        self.num_swapped_tokens = 0
        self.num_cached_tokens = event.num_cached_tokens
        self.num_hit_blocks = 0
        self.num_once_computed = 0
        self.num_preemptions = 0
        self.rank: tuple[int, ...] = ()
        self.queued_pass = 0
        self.deferral: tuple[DeferReason, int] | None = None
        self.chain = -1
        self.chain_length = 0
        self.num_passes_over = 0
        self.is_protected = False
        self.wants_prompt_logprobs = event.wants_prompt_logprobs

    @property
    def num_tokens(self) -> int:
        """Tokens known: the prompt and what was emitted."""
        return self.num_prompt_tokens + self.num_output_tokens

    @property
    def num_uncomputed_tokens(self) -> int:
        """1 while decoding, more while a prefill (first or again) is going on."""
        return self.num_prompt_tokens + self.num_output_tokens - self.num_computed_tokens

    def apply(self, decision: Decision) -> None:
        """Take the transition that `decision` stands for; one that the table lacks is a bug of ours."""
        following = TRANSITIONS[self.status].get(type(decision))
        assert following is not None, f"request {self.number} is {self.status}: no {type(decision).__name__} from there"
        self.status = following
