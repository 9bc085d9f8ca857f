"""Frequencies of the rotary embedding, scaled as a model asks. Float64 throughout."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from engine.core.errors import ModelError


def inverse_frequencies(theta: float, head_dim: int) -> list[float]:
    """head_dim / 2 frequencies in radians per position, highest first. Source: Su et al., RoFormer, 2021."""
    return [theta ** (-2.0 * index / head_dim) for index in range(head_dim // 2)]


def scaled_frequencies(frequencies: Sequence[float], scaling: Mapping[str, Any]) -> tuple[float, ...]:
    """`frequencies` under a config.json's scaling: rope_type default, linear or llama3. Raises ModelError on others."""
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if kind == "default":
        return tuple(frequencies)
    if kind == "linear":
        return tuple([frequency / _figure(scaling, "factor") for frequency in frequencies])
    if kind == "llama3":
        return tuple([_llama3(frequency, scaling) for frequency in frequencies])
    raise ModelError(f"rope_type is {kind!r}: default, linear and llama3 are supported, serve a model with one of them")


def divided_frequencies(frequencies: Sequence[float], factors: Sequence[float]) -> tuple[float, ...]:
    """`frequencies` divided by a GGUF file's own factors (tensor rope_freqs.weight)."""
    if len(factors) != len(frequencies):
        raise ModelError(f"rope_freqs.weight holds {len(factors)} factors, expected {len(frequencies)} (head_dim / 2)")
    return tuple([frequency / factor for frequency, factor in zip(frequencies, factors, strict=True)])


def _llama3(frequency: float, scaling: Mapping[str, Any]) -> float:
    """Long wavelengths are stretched by `factor`, short ones kept, those between blended. Source: Llama 3.1."""
    factor = _figure(scaling, "factor")
    low, high = _figure(scaling, "low_freq_factor"), _figure(scaling, "high_freq_factor")
    original = _figure(scaling, "original_max_position_embeddings")
    wavelength = 2.0 * math.pi / frequency
    if wavelength < original / high:
        return frequency
    if wavelength > original / low:
        return frequency / factor
    blend = (original / wavelength - low) / (high - low)
    return (1.0 - blend) * frequency / factor + blend * frequency


def _figure(scaling: Mapping[str, Any], name: str) -> float:
    value = scaling.get(name)
    if not isinstance(value, int | float) or value <= 0:
        raise ModelError(f"rope scaling's {name} is {value!r}: a number above 0 is needed, the metadata is wrong")
    return float(value)
