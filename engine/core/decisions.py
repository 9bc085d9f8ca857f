"""Everything the core can decide: its outputs, each with its reason and the numbers it was made on.

Named tuples, as the events are; their kind numbers stand in `vocabulary.py`. Fields are only ever appended.
"""

from enum import StrEnum
from typing import NamedTuple


class RejectReason(StrEnum):
    """Why a request was refused at arrival."""

    PROMPT_TOO_LONG = "prompt_too_long"  # prompt + 1 token exceeds max_model_len
    CONTEXT_TOO_LONG = "context_too_long"  # prompt + max_output_tokens exceeds max_model_len
    EXCEEDS_KV_CACHE = "exceeds_kv_cache"  # the prompt alone needs more blocks than there are
    QUEUE_FULL = "queue_full"
    QUEUE_TOKENS_FULL = "queue_tokens_full"  # more prompt tokens would wait than may
    TENANT_QUEUE_FULL = "tenant_queue_full"  # the tenant's own bounds
    TENANT_QUEUE_TOKENS_FULL = "tenant_queue_tokens_full"
    DRAINING = "draining"
    DUPLICATE_REQUEST = "duplicate_request"


class DeferReason(StrEnum):
    """Why a waiting request was not admitted in a pass."""

    MAX_NUM_SEQS = "max_num_seqs"  # as many requests run as may
    TOKEN_BUDGET = "token_budget"  # nothing is left of the step's token budget
    OUT_OF_BLOCKS = "out_of_blocks"  # its blocks are not free
    PREEMPTION = "preemption"  # a request was preempted in this pass, so none is admitted
    BEHIND_ANOTHER = "behind_another"  # the policy puts another waiting request first
    WATERMARK = "watermark"  # its blocks are free, but too few would be left
    EXPECTED_GROWTH = "expected_growth"  # its blocks are free, but those that run are expected to need them
    RESERVED_BLOCKS = "reserved_blocks"  # it is protected, and those that run have the blocks it may grow to


class PreemptReason(StrEnum):
    OUT_OF_BLOCKS = "out_of_blocks"  # a running request needed a block
    MORE_URGENT_WAITS = "more_urgent_waits"  # the policy let a waiting request take the victim's blocks
    KV_MISMATCH = "kv_mismatch"  # a block of the victim's does not hold what was written to it


class StarvationCause(StrEnum):
    PASSED_OVER = "passed_over"  # younger ones were admitted before it
    PREEMPTED = "preempted"


class PreemptMode(StrEnum):
    RECOMPUTE = "recompute"
    SWAP = "swap"  # its computed blocks are copied to the host pool, and back when it is admitted again


class FinishReason(StrEnum):
    """Why a request ended. The daemon maps these to the API's finish reasons or errors."""

    STOP = "stop"  # a stop token or a stop string
    LENGTH = "length"  # max_output_tokens reached
    KV_CACHE_EXHAUSTED = "kv_cache_exhausted"  # it ran alone and outgrew the pool
    CANCELLED = "cancelled"
    DRAINED = "drained"  # cut off at the drain timeout
    FAILED = "failed"  # its step failed, its logits were not finite, or the engine died on it again
    EXPIRED = "expired"  # it had not begun by its deadline
    LOST = "lost"  # the engine that held it died, and nobody waited for it any more


class RequestRejected(NamedTuple):
    """Refused at arrival: it never waits and never runs.

    asked, limit      the figure that was too large and its bound, in the unit of the reason (tokens or requests)
    retry_after_ms    for a full queue: when there should be room again at the measured drain rate; else 0
    """

    request: int
    reason: RejectReason
    asked: int
    limit: int
    retry_after_ms: int


class RequestDeferred(NamedTuple):
    """It goes on waiting; written when the reason changes.

    num_blocks_needed, num_blocks_free   as found in this pass; cached blocks that nobody holds are free, and needed
                                         by a request that would take them up
    behind                               the request that stands before it (BEHIND_ANOTHER), else -1
    num_passes                           how many passes the reason before this one had lasted
    num_blocks_kept                      WATERMARK: blocks that stay free; EXPECTED_GROWTH: blocks that are expected to
                                         lack at the highest need to come; else 0
    """

    request: int
    reason: DeferReason
    num_blocks_needed: int
    num_blocks_free: int
    behind: int
    num_passes: int
    num_blocks_kept: int = 0


class RequestAdmitted(NamedTuple):
    """Waiting or preempted → running, with blocks for all of its known tokens.

    block_ids         its whole block table; the first num_hit_blocks of them were found in the prefix cache
    evicted_blocks    cached blocks whose contents were given up to make room
    num_blocks_free   free or evictable before this admission
    num_passes        passes it has waited since it was queued
    host_blocks       of a swapped request: copied, before the step, into block_ids from place num_hit_blocks on, in
                      order; the others that it had in the host pool are free again, for the prefix cache had them
    """

    request: int
    block_ids: tuple[int, ...]
    num_hit_blocks: int
    evicted_blocks: tuple[int, ...]
    num_blocks_free: int
    num_passes: int
    host_blocks: tuple[int, ...] = ()


