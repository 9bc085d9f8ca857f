"""One request's life in plain values, as `show` prints it and spans bear it."""

from typing import Any

from recorder.request_span import RequestSpan


def request_values(span: RequestSpan) -> dict[str, Any]:
    """One request in plain values, times in milliseconds."""
    return {
        "request": span.request,
        "request_id": span.request_id,
        "num_prompt_tokens": span.num_prompt_tokens,
        "num_output_tokens": span.num_output_tokens,
        "num_cached_tokens": max(0, span.num_cached_tokens),
        "num_preemptions": span.num_preemptions,
        "num_swaps": span.num_swaps,
        "num_handovers": span.num_handovers,
        "num_prefill_chunks": span.num_prefill_chunks,
        "queue_ms": _ms(span.queue_ns),
        "ttft_ms": _ms(span.ttft_ns),
        "tpot_ms": _ms(span.tpot_ns),
        "e2e_ms": _ms(span.e2e_ns),
        "deferred_ms": {reason: nanoseconds / 1e6 for reason, nanoseconds in span.deferred_ns.items()},
        "outcome": str(span.outcome),
    }


def flat_request_values(span: RequestSpan) -> dict[str, Any]:
    """What `show` says of a request, without nesting: `deferred_ms.REASON` for each reason."""
    values = request_values(span)
    deferred: dict[str, float] = values.pop("deferred_ms")
    return values | {f"deferred_ms.{reason}": value for reason, value in deferred.items()}


def _ms(nanoseconds: float | None) -> float | None:
    return None if nanoseconds is None else nanoseconds / 1e6
