"""A configuration becomes a runner, limits with nothing left open, and an account of what decides the bits."""

import dataclasses

import numpy as np
import pytest
import structlog
import torch

from engine.clock import SystemClock
from engine.config import EngineConfig
from engine.core.errors import EngineError, InvalidLimits
from engine.core.limits import Limits
from engine.execution import build
from engine.execution.build import BuiltRunner, build_runner
from engine.execution.filled_limits import fill_limits
from engine.execution.model import Model
from engine.text.model_source import DEFAULT_MODEL, ModelSource
from kernels.selftest import SelfTestReport
from tests.model_fixtures import NUM_THREADS

KEY = bytes(16)
CONFIG = EngineConfig(model=DEFAULT_MODEL, backend="reference", num_kv_blocks=8, num_threads=NUM_THREADS)
BLOCK_BYTES = 2 * 4 * 30 * 3 * 64 * 16  # keys and values × float32 × layers × kv heads × head_dim × block_size


@pytest.fixture(scope="module")
def built(default_source: ModelSource) -> BuiltRunner:
    return build_runner(CONFIG, KEY, SystemClock(), default_source)


def filled(model: Model, **fields: object) -> Limits:
    return fill_limits(dataclasses.replace(CONFIG, **fields), model, np.dtype(np.float32))  # type: ignore[arg-type]


def test_the_pool_follows_from_memory_when_it_is_not_given(default_model: Model) -> None:
    assert filled(default_model, num_kv_blocks=0, kv_cache_memory_bytes=5 * BLOCK_BYTES - 1).num_kv_blocks == 4
    assert filled(default_model, num_kv_blocks=7, kv_cache_memory_bytes=0).num_kv_blocks == 7


def test_without_any_figure_the_pool_is_256_mib_or_one_context_of_a_larger_model(default_model: Model) -> None:
    blocks_of_a_context = 8192 // 16
    as_bfloat16 = fill_limits(dataclasses.replace(CONFIG, num_kv_blocks=0), default_model, np.dtype(np.uint16))
    assert as_bfloat16.num_kv_blocks == 256 * 2**20 // (BLOCK_BYTES // 2) > blocks_of_a_context
    assert filled(default_model, num_kv_blocks=0).num_kv_blocks == blocks_of_a_context  # float32: 360 MiB
    long = dataclasses.replace(default_model, context_length=131_072)
    assert filled(long, num_kv_blocks=0).max_model_len == 8192


def test_too_little_memory_for_a_block_is_refused_with_the_figures(default_model: Model) -> None:
    with pytest.raises(InvalidLimits, match=f"is 1000, one block of 16 tokens takes {BLOCK_BYTES}: give at least"):
        filled(default_model, num_kv_blocks=0, kv_cache_memory_bytes=1000)


def test_the_host_pool_holds_whole_blocks_or_is_refused(default_model: Model) -> None:
    assert filled(default_model).swap_space_blocks == 0
    assert filled(default_model, swap_space_bytes=3 * BLOCK_BYTES - 1).swap_space_blocks == 2
    with pytest.raises(InvalidLimits, match=f"swap_space_bytes is 1000, one block of 16 tokens takes {BLOCK_BYTES}"):
        filled(default_model, swap_space_bytes=1000)


def test_the_longest_context_is_the_models_or_what_the_pool_holds(default_model: Model) -> None:
    assert filled(default_model, num_kv_blocks=10_000).max_model_len == 8192
    assert filled(default_model, num_kv_blocks=8).max_model_len == 128
    assert filled(default_model, num_kv_blocks=8, max_model_len=500).max_model_len == 500


def test_a_block_size_of_0_is_refused(default_model: Model) -> None:
    with pytest.raises(InvalidLimits, match="block_size is 0: it must be at least 1"):
        filled(default_model, block_size=0)


def test_a_context_beyond_the_models_is_refused(default_source: ModelSource) -> None:
    config = dataclasses.replace(CONFIG, max_model_len=8193)
    with pytest.raises(InvalidLimits, match="max_model_len is 8193, the model's context length is 8192: lower"):
        build_runner(config, KEY, SystemClock(), default_source)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"backend": "tpu"}, "backend 'tpu' is not known: choose auto or one of"),
        ({"dtype": "float16"}, r"dtype 'float16'.* auto, float32"),
    ],
)
def test_what_no_backend_offers_is_refused(default_source: ModelSource, fields: dict[str, str], message: str) -> None:
    config = dataclasses.replace(CONFIG, **fields)  # type: ignore[arg-type]
    with pytest.raises(EngineError, match=message):
        build_runner(config, KEY, SystemClock(), default_source)


def test_the_account_names_what_decides_the_bits(built: BuiltRunner, default_source: ModelSource) -> None:
    info = built.info
    assert info["backend"] == "reference"
    assert info["numerics_class"].startswith("reference-float32-")
    assert info["numeric_environment"] == "MKL_CBWR=AVX2,STRICT"
    assert info["model"] == DEFAULT_MODEL
    assert info["model_sha256"] == default_source.sha256
    assert info["vocab_size"] == 49152
    assert info["num_threads"] == NUM_THREADS
    assert info["torch"] == torch.__version__
    assert info["p4_holds"] is True
    assert info["self_test_failures"] == []
    assert info["self_test_values_compared"] > 100_000


def test_a_recordings_limits_take_the_place_of_the_configurations(
    default_source: ModelSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a failed self-test withdraws the promise, in words, without stopping the engine."""
    report = SelfTestReport(1_000_000, ("qkv: row 0 alone: 3 of 960 values differ",))
    monkeypatch.setattr(build, "run_self_test", lambda backend, num_threads: report)
    limits = Limits(block_size=8, num_kv_blocks=3, max_model_len=20)
    with structlog.testing.capture_logs() as log:
        built = build_runner(CONFIG, KEY, SystemClock(), default_source, limits)
    assert built.limits == limits
    assert built.runner.kv_store.num_blocks == 3
    assert built.runner.kv_store.block_size == 8
    assert built.info["p4_holds"] is False
    assert [line["log_level"] for line in log] == ["warning"]
    assert built.info["self_test_failures"] == ["qkv: row 0 alone: 3 of 960 values differ"]
