"""An engine killed at any moment under load leaves a recording that holds what clients saw, adds up and replays equal.

Its pool is ample or a third of what is asked for, its disk is fast or slow, in turn; two clients leave.
"""

import random
import signal
import threading
from collections import Counter
from pathlib import Path

import pytest

from engine.core.decisions import RequestFinished, RequestPreempted, TokensEmitted
from engine.core.events import CancelCause, StepCompleted
from engine.core.vocabulary import Entry
from engine.protocol import Cancel, Handled, encode
from recorder.reader import Recording
from recorder.timeline import Timeline
from replay.check import check
from replay.verdict import Outcome
from tests.engine.engine_process import NUM_OUTPUT_TOKENS, NUM_REQUESTS, Engine, assert_seen_is_recorded

SMALL_POOL = 40  # blocks; 12 requests of some 27 each
CANCELLED = (3, 7)


def killed_after(folder: Path, seconds: float, append_seconds: float, num_kv_blocks: int) -> list[Handled]:
    """All that the daemon could still read from an engine that was killed so long after it had begun."""
    with Engine(folder, append_seconds=append_seconds, num_kv_blocks=num_kv_blocks) as engine:
        engine.until_ready()
        engine.send_requests()
        for request in CANCELLED:
            engine.socket.sendall(encode(Cancel(request, CancelCause.CLIENT)))
        killer = threading.Timer(seconds, lambda: engine.process.send_signal(signal.SIGKILL))
        killer.start()
        try:
            while engine.listen():
                pass
        except ConnectionResetError:  # what it had not read of ours; all of its own was read
            pass
        killer.join()
    return engine.handled


class Evidence:
    """What the recordings of all kills hold together.

    tokens             (request, index) → its token id, the same in every run
    """

    def __init__(self) -> None:
        self.num_seen = self.num_preemptions = self.num_finished = 0
        self.tokens: dict[tuple[int, int], int] = {}

    def examine(self, handled: list[Handled], folder: Path) -> None:
        self.num_seen += assert_seen_is_recorded(handled, folder)
        recording = Recording.open(folder)
        entries = list(recording.entries())
        assert [entry.sequence for entry in entries] == list(range(len(entries)))
        self._assert_sums_hold(entries, Recording.open(folder), handled)
        verdict = check(folder)
        assert verdict.outcome is Outcome.EQUAL, verdict.as_text()

    def _assert_sums_hold(self, entries: list[Entry], recording: Recording, handled: list[Handled]) -> None:
        """Each token counted once, with its contents; each end says what was emitted until then."""
        contents = recording.contents().tokens
        timeline = Timeline(keep_spans=True)
        emitted: Counter[int] = Counter()
        for entry in entries:
            timeline.apply(entry)
            event = entry.event
            ids = dict(contents[event.step]) if isinstance(event, StepCompleted) and event.emitted else {}
            for decision in entry.decisions:
                if isinstance(decision, TokensEmitted):
                    for request, count in decision.rows:
                        emitted[request] += 1
                        assert count == emitted[request]
                        assert self.tokens.setdefault((request, count), ids[request]) == ids[request]
                elif isinstance(decision, RequestFinished):
                    assert decision.num_output_tokens == emitted[decision.request]
                    self.num_finished += 1
                self.num_preemptions += isinstance(decision, RequestPreempted)
        seen = Counter(output.request for message in handled for output in message.outputs)
        assert all(seen[request] <= emitted[request] <= NUM_OUTPUT_TOKENS for request in range(NUM_REQUESTS))
        assert timeline.totals.generation_tokens == emitted.total()
        assert {span.request: span.num_output_tokens for span in timeline.spans.values()} == {
            request: emitted[request] for request in timeline.spans
        }


def run_kills(folder: Path, num_kills: int) -> Evidence:
    """With a disk that is as fast as it is, and with one that takes 5 ms for each append, in turn."""
    draw, evidence = random.Random(7), Evidence()
    for number in range(num_kills):
        run = folder / str(number)
        num_kv_blocks = SMALL_POOL if number % 4 > 1 else 0
        seen = killed_after(run, draw.uniform(0.02, 0.4), 0.005 * (number % 2), num_kv_blocks)
        evidence.examine(seen, run)
    return evidence


def test_every_token_that_was_seen_is_recorded_after_a_kill(tmp_path: Path) -> None:
    evidence = run_kills(tmp_path, 4)
    assert evidence.num_seen > 200
    assert evidence.num_finished >= len(CANCELLED)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_500_kills_under_load_lose_and_invent_nothing(tmp_path: Path) -> None:
    evidence = run_kills(tmp_path, 500)
    assert evidence.num_seen > 25_000
    assert evidence.num_preemptions > 100
