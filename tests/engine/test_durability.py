"""What a client has seen is in the recording: after a SIGKILL at any moment, and for as long as the disk keeps up."""

import random
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from engine.config import EngineConfig
from engine.core.contents import RequestContents
from engine.core.sampling_params import SamplingParams
from engine.protocol import Arrive, FrameDecoder, Handled, Message, Ready, RecorderStatus, Stop, encode
from recorder.reader import Recording

NUM_REQUESTS = 12
NUM_OUTPUT_TOKENS = 400


class Engine:
    """A real engine process without weights, and all that it has said."""

    def __init__(
        self,
        folder: Path,
        *,
        append_seconds: float = 0.0,
        first_append_seconds: float = 0.0,
        sync_seconds: float = 0.0,
    ) -> None:
        ours, theirs = socket.socketpair()
        config = EngineConfig("scripted", record_dir=str(folder), record_content=True, max_segment_bytes=300_000)
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "tests.daemon.scripted_engine"),
                *("--fd", str(theirs.fileno()), "--config", config.to_json()),
            ],
            pass_fds=[theirs.fileno()],
            env={
                "SCRIPTED_STEP_SECONDS": "0.0005",
                "SCRIPTED_APPEND_SECONDS": str(append_seconds),
                "SCRIPTED_FIRST_APPEND_SECONDS": str(first_append_seconds),
                "SCRIPTED_SYNC_SECONDS": str(sync_seconds),
            },
        )
        theirs.close()
        self.socket = ours
        self.heard: list[Message] = []
        self._decoder = FrameDecoder()

    def __enter__(self) -> "Engine":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        self.socket.close()

    def listen(self) -> bool:
        """Take in what is there; False at the end."""
        data = self.socket.recv(1 << 16)
        self.heard += self._decoder.feed(data)
        return bool(data)

    def until_ready(self) -> None:
        while not any(isinstance(message, Ready) for message in self.heard):
            assert self.listen()

    def send_requests(self) -> None:
        for request in range(NUM_REQUESTS):
            contents = RequestContents(tuple(range(1, 20 + request)))
            sampling = SamplingParams(seed=request, ignore_eos=True)
            self.socket.sendall(encode(Arrive(request, f"r{request}", "", 0, 0, NUM_OUTPUT_TOKENS, sampling, contents)))

    @property
    def handled(self) -> list[Handled]:
        return [message for message in self.heard if isinstance(message, Handled)]


def killed_after(folder: Path, seconds: float, append_seconds: float) -> list[Handled]:
    """All that the daemon could still read from an engine that was killed so long after it had begun."""
    with Engine(folder, append_seconds=append_seconds) as engine:
        engine.until_ready()
        engine.send_requests()
        killer = threading.Timer(seconds, lambda: engine.process.send_signal(signal.SIGKILL))
        killer.start()
        try:
            while engine.listen():
                pass
        except ConnectionResetError:  # what it had not read of ours; all of its own was read
            pass
        killer.join()
    return engine.handled


def assert_seen_is_recorded(handled: list[Handled], folder: Path) -> int:
    """Returns how many tokens were seen."""
    recording = Recording.open(folder)
    recorded = {entry.sequence: entry for entry in recording.entries()}
    tokens = recording.contents().tokens
    num_tokens = 0
    for message in handled:
        assert recorded.get(message.entry.sequence) == message.entry
        for output in message.outputs:
            step = message.entry.event.step  # type: ignore[union-attr]  # only a completed step has outputs
            assert (output.request, output.token_id) in tokens[step]
            num_tokens += 1
    return num_tokens


def run_kills(folder: Path, num_kills: int) -> int:
    """With a disk that is as fast as it is, and with one that takes 5 ms for each append, in turn."""
    draw, num_tokens = random.Random(7), 0
    for number in range(num_kills):
        run = folder / str(number)
        seen = killed_after(run, draw.uniform(0.02, 0.4), append_seconds=0.005 * (number % 2))
        num_tokens += assert_seen_is_recorded(seen, run)
    return num_tokens


def test_every_token_that_was_seen_is_recorded_after_a_kill(tmp_path: Path) -> None:
    assert run_kills(tmp_path, 4) > 200


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_every_token_that_was_seen_is_recorded_after_500_kills(tmp_path: Path) -> None:
    assert run_kills(tmp_path, 500) > 25_000


def test_a_disk_that_stalls_in_sync_delays_nobody(tmp_path: Path) -> None:
    """5 s in fsync: meanwhile entries are appended and clients served, none of them ahead of the recording."""
    with Engine(tmp_path / "run", sync_seconds=5) as engine:
        engine.until_ready()
        engine.send_requests()
        status = finish(engine)
    assert status.num_early_entries == status.num_gap_entries == 0
    assert assert_seen_is_recorded(engine.handled, tmp_path / "run") == NUM_REQUESTS * NUM_OUTPUT_TOKENS


def test_a_disk_that_stalls_in_a_write_delays_clients_once_and_loses_nothing(tmp_path: Path) -> None:
    """Each append takes longer than the wait for it: clients are served ahead of it, which is counted."""
    with Engine(tmp_path / "run", append_seconds=0.4) as engine:
        engine.until_ready()
        engine.send_requests()
        began = time.monotonic()
        while sum(len(message.outputs) for message in engine.handled) < NUM_REQUESTS * NUM_OUTPUT_TOKENS:
            assert engine.listen()
        num_seen_per_append = len(engine.handled) / (time.monotonic() - began)
        status = finish(engine)
    assert num_seen_per_append > 20, "steps wait for the disk"
    assert any(isinstance(message, RecorderStatus) for message in engine.heard), "a busy engine tells nothing"
    assert status.num_early_entries > 0
    assert status.num_gap_entries == 0
    assert assert_seen_is_recorded(engine.handled, tmp_path / "run") == NUM_REQUESTS * NUM_OUTPUT_TOKENS


def finish(engine: Engine) -> RecorderStatus:
    """Let all requests end, stop the engine in order; its last account of the recorder."""
    while sum(len(message.outputs) for message in engine.handled) < NUM_REQUESTS * NUM_OUTPUT_TOKENS:
        assert engine.listen()
    engine.socket.sendall(encode(Stop("done")))
    while engine.listen():
        pass
    return [message for message in engine.heard if isinstance(message, RecorderStatus)][-1]


def test_after_a_stall_clients_are_served_behind_the_disk_again(tmp_path: Path) -> None:
    """The first append takes 0.4 s, the others none: what leaves early ends with it."""
    with Engine(tmp_path / "run", first_append_seconds=0.4) as engine:
        engine.until_ready()
        engine.send_requests()
        status = finish(engine)
        assert 0 < status.num_early_entries < len(engine.handled) - 20
    assert status.num_gap_entries == 0
