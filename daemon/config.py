"""Every option of `reprise serve`: its unit, default and meaning, in one table, read once into one frozen object.

The names are vLLM's where it has one. This file must not know what the options do, nor where their values are taken
from: `config_sources.py`.
"""

from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any

from daemon import option_values as values
from engine.config import PLANNING_AHEAD, EngineConfig
from engine.core.admission import RESERVATIONS
from engine.core.limits import Limits
from engine.core.phases.registry import PHASES_NAMES
from engine.core.policies.registry import POLICY_NAMES

NO_RECORDING = "none"
_INT32 = 2**31 - 1
_LIMITS = Limits()  # whose defaults hold here too


def _option(default: Any, unit: str, read: values.Reader, meaning: str, *, is_secret: bool = False) -> Any:
    """`is_secret`: the value is shown nowhere, not even in the message that refuses it."""
    return field(default=default, metadata={"unit": unit, "read": read, "meaning": meaning, "is_secret": is_secret})


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonConfig:
    """What the daemon is started with. The comment of each option is its line in `reprise serve --help`."""

    model: str = _option(
        "smollm2-135m-instruct",
        "NAME|FOLDER|FILE.gguf",
        values.text,
        "an embedded model, a Hugging Face folder, a GGUF",
    )
    served_model_name: tuple[str, ...] = _option(
        (),
        "NAME[,NAME]",
        values.names,
        "names clients may ask for; the first is the one answered; default: the model's",
    )
    chat_template: str = _option(
        "", "FILE.jinja", values.text, "chats become prompts by this template; default: the model's own, if it has one"
    )
    host: str = _option("127.0.0.1", "ADDRESS", values.text, "address to listen on")
    port: int = _option(8000, "PORT", values.integer(0, 65_535), "port to listen on; 0 takes a free one")
    api_key: str = _option(
        "", "KEY", values.text, "required as Bearer token on /v1/; better set in the environment", is_secret=True
    )
    api_key_file: str = _option(
        "", "FILE.toml", values.text, "more keys, as SHA-256: each stands for a tenant and its class of priority"
    )
    viewer_token_file: str = _option(
        "", "FILE", values.text, "token that /viewer asks for, apart from API keys; without one there is no /viewer"
    )
    tls_cert: str = _option(
        "", "FILE.pem", values.text, "certificate with its chain: HTTPS in place of HTTP; needs tls-key"
    )
    tls_key: str = _option("", "FILE.pem", values.text, "its private key, not encrypted")
    cors_origins: tuple[str, ...] = _option(
        (), "ORIGIN[,ORIGIN]", values.origins, "pages of these sites may ask from a browser; *: any; default: none"
    )
    dtype: str = _option(
        "auto", "NAME", values.one_of("auto", "float32", "bfloat16", "float8"), "type of keys and values"
    )
    backend: str = _option("auto", "NAME", values.text, "kernels: auto takes the fastest this machine can run")
    num_threads: int = _option(0, "THREADS", values.integer(0, 1024), "threads of the kernels; 0: the usable cores")
    block_size: int = _option(_LIMITS.block_size, "TOKENS", values.integer(1, 1024), "tokens per KV block")
    num_kv_blocks: int = _option(
        0, "BLOCKS", values.integer(0, _INT32), "blocks in the KV pool; 0: what fits kv-cache-memory"
    )
    kv_cache_memory: int | None = _option(
        None,
        "BYTES",
        values.optional_byte_size,
        "memory of the KV pool, as in 512MiB, used without num-kv-blocks; default: 256MiB, or what 8,192 tokens take; "
        "on a GPU what gpu-memory-utilization leaves",
    )
    gpu_memory_utilization: float = _option(
        0.9,
        "SHARE",
        values.share,
        "of a GPU's memory that may be used: weights, steps, and the rest for the KV pool where its size is not given",
    )
    swap_space: int = _option(
        0,
        "BYTES",
        values.byte_size_or_zero,
        "host memory that preempted requests may be swapped to where that is faster than recomputing; 0: never",
    )
    max_model_len: int = _option(
        0, "TOKENS", values.integer(0, _INT32), "prompt and output together; 0: what model and pool allow"
    )
    max_num_seqs: int = _option(
        _LIMITS.max_num_seqs, "REQUESTS", values.integer(1, 65_536), "requests running at the same time"
    )
    max_num_batched_tokens: int = _option(
        _LIMITS.max_num_batched_tokens, "TOKENS", values.integer(1, 1_048_576), "tokens computed in one step"
    )
    max_num_queued_reqs: int = _option(
        _LIMITS.max_num_queued_reqs, "REQUESTS", values.integer(1, 1_048_576), "requests that may wait"
    )
    max_num_queued_tokens: int = _option(
        _LIMITS.max_num_queued_tokens,
        "TOKENS",
        values.integer(0, 2**40),
        "prompt tokens of those that wait; 0: no bound",
    )
    max_num_queued_reqs_per_tenant: int = _option(
        _LIMITS.max_num_queued_reqs_per_tenant,
        "REQUESTS",
        values.integer(0, 1_048_576),
        "of one tenant that may wait; more get 429; 0: no bound",
    )
    max_num_queued_tokens_per_tenant: int = _option(
        _LIMITS.max_num_queued_tokens_per_tenant,
        "TOKENS",
        values.integer(0, 2**40),
        "prompt tokens of one tenant's that wait; more get 429; 0: no bound",
    )
    queue_timeout: float = _option(
        0.0, "SECONDS", values.seconds(0, 86_400), "a request that has not begun by then gets 504; 0: it waits"
    )
    scheduling_policy: str = _option(
        _LIMITS.scheduling_policy,
        "NAME",
        values.policy(*POLICY_NAMES),
        f"who runs first: {', '.join(POLICY_NAMES)}, or module:Class",
    )
    priority_aging: float = _option(
        _LIMITS.priority_aging_ns / 1e9,
        "SECONDS",
        values.seconds(0, 86_400),
        "priority: one class counts as much as so much earlier arrival",
    )
    tenant_weights: tuple[tuple[str, int], ...] = _option(
        (), "NAME=WEIGHT[,…]", values.weights, "fair: shares of tenants under load; one not named has weight 1"
    )
    prefill_token_price: int = _option(
        _LIMITS.prefill_token_price,
        "NUMBER",
        values.integer(1, 1_000_000),
        "fair, shortest: what a prompt token counts",
    )
    decode_token_price: int = _option(
        _LIMITS.decode_token_price,
        "NUMBER",
        values.integer(1, 1_000_000),
        "fair, shortest: what an output token counts",
    )
    ttft_target_ms: int = _option(
        _LIMITS.ttft_target_ms,
        "MS",
        values.integer(1, 86_400_000),
        "deadline: first token, for requests without a target of their own",
    )
    itl_target_ms: int = _option(
        _LIMITS.itl_target_ms,
        "MS",
        values.integer(1, 86_400_000),
        "each further token, for requests without a target: deadline orders by it, adaptive sizes prefill by it",
    )
    max_passes_over: int = _option(
        _LIMITS.max_passes_over,
        "PASSES",
        values.integer(1, _INT32),
        "passed over so often, the oldest waiting request goes first",
    )
    max_preemptions: int = _option(
        _LIMITS.max_preemptions,
        "TIMES",
        values.integer(1, _INT32),
        "preempted so often, a request is preempted no more",
    )
    scheduling_phases: str = _option(
        _LIMITS.scheduling_phases,
        "NAME",
        values.one_of(*PHASES_NAMES),
        "how a step is shared between prefill and decode",
    )
    mixed_step_target_ms: int = _option(
        _LIMITS.mixed_step_target_ms,
        "MS",
        values.integer(0, 3_600_000),
        "deprecated: adaptive's steps take so long whatever itl-target-ms says",
    )
    min_prefill_tokens: int = _option(
        _LIMITS.min_prefill_tokens,
        "TOKENS",
        values.integer(1, 1_048_576),
        "adaptive: prefill a step has room for whatever the target",
    )
    prefill_share_permille: int = _option(
        _LIMITS.prefill_share_permille,
        "PERMILLE",
        values.integer(1, 999),
        "pools: prefill's share of the time while streams decode",
    )
    watermark_permille: int = _option(
        _LIMITS.watermark_permille,
        "PERMILLE",
        values.integer(0, 900),
        "of the KV blocks stay free at an admission while others run",
    )
    reserve_output: str = _option(
        _LIMITS.reserve_output, "NAME", values.one_of(*RESERVATIONS), "output that an admission keeps KV blocks for"
    )
    thrash_bound_permille: int = _option(
        _LIMITS.thrash_bound_permille,
        "PERMILLE",
        values.integer(0, 1000),
        "of computed tokens: more that are computed again is thrashing; 0: no watch",
    )
    enable_prefix_caching: bool = _option(
        _LIMITS.enable_prefix_caching, "", values.switch, "look for prompts already computed"
    )
    seed: int | None = _option(
        None, "NUMBER", values.optional_integer(0, 2**63 - 1), "seeds of unseeded requests derive from it; else drawn"
    )
    record_dir: str = _option(
        "",
        "FOLDER",
        values.text,
        "one folder per run is made in it; default: the state directory; 'none': no recording",
    )
    record_content: bool = _option(
        False, "", values.switch, "keep token ids in the vault: execute and isolate need them"
    )
    vault_key_file: str = _option(
        "",
        "FILE",
        values.text,
        "master key of the vaults; default: REPRISE_VAULT_KEY, a systemd credential, or one made in record-dir/keys",
    )
    record_max_bytes: int = _option(
        16 * 2**30, "BYTES", values.byte_size, "of all recordings in record-dir but pinned ones; the oldest go first"
    )
    record_max_age: float = _option(
        14 * 86_400.0, "SECONDS", values.seconds(60, 10**9), "recordings older than this are removed, unless pinned"
    )
    record_min_free: int = _option(
        512 * 2**20, "BYTES", values.byte_size, "left free on the disk: old recordings go, then recording stops"
    )
    record_pin_bytes: int = _option(
        4 * 2**30, "BYTES", values.byte_size, "of pinned recordings; beyond it the oldest automatic pins are taken off"
    )
    kv_digests: bool = _option(
        False, "", values.switch, "digest each KV block when it is full, and compare when it is read again"
    )
    async_scheduling: str = _option(
        "auto",
        "WHEN",
        values.one_of(*PLANNING_AHEAD),
        "plan the next step while the device computes one; auto: where that is a GPU",
    )
    audit_rate: float = _option(
        0.01,
        "SHARE",
        values.share,
        "of the requests, computed again alone while the engine is idle, and compared; 0: none",
    )
    slo_ttft_ms: int = _option(
        0,
        "MS",
        values.integer(0, 86_400_000),
        "a first token that takes longer pins its stretch of recording; 0: none does",
    )
    slo_itl_ms: int = _option(
        0, "MS", values.integer(0, 86_400_000), "the same for a gap between two tokens; 0: none does"
    )
    drain_timeout: float = _option(
        30.0, "SECONDS", values.seconds(0, 86_400), "after SIGTERM, running requests are given so long to end"
    )
    stall_timeout: float = _option(
        60.0, "SECONDS", values.seconds(1, 86_400), "work waits and no step ends for so long: /health says 503"
    )
    keep_alive_interval: float = _option(
        15.0, "SECONDS", values.seconds(0.05, 3600), "a comment is sent on a stream that was silent for so long"
    )
    max_resume_s: float = _option(
        300.0,
        "SECONDS",
        values.seconds(0, 86_400),
        "at most so long a stream that asks for it is kept for its client to come back; 0: never",
    )
    client_timeout: float = _option(
        60.0,
        "SECONDS",
        values.seconds(0.5, 3600),
        "a client that is so long about a request's head or body, or takes nothing of an answer, is let go",
    )
    max_connections: int = _option(
        0,
        "CONNECTIONS",
        values.integer(0, 1_000_000),
        "open at the same time; more get 503; 0: as many as file descriptors allow",
    )
    max_body_size: int = _option(32 * 1024 * 1024, "BYTES", values.byte_size, "larger request bodies get 413")
    inject: tuple[str, ...] = _option(
        (), "POINT@step=N[,…]", values.names, "faults on purpose, as engine/injection.py reads them: for tests only"
    )
    otlp_traces_endpoint: str = _option(
        "",
        "URL",
        values.text,
        "OpenTelemetry collector to send a trace of each request to; also by OTEL_EXPORTER_OTLP_…",
    )
    otlp_metrics_endpoint: str = _option(
        "", "URL", values.text, "collector to send what /metrics says to; also by OTEL_EXPORTER_OTLP_…"
    )
    otlp_vllm_names: bool = _option(
        False, "", values.switch, "spans bear the older attributes too, those of vLLM's and SGLang's spans"
    )
    log_level: str = _option("info", "LEVEL", values.one_of("debug", "info", "warning", "error"), "least level logged")

    @property
    def is_recording(self) -> bool:
        return self.record_dir != NO_RECORDING

    def engine_config(self, record_dir: str) -> EngineConfig:
        """What the engine process is started with; `record_dir` is this run's folder, "" for no recording."""
        own = {option.name for option in fields(self)}
        same = {option.name: getattr(self, option.name) for option in fields(EngineConfig) if option.name in own}
        return EngineConfig(
            **{
                **same,
                "kv_cache_memory_bytes": self.kv_cache_memory or 0,
                "swap_space_bytes": self.swap_space,
                "priority_aging_ns": round(self.priority_aging * 1e9),
                "record_dir": record_dir,
                "record_max_age_s": round(self.record_max_age),
                "record_min_free_bytes": self.record_min_free,
            }
        )


def flag_name(option: "Field[Any]") -> str:
    return option.name.replace("_", "-")


def default_text(option: "Field[Any]") -> str:
    """The default as `--help` shows it; "" where the meaning already says it."""
    default = option.default
    if default is MISSING or default is None or default in ("", ()):
        return ""
    if isinstance(default, bool):
        return "on" if default else "off"
    return f"{default // 2**20}MiB" if option.metadata["read"] is values.byte_size else f"{default}"
