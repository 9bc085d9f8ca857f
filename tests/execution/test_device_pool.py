"""The default size of a KV pool on a device: its share of the memory, less what is used, within what is of use."""

import dataclasses

import pytest

from engine.config import EngineConfig
from engine.core.errors import InvalidLimits
from engine.execution.device_pool import pool_of, wants_device_pool
from engine.text.model_source import DEFAULT_MODEL
from kernels.device_backend import KVBudget
from kernels.reference import ReferenceBackend

GIB = 2**30
H200 = KVBudget(total=140 * GIB, in_use=20 * GIB, reserved=2 * GIB, limit=126 * GIB)
CONFIG = EngineConfig(model=DEFAULT_MODEL, max_num_seqs=64)
BLOCK_BYTES = 2 * GIB // 1024


def test_the_pool_takes_what_steps_leave_of_the_share() -> None:
    pool = pool_of(H200, CONFIG, 8192, BLOCK_BYTES)
    assert pool.num_bytes == (126 - 20 - 2) * GIB
    assert pool.info["gpu_memory_reserved_bytes"] == 2 * GIB


def test_no_more_than_all_that_can_run_at_once() -> None:
    assert pool_of(H200, CONFIG, 512, BLOCK_BYTES).num_bytes == 64 * 512 * BLOCK_BYTES


def test_a_device_that_is_full_is_refused_with_the_figures() -> None:
    full = dataclasses.replace(CONFIG, gpu_memory_utilization=0.15)
    budget = H200._replace(limit=21 * GIB)
    with pytest.raises(InvalidLimits, match=f"is 0.15: of {21 * GIB} bytes that may be used {20 * GIB} are"):
        pool_of(budget, full, 512, BLOCK_BYTES)


def test_a_backend_without_a_device_of_its_own_is_not_asked() -> None:
    assert not wants_device_pool(CONFIG, ReferenceBackend(1))
