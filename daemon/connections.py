"""How many connections may be open: as many as was configured, and never more than file descriptors allow.

Each connection is a descriptor, and so are recordings and the engine's sockets, which must not run out: what comes
beyond is answered 503 while there is some room left (`SPARE`), and closed unanswered beyond that. Probes are answered
as long as there is any. It must not know HTTP.
"""

import contextlib
import resource

RESERVED = 192  # descriptors for all but connections: recordings, the engine, exporters, the viewer, libraries
SPARE = 128  # connections beyond the bound that are still told why
_MOST = 1_048_576


class OpenConnections:
    """
    max_open   that are served
    num_open   now
    """

    def __init__(self, max_open: int = 0) -> None:
        """`max_open`: 0 for as many as descriptors allow."""
        allowed = max(1, descriptor_limit() - RESERVED - SPARE)
        self.max_open = min(max_open, allowed) if max_open else allowed
        self.num_open = 0

    @property
    def are_too_many(self) -> bool:
        return self.num_open > self.max_open

    @property
    def are_far_too_many(self) -> bool:
        """Not even an answer can be given any more."""
        return self.num_open > self.max_open + SPARE


def descriptor_limit() -> int:
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST if soft == resource.RLIM_INFINITY else min(soft, _MOST)


def raise_descriptor_limit() -> None:
    """As far as this process may: a shell's default of 1,024 is too little for a server. Its children get it too."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST if hard == resource.RLIM_INFINITY else min(hard, _MOST)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
