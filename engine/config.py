"""Everything the engine process is started with, as one object, read once.

The daemon fills it from flags, environment and file; it travels to the engine process as JSON, and into the
recording's header with every default filled in.
"""

import json
from dataclasses import asdict, dataclass, fields
from typing import Any

from engine.core.limits import Limits, normalized_weights

PLANNING_AHEAD = ("auto", "on", "off")
_LIMITS = Limits()  # whose defaults hold here too
_DERIVED_LIMITS = ("num_kv_blocks", "max_model_len", "async_scheduling")  # 0 and "auto" leave them to what is loaded


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """
    model                  name of an embedded model, a Hugging Face folder, or a GGUF file
    dtype                  of keys and values: "auto", "float32" (not cuda), "bfloat16" (cuda, cpu), "float8" (cuda)
    backend                "auto", "cuda", "cpu" or "reference"
    num_kv_blocks          blocks in the pool; 0 derives it from kv_cache_memory_bytes
    kv_cache_memory_bytes  used when num_kv_blocks is 0; 0 takes what `default_kv_bytes` says of the model, and on a
                           device what `gpu_memory_utilization` leaves
    gpu_memory_utilization share of a device's memory that may be used, over all
    swap_space_bytes       memory of the host pool that preempted requests may be swapped to; 0: all are recomputed
    max_model_len          0 takes the model's context length, bounded by what the pool holds
    num_threads            threads of the kernels; 0 takes the cores this process may use
    record_dir             folder of this run's recording; "" records nothing
    record_content         keep token ids in the vault beside the recording
    vault_key_file         file with the master key of vaults; "" looks in the environment, else makes one
    max_segment_bytes      a segment is closed and the next begun beyond this size
    max_segment_age_s      … or older than this
    record_max_bytes, record_max_age_s, record_min_free_bytes, record_pin_bytes
                           bounds of the folder that holds the runs: `Bounds` in recorder/retention.py
    inject                 faults on purpose, as `injection.py` reads them; for tests
    sync_interval_ms       power loss loses at most so much of the recording
    kv_digests             digest each KV block when it is full, compare when it is read again
    async_scheduling       "on", "off" or "auto": where the backend's device computes by itself (cuda)
    audit_rate             share of the requests that are computed again, alone, while the engine is idle; 0: none
    slo_ttft_ms, slo_itl_ms
                           a request whose first token, or whose next one, takes longer pins its segment; 0: none does
    chat_template_sha256   hex digest of the template by which the daemon renders chats; "": it is the model's own

    The others are fields of `Limits`, described there.
    """

    model: str
    dtype: str = "auto"
    backend: str = "auto"
    block_size: int = _LIMITS.block_size
    num_kv_blocks: int = 0
    kv_cache_memory_bytes: int = 0
    max_model_len: int = 0
    max_num_seqs: int = _LIMITS.max_num_seqs
    max_num_batched_tokens: int = _LIMITS.max_num_batched_tokens
    max_num_queued_reqs: int = _LIMITS.max_num_queued_reqs
    scheduling_policy: str = _LIMITS.scheduling_policy
    scheduling_phases: str = _LIMITS.scheduling_phases
    mixed_step_target_ms: int = _LIMITS.mixed_step_target_ms
    min_prefill_tokens: int = _LIMITS.min_prefill_tokens
    prefill_share_permille: int = _LIMITS.prefill_share_permille
    watermark_permille: int = _LIMITS.watermark_permille
    reserve_output: str = _LIMITS.reserve_output
    thrash_bound_permille: int = _LIMITS.thrash_bound_permille
    max_num_queued_tokens: int = _LIMITS.max_num_queued_tokens
    max_num_queued_reqs_per_tenant: int = _LIMITS.max_num_queued_reqs_per_tenant
    max_num_queued_tokens_per_tenant: int = _LIMITS.max_num_queued_tokens_per_tenant
    enable_prefix_caching: bool = _LIMITS.enable_prefix_caching
    num_threads: int = 0
    record_dir: str = ""
    record_content: bool = False
    vault_key_file: str = ""
    max_segment_bytes: int = 64 * 1024 * 1024
    max_segment_age_s: int = 600
    record_max_bytes: int = 16 * 2**30
    record_max_age_s: int = 14 * 86_400
    record_min_free_bytes: int = 512 * 2**20
    record_pin_bytes: int = 4 * 2**30
    sync_interval_ms: int = 1000
    priority_aging_ns: int = _LIMITS.priority_aging_ns
    tenant_weights: tuple[tuple[str, int], ...] = _LIMITS.tenant_weights
    prefill_token_price: int = _LIMITS.prefill_token_price
    decode_token_price: int = _LIMITS.decode_token_price
    ttft_target_ms: int = _LIMITS.ttft_target_ms
    itl_target_ms: int = _LIMITS.itl_target_ms
    max_passes_over: int = _LIMITS.max_passes_over
    max_preemptions: int = _LIMITS.max_preemptions
    swap_space_bytes: int = 0
    inject: tuple[str, ...] = ()
    kv_digests: bool = False
    async_scheduling: str = "auto"
    audit_rate: float = 0.0
    slo_ttft_ms: int = 0
    slo_itl_ms: int = 0
    chat_template_sha256: str = ""
    gpu_memory_utilization: float = 0.9

    def given_limits(self) -> dict[str, Any]:
        """The fields that are limits as they stand; the others are derived where the model is loaded."""
        own = {field.name for field in fields(self)}
        names = [field.name for field in fields(Limits) if field.name in own and field.name not in _DERIVED_LIMITS]
        return {name: getattr(self, name) for name in names}

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "EngineConfig":
        values = json.loads(text)
        values["tenant_weights"] = normalized_weights(values.get("tenant_weights", ()))
        values["inject"] = tuple(values.get("inject", ()))
        return cls(**values)
