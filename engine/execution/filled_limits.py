"""The core's limits, with what the configuration leaves open derived from the model and from memory.

It must not know backends: what a device has left for the pool is a number here.
"""

from typing import Any

import numpy as np

from engine.config import EngineConfig
from engine.core.errors import InvalidLimits
from engine.core.limits import Limits
from engine.execution.kv_store import default_kv_bytes, kv_block_bytes
from engine.execution.model import Model


def fill_limits(config: EngineConfig, model: Model, kv_dtype: np.dtype[Any], device_bytes: int = 0) -> Limits:
    """The core's limits, with the pool's size and the longest context derived where `config` leaves them open.

    device_bytes   for keys and values on the backend's device, where nothing is said of them; 0: a default
    """
    if config.block_size < 1:
        raise InvalidLimits(f"block_size is {config.block_size}: it must be at least 1")
    num_kv_blocks = config.num_kv_blocks or _blocks_in_memory(config, model, kv_dtype, device_bytes)
    max_model_len = config.max_model_len or min(model.context_length, num_kv_blocks * config.block_size)
    return Limits(
        num_kv_blocks=num_kv_blocks,
        max_model_len=max_model_len,
        swap_space_blocks=_blocks_in_swap_space(config, model, kv_dtype),
        **config.given_limits(),
    )


def _blocks_in_memory(config: EngineConfig, model: Model, kv_dtype: np.dtype[Any], device_bytes: int) -> int:
    block_bytes = block_bytes_of(config, model, kv_dtype)
    default = device_bytes or default_kv_bytes(block_bytes, config.block_size, model.context_length)
    num_bytes = config.kv_cache_memory_bytes or default
    num_blocks = num_bytes // block_bytes
    if num_blocks < 1:
        raise InvalidLimits(
            f"kv_cache_memory_bytes is {config.kv_cache_memory_bytes}, one block of {config.block_size} tokens takes "
            f"{block_bytes}: give at least that much, or set num_kv_blocks"
        )
    return num_blocks


def _blocks_in_swap_space(config: EngineConfig, model: Model, kv_dtype: np.dtype[Any]) -> int:
    block_bytes = block_bytes_of(config, model, kv_dtype)
    num_blocks = config.swap_space_bytes // block_bytes
    if config.swap_space_bytes and num_blocks < 1:
        raise InvalidLimits(
            f"swap_space_bytes is {config.swap_space_bytes}, one block of {config.block_size} tokens takes "
            f"{block_bytes}: give at least that much, or 0 to swap nothing"
        )
    return num_blocks


def block_bytes_of(config: EngineConfig, model: Model, kv_dtype: np.dtype[Any]) -> int:
    """Of one block's keys and values over all layers."""
    return kv_block_bytes(model.parameters.shape, config.block_size, kv_dtype)


def require_positions(limits: Limits, model: Model) -> None:
    """Raises InvalidLimits where the longest request would go beyond the model's context."""
    if limits.max_model_len > model.context_length:
        raise InvalidLimits(
            f"max_model_len is {limits.max_model_len}, the model's context length is {model.context_length}: "
            "lower max_model_len, or leave it at 0"
        )
