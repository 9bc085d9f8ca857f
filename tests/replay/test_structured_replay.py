"""Answers under a grammar: executed again and alone they have the same bits, for the grammar lies with the contents."""

import re
from pathlib import Path

import pytest

from engine.core.contents import RequestContents
from engine.core.decisions import FinishReason, RequestFinished
from engine.core.events import RequestArrived
from engine.core.sampling_params import SamplingParams
from engine.protocol import Arrive, Message
from engine.text import grammar
from recorder.vault import Contents
from replay.execute import execute
from replay.isolate import isolate
from tests.replay.recorded_runs import entries_of, mixed_load, record_run
from tests.replay.small_models import open_small, small_runner, text_model

# of single characters: the small model's vocabulary ends at id 1,002, and a schema's fixed parts lie beyond
PATTERNS = ("[a-f]{4,12}", "[0-9]{3}[x-z]", "[A-Z][a-z]{2,5}")
NATIVE = "Q8_0"


def structured_load() -> list[tuple[int, Message]]:
    """The mixed load, a third of it under grammars."""
    messages: list[tuple[int, Message]] = []
    for step, message in mixed_load(18):
        if isinstance(message, Arrive) and message.request % 3 == 0:
            source = grammar.of_pattern(PATTERNS[message.request // 3 % len(PATTERNS)])
            sampling = SamplingParams(seed=message.request)
            contents = RequestContents(message.contents.prompt_token_ids, grammar=source)
            message = message._replace(contents=contents, sampling=sampling, max_output_tokens=40)
        messages.append((step, message))
    return messages


@pytest.mark.parametrize("backend", ["reference", NATIVE])
def test_structured_answers_are_executed_and_isolated_to_the_same_bits(tmp_path: Path, backend: str) -> None:
    recording = record_run(tmp_path / "run", structured_load(), runner=small_runner(backend))
    entries = entries_of(recording)
    arrived = [entry.event for entry in entries if isinstance(entry.event, RequestArrived)]
    assert len({event.grammar_digest for event in arrived if event.grammar_digest}) == len(PATTERNS)
    assert all(bool(event.grammar_digest) == (event.request % 3 == 0) for event in arrived)
    ends = {
        decision.request: decision.reason
        for entry in entries
        for decision in entry.decisions
        if isinstance(decision, RequestFinished)
    }
    contents = Contents.read(sorted(recording.glob("*.vault")), lambda: pytest.fail("nothing is encrypted"))
    whole = [request for request, reason in ends.items() if request % 3 == 0 and reason == FinishReason.STOP]
    assert len(whole) >= 3
    for request in whole:
        answer = text_model().decode(contents.outputs(request))
        assert re.fullmatch(PATTERNS[request // 3 % len(PATTERNS)], answer)
    assert execute(recording, open_runner=open_small(backend)).exit_code == 0
    assert isolate(recording, None, open_runner=open_small(backend)).exit_code == 0
