"""Without a bug nothing is found: a thousand requests under the pressure of the zoo are what they are alone."""

from pathlib import Path

import pytest

from recorder.reader import Recording
from replay.isolate import isolate
from replay.shrink.predicates import parse
from tests.zoo.bug import limits
from tests.zoo.loads import Load
from tests.zoo.serving import serve
from tests.zoo.tiny_model import write_tiny_model

NUM_REQUESTS = 1_000


@pytest.mark.slow
@pytest.mark.timeout(3_600)
def test_a_thousand_clean_requests_raise_no_alarm(tmp_path: Path) -> None:
    load = Load(
        limits(num_kv_blocks=26, swap_space_blocks=20), NUM_REQUESTS, gap_ms=24, sharing=70, leaving=10, output=(1, 30)
    )
    recording = serve(tmp_path / "clean", load.messages(0), load.limits, write_tiny_model(tmp_path / "model"))
    verdict = isolate(recording, None)
    assert verdict.exit_code == 0, verdict.as_text()
    assert verdict.figures["requests"] > 0.9 * NUM_REQUESTS
    assert not parse("invariant-broken").holds(recording)
    decisions = [
        type(decision).__name__ for entry in Recording.open(recording).entries() for decision in entry.decisions
    ]
    assert decisions.count("RequestPreempted") > 50
