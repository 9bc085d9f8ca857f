"""A real engine process without weights, driven over its socket, and what of its words is on file.

Requests are always the same, and so are their tokens.
"""

import socket
import subprocess
import sys
from pathlib import Path

from engine.config import EngineConfig
from engine.core.contents import RequestContents
from engine.core.sampling_params import SamplingParams
from engine.protocol import Arrive, FrameDecoder, Handled, Message, Ready, encode
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
        num_kv_blocks: int = 0,
    ) -> None:
        ours, theirs = socket.socketpair()
        config = EngineConfig(
            "scripted",
            record_dir=str(folder),
            record_content=True,
            max_segment_bytes=300_000,
            num_kv_blocks=num_kv_blocks,
            reserve_output="none" if num_kv_blocks else "expected",  # so that a small pool runs out
        )
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
