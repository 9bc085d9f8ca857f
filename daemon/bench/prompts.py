"""The words of a workload's prompts, and the form in which a server is asked for them.

Drawn from the content seed alone: the same lengths can be asked with other words, so that no cache of an earlier run
helps. Nothing here knows times or answers.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from daemon.bench.draws import Draws, draws_for
from daemon.bench.words import OPENERS, SENTENCE
from daemon.bench.workloads import Workload

FORMS = ("text", "ids", "chat")


class IdRange(NamedTuple):
    """Token ids for `ids` prompts, both ends included. The default holds only ordinary tokens of common vocabularies:
    above bytes and special tokens, below the smallest vocabulary (32,000)."""

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
           server's template adds its own tokens
    """
    draws = draws_for("words", workload.name, content_key)
    id_range = id_range or IdRange()
    num_shared = workload.num_shared_tokens
    lengths = [request.num_prompt_tokens - num_shared for request in workload.requests]
    if form == "ids":
        return _prompts(lambda n: _draw_ids(draws, n, id_range), _ids_prompt, num_shared, lengths)
    return _prompts(lambda n: draw_text(draws, n), _FORM_OF_TEXT[form], num_shared, lengths)


def draw_text(draws: Draws, num_tokens: int) -> str:
    """Sentences without sense, cut to so many words and full stops."""
    tokens: list[str] = []
    while len(tokens) < num_tokens:
        tokens.append(draws.choice(OPENERS))
        tokens += [draws.choice(words) for words in SENTENCE if draws.random() < 0.9]
        tokens.append(".")
    return "".join(token if token == "." else f" {token}" for token in tokens[:num_tokens]).lstrip()


def _prompts[Content](
    draw: Callable[[int], Content], form: Callable[[Content | None, Content], Prompt], num_shared: int, lengths: list[int]
) -> list[Prompt]:
    shared = draw(num_shared) if num_shared else None
    return [form(shared, draw(length)) for length in lengths]
