"""Loads the compiled library and mirrors its C interface (`src/c_api.cpp`).

The instruction set is the best one that the processor has; REPRISE_CPU_INSTRUCTION_SET (avx512, avx2, portable) chooses
another. It must not know models, steps or torch.
"""

import ctypes as c
import os
from pathlib import Path

from kernels.cpu.build_library import INSTRUCTION_SETS, SOURCES, library_name, source_digest

_VARIABLE = "REPRISE_CPU_INSTRUCTION_SET"
_FOLDER = Path(__file__).parent
_REBUILD = "run `make install`, or `python kernels/cpu/build_library.py` in a checkout"


class LibraryUnavailable(Exception):
    """The native library cannot be used here; the text says why and what to do."""


class StoredRows(c.Structure):
    """A weight as it lies in its file; format is a number of `FORMAT_NUMBERS`."""

    _fields_ = (
        ("format", c.c_int32),
        ("num_rows", c.c_int),
        ("num_columns", c.c_int),
        ("bytes", c.c_void_p),
        ("row_bytes", c.c_size_t),
        ("order", c.c_void_p),
    )


class Shape(c.Structure):
    """DecoderShape in src/decoder.h; activation is a number of `ACTIVATION_NUMBERS`."""

    _fields_ = (
        ("num_layers", c.c_int),
        ("hidden_size", c.c_int),
        ("intermediate_size", c.c_int),
        ("num_heads", c.c_int),
        ("num_kv_heads", c.c_int),
        ("head_dim", c.c_int),
        ("vocab_size", c.c_int),
        ("norm_epsilon", c.c_float),
        ("embedding_scale", c.c_float),
        ("attention_scale", c.c_float),
        ("activation", c.c_int32),
        ("has_post_norms", c.c_int),
        ("window", c.c_int),
    )


class StepInput(c.Structure):
    _fields_ = (
        ("num_rows", c.c_int),
        ("num_sequences", c.c_int),
        ("num_logits", c.c_int),
        ("table_stride", c.c_int),
        ("token_ids", c.c_void_p),
        ("positions", c.c_void_p),
        ("slot_mapping", c.c_void_p),
        ("query_starts", c.c_void_p),
        ("block_tables", c.c_void_p),
        ("logit_rows", c.c_void_p),
        ("keys", c.c_void_p),
        ("values", c.c_void_p),
        ("layer_elements", c.c_int64),
        ("block_size", c.c_int),
        ("is_bfloat", c.c_int),
    )


class StepOutput(c.Structure):
    _fields_ = (
        ("hidden", c.c_void_p),
        ("logits", c.c_void_p),
        ("statistics", c.c_void_p),
        ("logits_stride", c.c_int64),
    )


class ScoreInput(c.Structure):
    """In src/decoder.h, as the next one."""

    _fields_ = (
        ("num_rows", c.c_int),
        ("num_top", c.c_int),
        ("rows", c.c_void_p),
        ("token_ids", c.c_void_p),
    )


class ScoreOutput(c.Structure):
    _fields_ = (("scored", c.c_void_p), ("alternatives", c.c_void_p))


class LogitRows(c.Structure):
    """Rows to draw from, `stride` floats apart, and what the step has found out about each."""

    _fields_ = (
        ("logits", c.c_void_p),
        ("stride", c.c_int64),
        ("length", c.c_int),
        ("statistics", c.c_void_p),
    )


class BlockMemory(c.Structure):
    """Where KV blocks lie; strides in bytes, `num_words` of 8 bytes each in one piece."""

    _fields_ = (
        ("keys", c.c_void_p),
        ("values", c.c_void_p),
        ("layer_bytes", c.c_int64),
        ("block_bytes", c.c_int64),
        ("num_words", c.c_int64),
        ("num_layers", c.c_int64),
    )


FORMAT_NUMBERS = {"F32": 0, "F16": 1, "BF16": 2, "Q4_0": 3, "Q4_1": 4, "Q8_0": 5, "Q4_K": 6, "Q6_K": 7, "Q5_0": 8}
ACTIVATION_NUMBERS = {"silu": 0, "gelu_tanh": 1}
MATRICES = ("q", "k", "v", "o", "gate", "up", "down")
VECTORS = (
    *("attention_norm", "mlp_norm", "q_bias", "k_bias", "v_bias", "q_norm", "k_norm"),
    *("post_attention_norm", "post_mlp_norm"),
)
OUTSIDE_LAYERS = -1  # the head among the matrices, the final norm among the vectors

