"""Every bound of the engine, with its unit. A recording's header carries them all; a core is built from them alone."""

from dataclasses import asdict, dataclass, fields
from typing import Any

from engine.core.errors import InvalidLimits

MAX_FRAME_BYTES = 64 * 1024 * 1024  # one frame between the processes or in a recording; larger ones are refused unread
MAX_INBOX_ITEMS = 65_536  # between the socket reader and the loop; beyond it the reader waits (back-pressure)
MAX_OUTBOX_FRAMES = 65_536  # between the loop and the socket; beyond it the loop waits
MAX_RECORD_QUEUE_ENTRIES = 65_536  # between the loop and the writer; beyond it entries become a counted gap
MAX_REQUEST_ID_CHARS = 256
MAX_ERROR_CHARS = 2_000  # of an error text that goes into a record


@dataclass(frozen=True, slots=True)
class Limits:
    """What the core is bounded by.

    block_size              tokens per KV block
    num_kv_blocks           blocks in the pool, all usable by requests
    max_model_len           tokens of prompt and output together
    max_num_seqs            requests running at the same time
    max_num_batched_tokens  tokens computed in one step
    max_num_queued_reqs     requests waiting (preempted ones not counted, for they were admitted once)
    max_num_queued_tokens   prompt tokens of those waiting; 0: no bound beside the one in requests
    max_num_queued_reqs_per_tenant, max_num_queued_tokens_per_tenant
                            the same for each tenant; 0: no bound
    scheduling_policy       name of a policy in `policies/`, or an operator's own as module:Class
    enable_prefix_caching   look prompts up in, and keep finished blocks for, the prefix index
    priority_aging_ns       `priority` policy: one class counts as much as so much earlier arrival
    scheduling_phases       name of a way to share a step between prefill and decode, in `phases/`
    tenant_weights          `fair` policy: (tenant, weight ≥ 1) pairs; a tenant not named has weight 1
    prefill_token_price, decode_token_price
                            `fair` and `shortest` policies: what a prompt token and an output token count
    ttft_target_ms          `deadline` policy: the first token, for requests that bring no target of their own
    itl_target_ms           each further token after the one before, for requests that bring no target of their own:
                            `deadline` orders by it, `adaptive` phases keep prefill beside running streams within it
    max_passes_over         the starvation guard (`starvation.py`): so often the oldest of the waiting is passed over
    max_preemptions         … and so often a request is preempted, before it is protected
    mixed_step_target_ms    `adaptive` phases, deprecated: a step with prefill beside decodes is to take no longer than
                            this, whatever the streams' targets; 0: as long as these allow
    min_prefill_tokens      `adaptive` phases: tokens of prefill that a step has room for whatever the target
    prefill_share_permille  `pools` phases: prefill's share of the time when decodes want it too
    watermark_permille      of the pool: so many blocks stay free at an admission while others run
    reserve_output          what an admission reserves of a request's output: none, what is expected of it, or max
    thrash_bound_permille   of the tokens computed lately: more that are computed again is thrashing; 0 watches nothing
    swap_space_blocks       KV blocks of preempted requests that the host pool holds; 0: all are recomputed
    decision_rules          of which time the rules are, so that a core decides on a recording as the one that made it.
                            1: `deadline` predicts by a smoothed step time, a tenant over its own bound is told the
                            whole queue's drain rate, a change of policy forgets all counts; 2: blocks that a
                            waiting request needs are told without its hits that nobody holds; 3: as it is now
    async_scheduling        plan the next step while the device computes the present one (`ahead.py`)
    """

    block_size: int = 16
    num_kv_blocks: int = 512
    max_model_len: int = 2048
    max_num_seqs: int = 64
    max_num_batched_tokens: int = 512
    max_num_queued_reqs: int = 1024
    scheduling_policy: str = "fcfs"
    enable_prefix_caching: bool = True
    priority_aging_ns: int = 10_000_000_000
    tenant_weights: tuple[tuple[str, int], ...] = ()
    prefill_token_price: int = 1
    decode_token_price: int = 2
    ttft_target_ms: int = 2_000
    itl_target_ms: int = 50
    max_passes_over: int = 64
    max_preemptions: int = 3
    scheduling_phases: str = "adaptive"
    mixed_step_target_ms: int = 0
    min_prefill_tokens: int = 32
    prefill_share_permille: int = 500
    watermark_permille: int = 10
    reserve_output: str = "expected"
    thrash_bound_permille: int = 100
    max_num_queued_tokens: int = 0
    max_num_queued_reqs_per_tenant: int = 0
    max_num_queued_tokens_per_tenant: int = 0
    swap_space_blocks: int = 0
    decision_rules: int = 3
    async_scheduling: bool = False

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "Limits":
        """Unknown keys, written by a newer version, are left out; missing ones take the default.

        Except where a missing one stands for a part that was not there yet: `_BEFORE` has what it amounts to.
        """
        known = {field.name for field in fields(cls)}
        chosen = {key: value for key, value in {**_BEFORE, **values}.items() if key in known}
        if "tenant_weights" in chosen:
            chosen["tenant_weights"] = normalized_weights(chosen["tenant_weights"])
        return cls(**chosen)


_BEFORE: dict[str, Any] = {
    "max_passes_over": 2**62,  # no starvation guard: bounds that are never reached
    "max_preemptions": 2**62,
    "scheduling_phases": "chunked",
    "mixed_step_target_ms": 50,
    "itl_target_ms": 200,
    "decision_rules": 1,
    "watermark_permille": 0,
    "reserve_output": "none",
    "thrash_bound_permille": 0,
}


def normalized_weights(pairs: Any) -> tuple[tuple[str, int], ...]:
    """(tenant, weight) pairs as they come from JSON, msgpack or a mapping, in the order given."""
    items = pairs.items() if isinstance(pairs, dict) else pairs
    try:
        return tuple([(tenant, weight) for tenant, weight in items])
    except (TypeError, ValueError) as error:
        raise InvalidLimits(f"tenant_weights is {pairs!r}: give pairs of a tenant and its weight") from error
