"""How soon a request wants to be served: what its body says to the scheduling policies, and nothing of what it asks."""

from typing import NamedTuple


class Urgency(NamedTuple):
    """
    priority         class of the `priority` policy, 0 (most urgent) to 9
    ttft_target_ms   for the `deadline` policy: the first token is wanted so long after arrival; 0 takes the server's
    itl_target_ms    and each further one so long after the one before; 0 takes the server's
    queue_timeout_ms it gives up unless it begins to run so long after arrival; 0 takes the server's
    """

    priority: int = 0
    ttft_target_ms: int = 0
    itl_target_ms: int = 0
    queue_timeout_ms: int = 0
