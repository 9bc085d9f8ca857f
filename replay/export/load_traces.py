"""A recording's load for other tools: as a Mooncake trace, or as an OpenAI batch with times.

Mooncake: one object a line, `timestamp` in milliseconds, lengths, and an id for each block of the prompt made from its
digest: nothing of the contents, but who shares a prefix with whom. Beside the usual fields stand `block_size`, `name`,
`tenant`, `priority` and `max_output_tokens`, so that `reprise import` makes the same arrivals of it.

OpenAI batch: `custom_id`, `url`, `body`, and `timestamp` in milliseconds. Prompts are the recorded token ids where a
vault holds them and its key is here; where not, ids are made up, equal exactly where whole blocks were.
"""

import hashlib
import json
from typing import Any, BinaryIO

from engine.core.contents import RequestContents
from recorder.errors import NoContents
from replay.lives import Run
from replay.refusal import CannotCompare
from replay.simulate.arrivals import Arrival
from replay.simulate.recorded_trace import RecordedRequest, recorded_arrivals, recorded_requests

_NS_PER_MS = 1_000_000
_FIRST_TOKEN, _NUM_TOKENS = 3, 900  # of ids that every vocabulary has and that end no text


def write_mooncake(run: Run, file: BinaryIO, notes: list[str], tokens_per_id: int = 0) -> dict[str, int]:
    """Returns what was written, in counts.

    tokens_per_id   a multiple of the recorded block size; 0: that size
    Raises CannotCompare for another one.
    """
    num_requests = 0
    for arrival in recorded_arrivals(run, notes):
        per_id, ids = tokens_per_id or arrival.tokens_per_id, arrival.prefix_ids
        step, rest = divmod(per_id, arrival.tokens_per_id)
        if rest or not step:
            remedy = f"--tokens-per-id must be a multiple of {arrival.tokens_per_id}"
            raise CannotCompare(f"blocks of {arrival.tokens_per_id} tokens make no pieces of {per_id}", remedy)
        whole = ids[step - 1 :: step]  # a digest covers all before it: the last one of a piece stands for the piece
        if len(whole) * step < len(ids):
            whole = (*whole, ids[-1])
        _put(file, _mooncake_row(arrival, whole, per_id))
        num_requests += 1
    return {"requests": num_requests}


def _mooncake_row(arrival: Arrival, ids: tuple[int, ...], tokens_per_id: int) -> dict[str, Any]:
    return {
        "timestamp": _milliseconds(arrival.at_ns),
        "input_length": arrival.num_prompt_tokens,
        "output_length": arrival.num_output_tokens,
        "hash_ids": ids,
        "block_size": tokens_per_id,
        "max_output_tokens": arrival.max_output_tokens,
        "priority": arrival.priority,
        "tenant": arrival.tenant,
        "name": arrival.name,
    }


def write_openai_batch(run: Run, file: BinaryIO, notes: list[str]) -> dict[str, int]:
    """Returns what was written, in counts; `notes` says whether contents are in it."""
    contents, num_requests, num_made_up = _Vaults(run), 0, 0
    for recorded in recorded_requests(run, notes):
        found = contents.of(recorded)
        num_made_up += found is None
        num_requests += 1
        _put(file, _batch_row(recorded, found, contents.model))
    if num_requests > num_made_up:
        notes.append(f"the file holds the contents of {num_requests - num_made_up} requests: keep it as you keep them")
    if num_made_up:
        notes.append(f"{num_made_up} prompts are made up, with the prefixes that the recorded ones shared")
    return {"requests": num_requests, "made_up_prompts": num_made_up}


class _Vaults:
    """Contents by life; one life's are held at a time."""

    def __init__(self, run: Run) -> None:
        header = run.recording.header
        self.model = str(header.config.get("served_model_name") or header.config.get("model", ""))
        self._run = run
        self._life = -1
        self._prompts: dict[int, RequestContents] = {}

    def of(self, recorded: RecordedRequest) -> RequestContents | None:
        if recorded.life != self._life:
            self._life = recorded.life
            try:
                self._prompts = self._run.lives[recorded.life].contents().prompts
            except NoContents:
                self._prompts = {}
        return self._prompts.get(recorded.event.request)


def _batch_row(recorded: RecordedRequest, contents: RequestContents | None, model: str) -> dict[str, Any]:
    arrival, sampling = recorded.as_arrival(), recorded.event.sampling
    body: dict[str, Any] = {
        "model": model,
        "prompt": list(contents.prompt_token_ids) if contents else made_up_prompt(arrival),
        "max_tokens": arrival.max_output_tokens,
        **{name: getattr(sampling, name) for name in ("temperature", "top_p", "seed")},
        **{name: getattr(sampling, name) for name in ("presence_penalty", "frequency_penalty")},
    }
    if contents is not None and contents.stop_strings:
        body["stop"] = list(contents.stop_strings)
    if contents is not None and contents.logit_bias:
        body["logit_bias"] = {str(token): bias for token, bias in contents.logit_bias}
    return {
        "custom_id": arrival.name,
        "method": "POST",
        "url": "/v1/completions",
        "timestamp": _milliseconds(arrival.at_ns),
        "output_length": arrival.num_output_tokens,
        "body": body,
    }


def made_up_prompt(arrival: Arrival) -> list[int]:
    """Token ids drawn for each piece of the prompt from its id: equal pieces of equal prefixes are equal tokens."""
    tokens: list[int] = []
    for number in arrival.prefix_ids:
        num_tokens = min(arrival.tokens_per_id, arrival.num_prompt_tokens - len(tokens))
        draws = hashlib.shake_256(b"piece %d" % number).digest(2 * num_tokens)
        tokens += [
            _FIRST_TOKEN + int.from_bytes(draws[place : place + 2], "little") % _NUM_TOKENS
            for place in range(0, len(draws), 2)
        ]
    return tokens


def _milliseconds(nanoseconds: int) -> int | float:
    return nanoseconds // _NS_PER_MS if nanoseconds % _NS_PER_MS == 0 else nanoseconds / _NS_PER_MS


def _put(file: BinaryIO, row: dict[str, Any]) -> None:
    file.write(json.dumps(row, separators=(",", ":")).encode() + b"\n")
