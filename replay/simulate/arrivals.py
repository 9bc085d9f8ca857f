"""What a trace gives: who comes when, with how many tokens; and how a trace is fitted to a model and a machine.

It must not know formats, nor the core.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil
from typing import Any

from engine.core.errors import EngineError

NS_PER_S = 1_000_000_000
_MAX_DENOMINATOR = 4_096  # 0.1 is a tenth


class UnusableTrace(EngineError):
    """The trace cannot be read or does not fit what is asked of it: what is wrong, and what to do."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request of a trace.

    at_ns                since the trace's beginning; a reader gives -1 where the trace has no time, to be drawn
    max_output_tokens    what the client allows; it stops by itself after num_output_tokens
    prefix_ids           of its prompt's pieces of `tokens_per_id` tokens each, the last one perhaps not full; equal ids
                         at equal places are equal prefixes. Empty where the trace tells none: then nothing is shared
    name                 what the trace calls it; "" for most
    body                 `prompt` or `messages` as an API takes them, where the trace holds the words themselves: only
                         for who sends them
    """

    at_ns: int
    num_prompt_tokens: int
    num_output_tokens: int
    tenant: str = ""
    priority: int = 0
    max_output_tokens: int = 0
    prefix_ids: tuple[int, ...] = ()
    tokens_per_id: int = 0
    name: str = ""
    body: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Fitting:
    """
    from_s, to_s         of the trace's own time; what lies outside is left out
    num_requests         at most, the first ones; 0: all
    repeat               so many times, one after the other
    divide_prompt, divide_output   lengths, rounded up
    stretch              gaps between arrivals become so many times as long
    scale_lengths        prompt and output lengths become so many times as long, rounded up
    num_classes          priorities 0 … num_classes - 1, drawn by the request's place in the trace; 1: the trace's own
    max_output_tokens    what every client allows; 0: what the trace says, else exactly what it will use
    max_model_len        prompt and allowed output together; a longer prompt is left as it is, to be refused
    """

    from_s: float = 0
    to_s: float = float("inf")
    num_requests: int = 0
    repeat: int = 1
    divide_prompt: int = 1
    divide_output: int = 1
    stretch: float = 1
    scale_lengths: float = 1
    num_classes: int = 1
    max_output_tokens: int = 0
    max_model_len: int = 8192


def fitted(arrivals: Sequence[Arrival], fitting: Fitting) -> list[Arrival]:
    """In order of time, beginning at 0. Raises UnusableTrace when nothing is left, or a division splits prefixes."""
    begin_ns, end_ns = fitting.from_s * NS_PER_S, fitting.to_s * NS_PER_S
    cut = [arrival for arrival in arrivals if begin_ns <= arrival.at_ns < end_ns]
    cut = cut[: fitting.num_requests or None]
    if not cut:
        raise UnusableTrace(f"the trace has no arrival from {fitting.from_s:g} s to {fitting.to_s:g} s")
    first_ns, span_ns = cut[0].at_ns, cut[-1].at_ns - cut[0].at_ns
    mean_gap_ns = span_ns // len(cut)
    return [
        _fit(arrival, number, arrival.at_ns - first_ns + turn * (span_ns + mean_gap_ns), fitting)
        for turn in range(fitting.repeat)
        for number, arrival in enumerate(cut, turn * len(cut))
    ]


def _fit(arrival: Arrival, number: int, at_ns: int, fitting: Fitting) -> Arrival:
    scale = Fraction(fitting.scale_lengths).limit_denominator(_MAX_DENOMINATOR)
    prompt_scale, output_scale = scale / fitting.divide_prompt, scale / fitting.divide_output
    num_prompt_tokens = max(1, ceil(arrival.num_prompt_tokens * prompt_scale))
    num_output_tokens = max(1, ceil(arrival.num_output_tokens * output_scale))
    tokens_per_id = arrival.tokens_per_id * prompt_scale
    if arrival.prefix_ids and (tokens_per_id.denominator != 1 or not tokens_per_id):
        raise UnusableTrace(
            f"the trace names prefixes of {arrival.tokens_per_id} tokens, which cannot be divided by "
            f"{1 / prompt_scale}: choose a divisor of {arrival.tokens_per_id}"
        )
    allowed = fitting.max_output_tokens or max(ceil(arrival.max_output_tokens * output_scale), num_output_tokens)
    room = max(1, fitting.max_model_len - num_prompt_tokens)
    return replace(
        arrival,
        at_ns=int(at_ns * fitting.stretch),
        num_prompt_tokens=num_prompt_tokens,
        num_output_tokens=min(num_output_tokens, allowed, room),
        max_output_tokens=min(allowed, room),
        priority=_draw(number) % fitting.num_classes if fitting.num_classes > 1 else arrival.priority,
        tokens_per_id=int(tokens_per_id),
    )


def _draw(number: int) -> int:
    return int.from_bytes(hashlib.blake2b(b"class %d" % number, digest_size=8).digest(), "little")
