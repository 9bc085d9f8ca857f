"""A prompt for each arrival of a trace: its own words where it has them, else made up, prefixes shared as it says.

A piece of a prompt is drawn from its id and the content key alone, so equal ids are equal words, and another key asks
with other words. It knows no times.
"""

from collections.abc import Sequence

from daemon.bench.draws import draws_for
from daemon.bench.prompts import IdRange, Prompt, draw_ids, draw_text
from replay.simulate.arrivals import Arrival


def trace_prompts(arrivals: Sequence[Arrival], form: str, content_key: object, id_range: IdRange) -> list[Prompt]:
    """
    form   of the made-up ones: text, ids, or chat; as in `daemon/bench/prompts.py`
    """
    return [
        _own(arrival) or _made_up(arrival, number, form, content_key, id_range)
        for number, arrival in enumerate(arrivals)
    ]


def _own(arrival: Arrival) -> Prompt | None:
    if arrival.body is None:
        return None
    return Prompt("/v1/chat/completions" if "messages" in arrival.body else "/v1/completions", arrival.body)


def _made_up(arrival: Arrival, number: int, form: str, content_key: object, id_range: IdRange) -> Prompt:
    pieces = _pieces(arrival, number)
    if form == "ids":
        ids = [token for key, length in pieces for token in draw_ids(draws_for(content_key, key), length, id_range)]
        return Prompt("/v1/completions", {"prompt": ids})
    text = " ".join(draw_text(draws_for(content_key, key), length) for key, length in pieces)
    if form == "chat":
        return Prompt("/v1/chat/completions", {"messages": [{"role": "user", "content": text}]})
    return Prompt("/v1/completions", {"prompt": text})


def _pieces(arrival: Arrival, number: int) -> list[tuple[str, int]]:
    """(key, tokens) of each: full pieces by their ids, the rest the request's own."""
    size = arrival.tokens_per_id
    num_full = min(len(arrival.prefix_ids), arrival.num_prompt_tokens // size) if size else 0
    pieces = [(f"piece/{number_of}", size) for number_of in arrival.prefix_ids[:num_full]]
    rest = arrival.num_prompt_tokens - num_full * size
    return [*pieces, (f"request/{number}", rest)] if rest else pieces
