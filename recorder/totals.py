"""What all entries so far add up to: counters that never fall, and histograms.

Histograms bear the names under which /metrics shows them (without prefix), times in seconds.
"""

from collections import Counter
from typing import Any

from recorder.histogram import (
    CHOICES,
    PREEMPTIONS,
    REQUEST_SECONDS,
    REQUEST_TOKENS,
    STEP_PHASE_SECONDS,
    STEP_TOKENS,
    TOKEN_GAP_SECONDS,
    TTFT_SECONDS,
    Histogram,
)
from recorder.request_span import RequestSpan


class Totals:
    """
    num_requests             that arrived and were not refused
    rejected, finished       by reason
    cancels                  RequestCancelled events by cause, those for requests that had ended included
    prompt_tokens            of requests whose first token was emitted: computed, or found in the prefix cache
    generation_tokens        emitted, each once
    num_tokens_emitted_again of handed-over requests: recorded by an engine that died before it had delivered them, and
                             emitted once more, equal, by the next
    num_handovers            requests that went on in another engine when theirs had died, each time counted
    prefix_cache_queries     prompt tokens looked up, at first admission
    prefix_cache_hits        of these, found
    num_tokens_lost          computed tokens given up by preemptions
    num_swaps                preemptions by swap; num_swapped_out_blocks, num_swapped_in_blocks: copied for them
    swap_ns                  time that these copies took
    num_cascades             preemptions whose beneficiary was preempted in turn: each chain counts once
    longest_cascade          most preemptions of one chain, each the next one's cause; 1 where there was no cascade
    num_thrashings           times that thrashing began
    num_kv_mismatches        times that a block did not hold what was written to it
    audits                   AuditCompleted events by result; num_audited_tokens: compared in them
    num_evicted_blocks       cached blocks given up for new ones
    deferrals                RequestDeferred decisions by reason; deferred_ns: time that ended requests waited for each
    num_decisions            type of the decision → how many
    preemptions, starvations by reason, by cause
    step_…_seconds           what each phase took of each step: swaps (of steps that had some), model, sampler, and the
                             rest: deciding, recording, passing on
    num_steps                executed; execute_ns (model) and sample_ns (sampler) are the sums over them
    step_ns                  sum over them of the time from planning a step to handling its result: what is more than
                             execute_ns and sample_ns went into deciding, recording and passing on
    """

    def __init__(self) -> None:
        self.num_requests = 0
        self.rejected: Counter[str] = Counter()
        self.finished: Counter[str] = Counter()
        self.cancels: Counter[str] = Counter()
        self.prompt_tokens = 0
        self.generation_tokens = 0
        self.num_tokens_emitted_again = 0
        self.num_handovers = 0
        self.prefix_cache_queries = 0
        self.prefix_cache_hits = 0
        self.num_preemptions = 0
        self.num_tokens_lost = 0
        self.num_swaps = 0
        self.num_swapped_out_blocks = 0
        self.num_swapped_in_blocks = 0
        self.swap_ns = 0
        self.num_cascades = 0
        self.longest_cascade = 0
        self.num_thrashings = 0
        self.num_kv_mismatches = 0
        self.audits: Counter[str] = Counter()
        self.num_audited_tokens = 0
        self.num_evicted_blocks = 0
        self.deferrals: Counter[str] = Counter()
        self.deferred_ns: Counter[str] = Counter()
        self.num_decisions: dict[type[Any], int] = {}
        self.preemptions: Counter[str] = Counter()
        self.starvations: Counter[str] = Counter()
        self.num_steps = 0
        self.num_failed_steps = 0
        self.execute_ns = 0
        self.sample_ns = 0
        self.step_ns = 0
        self.iteration_tokens = Histogram(STEP_TOKENS)
        self.time_to_first_token_seconds = Histogram(TTFT_SECONDS)
        self.inter_token_latency_seconds = Histogram(TOKEN_GAP_SECONDS)
        self.request_time_per_output_token_seconds = Histogram(TOKEN_GAP_SECONDS)
        self.e2e_request_latency_seconds = Histogram(REQUEST_SECONDS)
        self.request_queue_time_seconds = Histogram(REQUEST_SECONDS)
        self.request_prefill_time_seconds = Histogram(REQUEST_SECONDS)
        self.request_decode_time_seconds = Histogram(REQUEST_SECONDS)
        self.request_inference_time_seconds = Histogram(REQUEST_SECONDS)
        self.request_prompt_tokens = Histogram(REQUEST_TOKENS)
        self.request_generation_tokens = Histogram(REQUEST_TOKENS)
        self.request_params_max_tokens = Histogram(REQUEST_TOKENS)
        self.request_params_n = Histogram(CHOICES)
        self.request_num_preemptions = Histogram(PREEMPTIONS)
        self.preemption_chain_length = Histogram(PREEMPTIONS)
        self.step_swap_seconds = Histogram(STEP_PHASE_SECONDS)
        self.step_execute_seconds = Histogram(STEP_PHASE_SECONDS)
        self.step_sample_seconds = Histogram(STEP_PHASE_SECONDS)
        self.step_rest_seconds = Histogram(STEP_PHASE_SECONDS)

    def add_ended(self, span: RequestSpan) -> None:
        """Observe an ended request, whatever its end, in each histogram for which its span happened."""
        self.request_prompt_tokens.observe(span.num_prompt_tokens)
        self.request_generation_tokens.observe(span.num_output_tokens)
        self.request_params_max_tokens.observe(span.max_output_tokens)
        if span.num_choices:  # each choice is a request of its own here, and its call counts once
            self.request_params_n.observe(span.num_choices)
        self.request_num_preemptions.observe(span.num_preemptions)
        self.deferred_ns.update(span.deferred_ns)
        for seconds, nanoseconds in (
            (self.e2e_request_latency_seconds, span.e2e_ns),
            (self.request_queue_time_seconds, span.queue_ns),
            (self.request_prefill_time_seconds, span.prefill_ns),
            (self.request_decode_time_seconds, span.decode_ns),
            (self.request_inference_time_seconds, span.inference_ns),
            (self.request_time_per_output_token_seconds, span.tpot_ns),
        ):
            if nanoseconds is not None:
                seconds.observe_of(nanoseconds / 1e9, span)
