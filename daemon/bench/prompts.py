"""The words of a workload's prompts, in the form in which a server is asked for them.

Drawn from the content key alone: the same lengths can be asked with other words, so that no cache of an earlier run
helps. Nothing here knows times or answers.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

from daemon.bench.draws import Draws, draws_for
from daemon.bench.words import OPENERS, SENTENCE
from daemon.bench.workloads import Workload

FORMS = ("text", "ids", "chat")


class IdRange(NamedTuple):
    """Token ids to draw from, both ends included. The default holds ordinary tokens of the common vocabularies: above
    bytes and special tokens, below the end of the smallest (32,000)."""

    first: int = 1_000
    last: int = 19_999


@dataclass(frozen=True, slots=True)
class Prompt:
    """
    path     of the endpoint that takes this form
    fields   of the request's body
    """

    path: str
    fields: dict[str, Any]


def write_prompts(workload: Workload, form: str, content_key: object, id_range: IdRange | None = None) -> list[Prompt]:
    """A prompt for every request of the workload.

    form   text: a string, about one token a word; ids: exactly as many token ids; chat: messages, to which the
           server's template adds tokens of its own
    """
    draws = draws_for("words", workload.name, content_key)
    num_shared = workload.num_shared_tokens
    lengths = [request.num_prompt_tokens - num_shared for request in workload.requests]
    match form:
        case "ids":
            ids = id_range or IdRange()
            shared_ids = draw_ids(draws, num_shared, ids)
            return [_completion([*shared_ids, *draw_ids(draws, length, ids)]) for length in lengths]
        case "text":
            shared = draw_text(draws, num_shared)
            return [_completion(f"{shared} {draw_text(draws, length)}".lstrip()) for length in lengths]
        case _:
            system = draw_text(draws, num_shared)
            return [_chat(system, draw_text(draws, length)) for length in lengths]


def draw_text(draws: Draws, num_tokens: int) -> str:
    """Sentences without sense, cut to so many words and full stops."""
    tokens: list[str] = []
    while len(tokens) < num_tokens:
        tokens.append(draws.choice(OPENERS))
        tokens += [draws.choice(words) for words in SENTENCE if draws.random() < 0.9]
        tokens.append(".")
    return "".join(token if token == "." else f" {token}" for token in tokens[:num_tokens]).lstrip()


def draw_ids(draws: Draws, num_tokens: int, ids: IdRange) -> list[int]:
    return [draws.randint(ids.first, ids.last) for _ in range(num_tokens)]


def _completion(prompt: str | list[int]) -> Prompt:
    return Prompt("/v1/completions", {"prompt": prompt})


def _chat(system: str, user: str) -> Prompt:
    messages = [{"role": "system", "content": system}] if system else []
    return Prompt("/v1/chat/completions", {"messages": [*messages, {"role": "user", "content": user}]})
