"""The attributes of a request's span: GenAI's names, vLLM's, and under `reprise.` what `show` says.

A recording older than these fields says of each that it was a completion, and not of any that it was streamed.

Source: open-telemetry/semantic-conventions-genai.
"""

from typing import Any

from engine.core.events import RequestArrived
from recorder.request_span import RequestSpan
from recorder.spans.request_values import flat_request_values

ENDS_OF_THEIR_OWN = ("stop", "length", "")


def request_attributes(arrived: RequestArrived, span: RequestSpan, model: str, *, vllm_names: bool) -> dict[str, Any]:
    """The span of a request: a time that did not happen is left out."""
    shown = flat_request_values(span)
    sampling = arrived.sampling
    values: dict[str, Any] = {
        "gen_ai.operation.name": arrived.operation,
        "gen_ai.provider.name": "reprise",
        "gen_ai.request.model": model,
        "gen_ai.request.max_tokens": arrived.max_output_tokens,
        "gen_ai.request.temperature": sampling.temperature,
        "gen_ai.request.top_p": sampling.top_p,
        "gen_ai.request.top_k": sampling.top_k,
        "gen_ai.request.seed": sampling.seed,
        "gen_ai.request.frequency_penalty": sampling.frequency_penalty,
        "gen_ai.request.presence_penalty": sampling.presence_penalty,
        "gen_ai.response.id": arrived.request_id,
        "gen_ai.response.model": model,
        "gen_ai.usage.input_tokens": span.num_prompt_tokens,
        "gen_ai.usage.output_tokens": span.num_output_tokens,
        "gen_ai.usage.cache_read.input_tokens": shown["num_cached_tokens"],
    }
    if arrived.is_streamed:
        values["gen_ai.request.stream"] = True
    if arrived.num_choices > 1:
        values["gen_ai.request.choice.count"] = arrived.num_choices
    if span.ttft_ns is not None:
        values["gen_ai.response.time_to_first_chunk"] = span.ttft_ns / 1e9
    if span.outcome in ENDS_OF_THEIR_OWN:
        values["gen_ai.response.finish_reasons"] = [str(span.outcome)] if span.outcome else []
    else:
        values["error.type"] = str(span.outcome)
    if vllm_names:
        values |= _vllm_values(arrived, span)
    values["reprise.tenant"], values["reprise.priority"] = arrived.tenant, arrived.priority
    return values | {f"reprise.{name}": value for name, value in shown.items() if value is not None}


def _vllm_values(arrived: RequestArrived, span: RequestSpan) -> dict[str, Any]:
    """Times in seconds, as vLLM's `llm_request` has them; those that did not happen are left out."""
    times = {
        "time_in_queue": span.queue_ns,
        "time_to_first_token": span.ttft_ns,
        "e2e": span.e2e_ns,
        "time_in_model_prefill": span.prefill_ns,
        "time_in_model_decode": span.decode_ns,
        "time_in_model_inference": span.inference_ns,
    }
    return {
        "gen_ai.request.id": arrived.request_id,
        **({"gen_ai.request.n": arrived.num_choices} if arrived.num_choices else {}),
        "gen_ai.usage.prompt_tokens": span.num_prompt_tokens,
        "gen_ai.usage.completion_tokens": span.num_output_tokens,
        **{f"gen_ai.latency.{name}": value / 1e9 for name, value in times.items() if value is not None},
    }
