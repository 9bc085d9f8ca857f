"""How soon a request wants to be served, and for whom: what its body and its key say to the scheduling policies."""

from typing import NamedTuple

from daemon.api_keys import DEFAULT_TENANT


class Urgency(NamedTuple):
    """
    priority         class of the `priority` policy, 0 (most urgent) to 9; None takes the caller's
    ttft_target_ms   for the `deadline` policy: the first token is wanted so long after arrival; 0 takes the server's
    itl_target_ms    and each further one so long after the one before; 0 takes the server's
    queue_timeout_ms it gives up unless it begins to run so long after arrival; 0 takes the server's
    """

    priority: int | None = None
    ttft_target_ms: int = 0
    itl_target_ms: int = 0
    queue_timeout_ms: int = 0
    tenant: str = DEFAULT_TENANT