class RequestPreempted(NamedTuple):
    """Running → preempted, its blocks given up.

    for_request       the request that gets room; equal to `request` when it gave way to all others
    num_tokens_lost   computed tokens whose KV must be computed (or found in the prefix cache) again; none by a swap
    chain             number shared by a cascade: a preemption whose beneficiary is preempted in turn hands it on
    chain_length      preemptions that led to this one, each the next one's cause, itself included: 2 and more is a
                      cascade; 0 from writers that did not tell
    host_blocks       SWAP: where its leading blocks are copied to, in order, before anything else is carried out
    swap_ns, recompute_ns
                      what copying out and in, and computing again, were expected to take: the smaller one decided; both
                      0 without a host pool
    num_host_blocks_free
                      before it: with too few for its blocks it is recomputed whatever that takes
    """

    request: int
    for_request: int
    reason: PreemptReason
    mode: PreemptMode
    num_blocks_freed: int
    num_tokens_lost: int
    chain: int
    chain_length: int = 0
    host_blocks: tuple[int, ...] = ()
    swap_ns: int = 0
    recompute_ns: int = 0
    num_host_blocks_free: int = 0


class StepPlanned(NamedTuple):
    """What the next step computes.

    rows              (request, start, count): compute the request's tokens start … start+count-1
    new_blocks        (request, block id) appended to block tables for this step
    evicted_blocks    cached blocks given up for new_blocks
    num_running, num_waiting (preempted ones included), num_blocks_free (free or evictable), token_budget_left
                      as they stand after planning
    """

    step: int
    rows: tuple[tuple[int, int, int], ...]
    new_blocks: tuple[tuple[int, int], ...]
    evicted_blocks: tuple[int, ...]
    num_running: int
    num_waiting: int
    num_blocks_free: int
    token_budget_left: int


class TokensEmitted(NamedTuple):
    """Tokens for clients.

    rows   (request, num_output_tokens so far, this one included): one token each
    """

    step: int
    rows: tuple[tuple[int, int], ...]


class RequestFinished(NamedTuple):
    """The end of a request: exactly one for each that was queued.

    num_output_tokens     the answer's tokens: what `usage.completion_tokens` says
    num_cached_tokens     prompt tokens found in the prefix cache at first admission
    """

    request: int
    reason: FinishReason
    num_prompt_tokens: int
    num_output_tokens: int
    num_cached_tokens: int
    num_preemptions: int
    num_blocks_freed: int


class ThrashingBegan(NamedTuple):
    """Too many tokens are computed that were computed before: preemptions undo what steps achieve.

    num_recomputed, num_computed   tokens in the window: their share has passed `bound_permille`
    """

    num_recomputed: int
    num_computed: int
    bound_permille: int


class ThrashingEnded(NamedTuple):
    """The share has fallen below half of the bound. Fields as in `ThrashingBegan`."""

    num_recomputed: int
    num_computed: int
    bound_permille: int


class AdmissionThrottled(NamedTuple):
    """The thrash controller keeps another number of blocks free at admissions: more while it thrashes, fewer after.

    watermark_blocks, watermark_before   from now on, and until now
    share_permille                       recomputed tokens of those computed in the window
    """

    watermark_blocks: int
    watermark_before: int
    share_permille: int


class PrefixIndexDropped(NamedTuple):
    """A block went wrong, so no cached block is found any more.

    block         the one that went wrong
    num_blocks    that could be found until now; those of them that nobody holds are free
    """

    block: int
    num_blocks: int


class StarvationSeen(NamedTuple):
    """It was passed over or preempted `bound` times: from now on it is protected (`starvation.py` says what that is).

    num_passes_over   passes that admitted a younger request while it was the oldest of the waiting
    """

    request: int
    cause: StarvationCause
    num_passes_over: int
    num_preemptions: int
    bound: int


class RequestDemoted(NamedTuple):
    """Its target cannot be met any more, so it waits behind those whose can.

    target_ms     after its arrival its next token was due
    expected_ms   after its arrival that token can be there at the earliest, by the measured step time
    """

    request: int
    target_ms: int
    expected_ms: int


Decision = (
    RequestRejected
    | RequestDeferred
    | RequestAdmitted
    | RequestPreempted
    | StepPlanned
    | TokensEmitted
    | RequestFinished
    | ThrashingBegan
    | ThrashingEnded
    | AdmissionThrottled
    | StarvationSeen
    | RequestDemoted
    | PrefixIndexDropped
)