_SIGNATURES: dict[str, tuple[type | None, tuple[type, ...]]] = {
    "reprise_instruction_set": (c.c_char_p, ()),
    "reprise_source_digest": (c.c_char_p, ()),
    "reprise_last_error": (c.c_char_p, ()),
    "reprise_best_instruction_set": (c.c_int, ()),
    "reprise_create": (c.c_void_p, (c.c_void_p, c.c_int, c.c_void_p, c.c_void_p, c.c_int)),
    "reprise_destroy": (None, (c.c_void_p,)),
    "reprise_set_num_threads": (c.c_int, (c.c_void_p, c.c_int)),
    "reprise_set_matrix": (c.c_int, (c.c_void_p, c.c_int, c.c_int, c.c_void_p)),
    "reprise_set_vector": (c.c_int, (c.c_void_p, c.c_int, c.c_int, c.c_void_p, c.c_int)),
    "reprise_set_local": (None, (c.c_void_p, c.c_int)),
    "reprise_set_embedding": (None, (c.c_void_p, c.c_void_p)),
    "reprise_step": (c.c_int, (c.c_void_p, c.c_void_p, c.c_void_p)),
    "reprise_step_traced": (c.c_int, (c.c_void_p, c.c_void_p, c.c_void_p, c.c_void_p)),
    "reprise_apply": (c.c_int, (c.c_void_p, c.c_int, c.c_int, c.c_void_p, c.c_int, c.c_void_p, c.c_int64)),
    "reprise_score": (c.c_int, (c.c_void_p, c.c_void_p, c.c_void_p)),
    "reprise_draw": (c.c_int, (c.c_void_p, c.c_void_p, c.c_void_p, c.c_int, c.c_void_p)),
    "reprise_digest_blocks": (c.c_int, (c.c_void_p, c.c_void_p, c.c_void_p, c.c_int, c.c_void_p)),
    "reprise_measure": (c.c_int, (c.c_void_p, c.c_int, c.c_void_p)),
    "reprise_waits": (None, (c.c_void_p, c.c_void_p, c.c_void_p)),
    "reprise_exp": (None, (c.c_void_p, c.c_int, c.c_void_p)),
    "reprise_rms_norm": (None, (c.c_void_p, c.c_void_p, c.c_int, c.c_float, c.c_void_p)),
    "reprise_rotate": (None, (c.c_void_p, c.c_int, c.c_void_p, c.c_void_p)),
    "reprise_gated": (None, (c.c_int32, c.c_void_p, c.c_void_p, c.c_int, c.c_void_p)),
    "reprise_decode_row": (None, (c.c_void_p, c.c_int, c.c_void_p)),
    "reprise_row_statistics": (None, (c.c_void_p, c.c_int, c.c_void_p)),
}


def load_library(instruction_set: str | None = None) -> c.CDLL:
    """The library for `instruction_set`, for the environment's choice, or for the best one the processor has.

    Raises LibraryUnavailable.
    """
    chosen = instruction_set or os.environ.get(_VARIABLE) or best_instruction_set()
    if chosen not in INSTRUCTION_SETS:
        raise LibraryUnavailable(
            f"instruction set {chosen!r} is not known: choose one of {', '.join(INSTRUCTION_SETS)}"
        )
    available = available_instruction_sets()
    if chosen not in available:
        raise LibraryUnavailable(f"this processor has no {chosen}: choose one of {', '.join(available)}")
    return _open(chosen)


def best_instruction_set() -> str:
    """Name of the fastest instruction set that the processor has. Raises LibraryUnavailable."""
    return available_instruction_sets()[0]


def available_instruction_sets() -> list[str]:
    """All that run here, fastest first. Raises LibraryUnavailable."""
    best: int = _open("portable").reprise_best_instruction_set()
    return list(INSTRUCTION_SETS)[len(INSTRUCTION_SETS) - 1 - best :]


def raise_if_failed(library: c.CDLL, result: object) -> None:
    """Raises MemoryError with the library's own text where a call returned 0 or null."""
    if not result:
        raise MemoryError(f"the CPU backend ran out of memory: {library.reprise_last_error().decode()}")


def _open(instruction_set: str) -> c.CDLL:
    path = _FOLDER / library_name(instruction_set)
    if not path.is_file():
        raise LibraryUnavailable(f"{path.name} is not built, which needs a C++ compiler at install: {_REBUILD}")
    try:
        library = c.CDLL(str(path))
    except OSError as error:
        raise LibraryUnavailable(f"{path.name} cannot be loaded ({error}): {_REBUILD}") from error
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(library, name, None)
        if function is None:
            raise LibraryUnavailable(f"{path.name} lacks {name}, it is of another version: {_REBUILD}")
        function.restype, function.argtypes = result, arguments
    if SOURCES.is_dir() and library.reprise_source_digest().decode() != source_digest():
        raise LibraryUnavailable(f"{path.name} was built from other sources than those beside it: {_REBUILD}")
    return library
