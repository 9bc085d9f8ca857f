"""Configuration → a runner ready to serve, the limits with everything filled in, and what to tell about it.

The one place that puts model files, backend, KV memory and runner together. Replay uses it too, with the limits of the
recording instead of those that this machine would choose.
"""

import os
import platform
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from engine.clock import Clock
from engine.config import EngineConfig
from engine.core.errors import EngineError, InvalidLimits
from engine.core.limits import Limits
from engine.execution.kv_store import KVStore, default_kv_bytes, kv_block_bytes
from engine.execution.model import Model
from engine.execution.runner import ModelRunner
from engine.execution.weights.load import load_model
from engine.log import Logger
from engine.text.model_source import ModelSource, resolve_model
from engine.text.text_model import load_text_model
from kernels.backend import Backend, CannotLoad
from kernels.dispatch import Choice, UnknownBackend, choose_backend, numerics_class
from kernels.selftest import SelfTestReport, run_self_test

log = Logger(__name__)

_BACKENDS_OWN = ("torch", "numeric_environment")  # of its numerics, worth a word where the backend depends on them


@dataclass(frozen=True, slots=True)
class BuiltRunner:
    """
    info   for the header of a recording and for people: backend, backends_passed_over (why auto took no faster one),
           numerics_class, dtype, num_threads, self-test verdict (`p4_holds`, `self_test_failures`), model, environment;
           values are texts, numbers, booleans and lists
    """

    runner: ModelRunner
    limits: Limits
    info: dict[str, Any]


def build_runner(
    config: EngineConfig,
    digest_key: bytes,
    clock: Clock,
    source: ModelSource | None = None,
    limits: Limits | None = None,
) -> BuiltRunner:
    """Load the model of `config` (or `source`, when it was resolved already) into a runner.

    digest_key   16 bytes: the recording's salt
    limits       replaces what `config` says about pool, lengths and budgets: a recording's, for replay
    Raises ModelError, InvalidLimits, EngineError: what does not fit, with the figures and the remedy.
    """
    started_ns = clock.now_ns()
    num_threads = config.num_threads or len(os.sched_getaffinity(0))
    source = source or resolve_model(config.model)
    with ThreadPoolExecutor(1) as pool:
        loading = pool.submit(load_text_model, source, encodes=False)  # as the daemon: both find an answer's end alike
        model = load_model(source)
        backend, passed_over = _backend(config, num_threads, model)
        limits = limits or fill_limits(config, model, backend.kv_dtype)
        _require_positions(limits, model)
        _load(backend, model, limits.max_model_len)
        text_model = loading.result()
    model.release_pages()
    verdict = run_self_test(backend, num_threads)
    if not verdict.holds:
        log.warning("a request alone may not repeat its bits on this machine", self_test_failures=verdict.failures)
    kv_store = KVStore.allocate(backend, limits.num_kv_blocks, limits.block_size, limits.swap_space_blocks)
    runner = ModelRunner(backend, kv_store, text_model, digest_key, clock, keeps_kv_digests=config.kv_digests)
    info = _info(backend, source, model, num_threads, verdict)
    info["backends_passed_over"] = passed_over
    info["eos_token_ids"] = list(text_model.eos_token_ids)
    info["load_ms"] = (clock.now_ns() - started_ns) // 1_000_000
    return BuiltRunner(runner, limits, info)


def fill_limits(config: EngineConfig, model: Model, kv_dtype: np.dtype[Any]) -> Limits:
    """The core's limits, with the pool's size and the longest context derived where `config` leaves them open."""
    if config.block_size < 1:
        raise InvalidLimits(f"block_size is {config.block_size}: it must be at least 1")
    num_kv_blocks = config.num_kv_blocks or _blocks_in_memory(config, model, kv_dtype)
    max_model_len = config.max_model_len or min(model.context_length, num_kv_blocks * config.block_size)
    return Limits(
        num_kv_blocks=num_kv_blocks,
        max_model_len=max_model_len,
        swap_space_blocks=_blocks_in_swap_space(config, model, kv_dtype),
        **config.given_limits(),
    )


def _blocks_in_memory(config: EngineConfig, model: Model, kv_dtype: np.dtype[Any]) -> int:
    block_bytes = kv_block_bytes(model.parameters.shape, config.block_size, kv_dtype)
    block_size = config.block_size
    num_bytes = config.kv_cache_memory_bytes or default_kv_bytes(block_bytes, block_size, model.context_length)
    num_blocks = num_bytes // block_bytes
    if num_blocks < 1:
        raise InvalidLimits(
            f"kv_cache_memory_bytes is {config.kv_cache_memory_bytes}, one block of {config.block_size} tokens takes "
            f"{block_bytes}: give at least that much, or set num_kv_blocks"
        )
    return num_blocks


def _blocks_in_swap_space(config: EngineConfig, model: Model, kv_dtype: np.dtype[Any]) -> int:
    block_bytes = kv_block_bytes(model.parameters.shape, config.block_size, kv_dtype)
    num_blocks = config.swap_space_bytes // block_bytes
    if config.swap_space_bytes and num_blocks < 1:
        raise InvalidLimits(
            f"swap_space_bytes is {config.swap_space_bytes}, one block of {config.block_size} tokens takes "
            f"{block_bytes}: give at least that much, or 0 to swap nothing"
        )
    return num_blocks


def _require_positions(limits: Limits, model: Model) -> None:
    if limits.max_model_len > model.context_length:
        raise InvalidLimits(
            f"max_model_len is {limits.max_model_len}, the model's context length is {model.context_length}: "
            "lower max_model_len, or leave it at 0"
        )


def _backend(config: EngineConfig, num_threads: int, model: Model) -> Choice:
    try:
        return choose_backend(config.backend, num_threads, config.dtype, model.parameters.shape)
    except UnknownBackend as error:
        raise EngineError(str(error)) from error


def _load(backend: Backend, model: Model, max_positions: int) -> None:
    try:
        backend.load(model.parameters, max_positions)
    except CannotLoad as error:
        raise EngineError(str(error)) from error


def _info(
    backend: Backend, source: ModelSource, model: Model, num_threads: int, verdict: SelfTestReport
) -> dict[str, Any]:
    numerics = backend.numerics()
    return {
        "backend": backend.name,
        "dtype": backend.dtype,
        "numerics_class": numerics_class(backend, source.sha256),
        **{name: numerics[name] for name in _BACKENDS_OWN if name in numerics},
        "num_threads": num_threads,
        "p4_holds": verdict.holds,
        "self_test_values_compared": verdict.num_compared,
        "self_test_failures": list(verdict.failures),
        "model": source.name,
        "model_sha256": source.sha256,
        "architecture": model.architecture,
        "vocab_size": model.parameters.shape.vocab_size,
        "context_length": model.context_length,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "cpu": _cpu_name(),
    }


def _cpu_name() -> str:
    """The processor's name as Linux gives it, else its kind."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
