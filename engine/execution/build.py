"""Configuration → a runner ready to serve, the limits with everything filled in, and what to tell about it.

The one place that puts model files, backend, KV memory and runner together. Replay uses it too, with the limits of the
recording instead of those that this machine would choose.
"""

import os
import platform
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from engine.clock import Clock
from engine.config import PLANNING_AHEAD, EngineConfig
from engine.core.errors import EngineError, InvalidLimits
from engine.core.limits import Limits
from engine.execution.device_pool import device_pool, wants_device_pool
from engine.execution.filled_limits import block_bytes_of, fill_limits, require_positions
from engine.execution.kv_store import KVStore
from engine.execution.model import Model
from engine.execution.notices import tell
from engine.execution.runner import ModelRunner
from engine.execution.weights.load import load_model
from engine.log import Logger
from engine.text.file_digests import cache_folder
from engine.text.model_source import ModelSource, resolve_model
from engine.text.text_model import load_text_model
from kernels.backend import Backend, CannotLoad, LaunchingBackend
from kernels.device_backend import DeviceBackend
from kernels.dispatch import Choice, UnknownBackend, choose_backend, numerics_class
from kernels.selftest import SelfTestReport, run_self_test

log = Logger(__name__)

_BACKENDS_OWN = ("torch", "numeric_environment")  # of its numerics, worth a word where the backend depends on them


@dataclass(frozen=True, slots=True)
class BuiltRunner:
    """
    info   for the header of a recording and for people: backend, backends_passed_over (why auto took no faster one),
           numerics_class, dtype, num_threads, self-test verdict (`p4_holds`, `self_test_failures`), model, environment,
           bytes of the KV pool and what its device's memory said of them; values are texts, numbers, booleans and lists
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
        if isinstance(backend, DeviceBackend):
            backend.keep_choices_in(cache_folder())
        plans_ahead = limits.async_scheduling if limits else _plans_ahead(config, backend)
        limits, of_device = _loaded(backend, config, model, limits)
        limits = replace(limits, async_scheduling=plans_ahead)
        text_model = loading.result()
    model.release_pages()
    tell(backend)
    verdict = run_self_test(backend, num_threads)
    if not verdict.holds:
        log.warning("a request alone may not repeat its bits on this machine", self_test_failures=verdict.failures)
    kv_store = KVStore.allocate(backend, limits.num_kv_blocks, limits.block_size, limits.swap_space_blocks)
    runner = ModelRunner(backend, kv_store, text_model, digest_key, clock, keeps_kv_digests=config.kv_digests)
    info = _info(backend, source, model, num_threads, verdict)
    info["backends_passed_over"] = passed_over
    info["kv_cache_bytes"] = limits.num_kv_blocks * block_bytes_of(config, model, backend.kv_dtype)
    info.update(of_device)
    info["eos_token_ids"] = list(text_model.eos_token_ids)
    info["load_ms"] = (clock.now_ns() - started_ns) // 1_000_000
    return BuiltRunner(runner, limits, info)


def _loaded(
    backend: Backend, config: EngineConfig, model: Model, limits: Limits | None
) -> tuple[Limits, dict[str, Any]]:
    """The limits, and what a device's memory says of the pool: there the weights come first, then what is left."""
    of_device: dict[str, Any] = {}
    if limits is None and wants_device_pool(config, backend):
        _load(backend, model, config.max_model_len or model.context_length)
        block_bytes = block_bytes_of(config, model, backend.kv_dtype)
        num_bytes, of_device = device_pool(config, backend, model.context_length, block_bytes)
        limits = fill_limits(config, model, backend.kv_dtype, num_bytes)
        require_positions(limits, model)
    else:
        limits = limits or fill_limits(config, model, backend.kv_dtype)
        require_positions(limits, model)
        _load(backend, model, limits.max_model_len)
    return limits, of_device


def _plans_ahead(config: EngineConfig, backend: Backend) -> bool:
    """A backend that computes on the host's cores shares them with the planning: there it has to be asked for."""
    if config.async_scheduling not in PLANNING_AHEAD:
        choices = ", ".join(PLANNING_AHEAD)
        raise InvalidLimits(f"async_scheduling is {config.async_scheduling!r}: choose one of {choices}")
    if config.async_scheduling == "auto":
        return isinstance(backend, LaunchingBackend)
    return config.async_scheduling == "on"


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
