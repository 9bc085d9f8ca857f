"""A question → how its answer is told: what its tokens become, and the bodies that carry it. It must not know HTTP."""

from collections.abc import Sequence
from typing import Any

from daemon.question import Question
from daemon.response_bodies import ResponseBodies
from daemon.responses_bodies import ResponsesBodies
from daemon.service import Service
from engine.text.text_model import TextModel


def answer_settings(question: Question, text_model: TextModel) -> dict[str, Any]:
    """As `Answer` takes them, in plain values."""
    return {
        "stop_strings": question.stop_strings,
        "min_tokens": question.sampling.min_tokens,
        "wants_logprobs": question.num_logprobs >= 0,
        "tells_each_token": question.return_token_ids,
        "follows_text": question.follows_text,
        "hidden_ids": _hidden_ids(question, text_model),
        "shows_special": question.shown.special,
        "includes_stop": question.shown.stop,
        "tool_format": text_model.tool_format.name if question.tools else "",
    }


def _hidden_ids(question: Question, text_model: TextModel) -> tuple[int, ...]:
    """Tokens that end the answer and are no part of its text."""
    if question.shown.stop:
        return ()
    own = () if question.sampling.ignore_eos else text_model.eos_token_ids
    return (*question.stop_token_ids, *(own if question.shown.special else ()))


def bodies_of(
    service: Service, question: Question, prompts: Sequence[tuple[int, ...]], request_id: str
) -> ResponseBodies:
    """Those of /v1/completions and /v1/chat/completions."""
    return ResponseBodies(
        id=f"{'chatcmpl' if question.is_chat else 'cmpl'}-{request_id}",
        created=service.clock.wall_ns() // 1_000_000_000,
        model=question.model or service.served_names[0],
        system_fingerprint=service.system_fingerprint,
        is_chat=question.is_chat,
        include_usage=question.include_usage,
        wants_logprobs=question.num_logprobs >= 0,
        return_token_ids=question.return_token_ids,
        echoes=_echoes(question, prompts, service.text_model),
        num_prompt_logprobs=question.prompt_ask.num_listed,
        num_echo_logprobs=question.prompt_ask.num_echoed,
        prompt_counts=_prompt_counts(question, prompts),
    )


def responses_of(question: Question, bodies: ResponseBodies, request_id: str) -> ResponsesBodies | None:
    """Those of /v1/responses, where it was asked there."""
    if question.asked is None:
        return None
    return ResponsesBodies(request_id, bodies.created, bodies.model, bodies.system_fingerprint, question.asked)


def _prompt_counts(question: Question, prompts: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    if not (question.continuous_usage and question.include_usage):
        return ()
    return tuple([len(prompt) for prompt in prompts for _ in range(question.counts.num_told)])


def _echoes(question: Question, prompts: Sequence[tuple[int, ...]], text_model: TextModel) -> tuple[str, ...]:
    """What each choice that is answered begins with."""
    if not question.echo:
        return ()
    asked = prompts if question.max_prompt_tokens else question.prompts  # of a cut prompt, what is left
    texts = [prompt if isinstance(prompt, str) else text_model.decode(prompt) for prompt in asked]
    return tuple([text for text in texts for _ in range(question.counts.num_told)])
