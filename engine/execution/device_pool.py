"""The KV pool's memory where nobody says how much and the backend has a device: what serving leaves free there.

A GPU's memory is there to be used, and what is not used for keys and values serves nobody: so the default is a share of
all of it (`gpu_memory_utilization`), less what is in use and what steps will take. It must not know how a backend
reckons that.
"""

from typing import NamedTuple

from engine.config import EngineConfig
from engine.core.errors import InvalidLimits
from kernels.backend import Backend
from kernels.device_backend import DeviceBackend, KVBudget, LargestStep


class DevicePool(NamedTuple):
    """
    num_bytes   for keys and values; 0: the backend has no memory of its own
    info        the figures, for the header of a recording and for people
    """

    num_bytes: int
    info: dict[str, int | float]


def wants_device_pool(config: EngineConfig, backend: Backend) -> bool:
    """The pool's size is left to the device."""
    return isinstance(backend, DeviceBackend) and not (config.num_kv_blocks or config.kv_cache_memory_bytes)


def device_pool(config: EngineConfig, backend: Backend, context_length: int, block_bytes: int) -> DevicePool:
    """Of a backend that is loaded and has no KV memory yet. Raises InvalidLimits, MemoryError."""
    assert isinstance(backend, DeviceBackend), "wants_device_pool has said no"
    longest = config.max_model_len or context_length
    num_blocks = -(-longest // config.block_size)
    largest = LargestStep(config.max_num_batched_tokens, config.max_num_seqs, num_blocks)
    budget = backend.kv_budget(config.gpu_memory_utilization, largest)
    if budget is None:
        return DevicePool(0, {})
    return pool_of(budget, config, num_blocks, block_bytes)


def pool_of(budget: KVBudget, config: EngineConfig, num_blocks: int, block_bytes: int) -> DevicePool:
    """All of the budget, but at most as many whole contexts as can run at once: a larger pool would only remember more
    prefixes, and each block costs the core's keyframes some bytes.

    num_blocks    of a whole context
    Raises InvalidLimits where not even one block is left.
    """
    if budget.kv_bytes < block_bytes:
        raise InvalidLimits(
            f"gpu_memory_utilization is {config.gpu_memory_utilization}: of {budget.limit} bytes that may be used "
            f"{budget.in_use} are, and steps take {budget.reserved} more, so that no block of {block_bytes} bytes is "
            "left: raise it, lower max_num_batched_tokens or max_num_seqs, serve a smaller model, or set "
            "kv_cache_memory_bytes"
        )
    num_bytes = min(budget.kv_bytes, config.max_num_seqs * num_blocks * block_bytes)
    info: dict[str, int | float] = {
        "gpu_memory_utilization": config.gpu_memory_utilization,
        "gpu_memory_bytes": budget.total,
        "gpu_memory_in_use_bytes": budget.in_use,
        "gpu_memory_reserved_bytes": budget.reserved,
    }
    return DevicePool(num_bytes, info)
