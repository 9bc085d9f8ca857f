"""How many calls were answered with an error, by status and the code in its body: most never reach the engine's stream.

Codes are those of `errors.py` and its callers, so there is a bounded number of them, whatever clients send. It must
not know HTTP.
"""

from collections import Counter

from daemon.errors import ApiError

# There from the start, so that a first refusal is a jump that a rate can see.
_EXPECTED = (
    *((401, "invalid_api_key"), (403, "not_an_admin"), (413, "body_too_large")),
    *((429, "token_rate_exceeded"), (429, "too_many_requests"), (429, "tenant_queue_full")),
    *((500, "internal_error"), (500, "step_failed"), (500, "request_kills_engine")),
    *((503, "queue_full"), (503, "draining"), (503, "overloaded"), (503, "too_many_connections")),
    *((503, "engine_not_ready"), (503, "engine_lost"), (504, "queue_timeout")),
)


class Refusals:
    """
    by_answer   (status, code) → calls; the code is "" for an answer that has none
    """

    def __init__(self) -> None:
        self.by_answer: Counter[tuple[str, ...]] = Counter({(str(status), code): 0 for status, code in _EXPECTED})

    def note(self, error: ApiError) -> None:
        self.by_answer[str(error.status), error.code or ""] += 1
