"""Chooses a backend once, at start, and names the class of bits it gives.

Equal numerics class ⇒ equal bits: replay compares classes before it compares anything else. A backend is added by one
line in BACKENDS; "auto" takes the first that runs here.
"""

import hashlib
import json
from collections.abc import Callable

from kernels.backend import Backend
from kernels.reference import ReferenceBackend

BACKENDS: dict[str, Callable[[int], Backend]] = {
    "reference": ReferenceBackend,
}


class UnknownBackend(Exception):
    """No backend of this name is built in."""


def choose_backend(name: str, num_threads: int) -> Backend:
    """The backend called `name`, or for "auto" the first there is, with so many threads. Raises UnknownBackend."""
    chosen = next(iter(BACKENDS)) if name == "auto" else name
    factory = BACKENDS.get(chosen)
    if factory is None:
        raise UnknownBackend(f"backend {name!r} is not known: choose auto or one of {', '.join(BACKENDS)}")
    return factory(num_threads)


def numerics_class(backend: Backend, weights_sha256: str) -> str:
    """Readable prefix and digest of everything that decides the bits, e.g. "reference-float32-0f1e2d3c4b5a"."""
    parts = json.dumps({**backend.numerics(), "weights": weights_sha256}, sort_keys=True)
    return f"{backend.name}-{backend.dtype}-{hashlib.sha256(parts.encode()).hexdigest()[:12]}"
