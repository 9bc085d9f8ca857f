"""Chooses a backend once, at start, and names the class of bits it gives.

Equal numerics class ⇒ equal bits: replay compares classes before it compares anything else. A backend is added by one
line in BACKENDS; "auto" takes the first of `automatic()` that runs this model here, and says why it passed over others.
A backend that needs torch or triton is imported when it is chosen, and "auto" looks at cuda where a driver shows a
device only: a machine without one loads neither.
"""

import hashlib
import json
import os
from collections.abc import Callable
from typing import NamedTuple

from kernels.backend import Backend, DecoderShape
from kernels.cpu.backend import KV_DTYPES, CpuBackend, unsupported_reason
from kernels.cpu.library import LibraryUnavailable
from kernels.cuda_driver import ask_driver
from kernels.numeric_environment import fix_numeric_environment


class UnknownBackend(Exception):
    """No backend of this name is built in, or it cannot run this model here; the text says why."""


class Choice(NamedTuple):
    """
    passed_over   why "auto" did not take a faster backend; "" where it took the first
    """

    backend: Backend
    passed_over: str


def choose_backend(name: str, num_threads: int, dtype: str, shape: DecoderShape) -> Choice:
    """The backend called `name`, or for "auto" the fastest that runs, with so many threads.

    dtype   "auto" or one of the backend's own: of keys and values for cuda and cpu, of everything for reference
    Raises UnknownBackend.
    """
    if name != "auto" and name not in BACKENDS:
        raise UnknownBackend(f"backend {name!r} is not known: choose auto or one of {', '.join(BACKENDS)}")
    reasons: list[str] = []
    for candidate in automatic() if name == "auto" else (name,):
        try:
            return Choice(BACKENDS[candidate](num_threads, dtype, shape), "; ".join(reasons))
        except UnknownBackend as error:
            reasons.append(str(error))
    raise UnknownBackend("; ".join(reasons))


def automatic() -> tuple[str, ...]:
    """What "auto" tries here, the fastest first."""
    return ("cuda", "cpu", "reference") if ask_driver().devices else ("cpu", "reference")


def numerics_class(backend: Backend, weights_sha256: str) -> str:
    """Readable prefix and digest of everything that decides the bits, e.g. "reference-float32-0f1e2d3c4b5a"."""
    parts = json.dumps({**backend.numerics(), "weights": weights_sha256}, sort_keys=True)
    return f"{backend.name}-{backend.dtype}-{hashlib.sha256(parts.encode()).hexdigest()[:12]}"


def _cpu(num_threads: int, dtype: str, shape: DecoderShape) -> Backend:
    _require_dtype("cpu", dtype, ("auto", *KV_DTYPES))
    reason = unsupported_reason(shape)
    if reason is not None:
        raise UnknownBackend(f"backend cpu cannot run this model: {reason}")
    try:
        return CpuBackend(num_threads, dtype)
    except LibraryUnavailable as error:
        raise UnknownBackend(f"backend cpu cannot be used: {error}") from error


def _cuda(num_threads: int, dtype: str, shape: DecoderShape) -> Backend:
    """In triton's interpreter where TRITON_INTERPRET=1: on any machine, thousands of times slower."""
    _require_dtype("cuda", dtype, ("auto", *CUDA_DTYPES))
    missing = "" if os.environ.get("TRITON_INTERPRET") == "1" else ask_driver().missing
    if missing:
        raise UnknownBackend(f"backend cuda cannot be used: {missing}")
    try:
        from kernels.cuda.backend import CudaBackend, unsupported_reason  # torch and triton with it
        from kernels.cuda.launch import CudaUnavailable
    except ImportError as error:
        raise UnknownBackend(f"backend cuda cannot be used: {error}; install torch for CUDA, and triton") from error
    reason = unsupported_reason(shape)
    if reason is not None:
        raise UnknownBackend(f"backend cuda cannot run this model: {reason}")
    try:
        return CudaBackend(dtype)
    except CudaUnavailable as error:
        raise UnknownBackend(f"backend cuda cannot be used: {error}") from error


def _reference(num_threads: int, dtype: str, shape: DecoderShape) -> Backend:
    _require_dtype("reference", dtype, ("auto", "float32"))
    fix_numeric_environment()
    from kernels.reference import ReferenceBackend  # torch with it, which nothing else needs

    return ReferenceBackend(num_threads)


def _require_dtype(backend: str, dtype: str, known: tuple[str, ...]) -> None:
    if dtype not in known:
        raise UnknownBackend(f"backend {backend} has no dtype {dtype!r}: set one of {', '.join(known)}")


CUDA_DTYPES = ("bfloat16", "float8")  # of keys and values; float8 is e4m3 with a scale of 1, a class of its own
BACKENDS: dict[str, Callable[[int, str, DecoderShape], Backend]] = {
    "cuda": _cuda,
    "cpu": _cpu,
    "reference": _reference,
}
