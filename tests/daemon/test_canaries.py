"""10,000 canary strings in what clients send: none is in a default recording, what is read from it, a log line or a
metric.

Tokens are bytes here, so a prompt's token ids would show as the string itself.
"""

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgpack
import pytest
import uvloop

from daemon.logging import set_up_logging
from daemon.supervisor import EngineState
from recorder.format import segment_paths
from recorder.sealing import unsealed
from tests.daemon.readings import read_in_every_way
from tests.daemon.scripted_engine import FAILING, POISON
from tests.daemon.served import Served, completion, serving

MARK = "CaNaRy"
NUM_CANARIES = 10_000
PER_REQUEST = 200


def canaries(number: int) -> str:
    return " ".join(f"{MARK}{index:05d}" for index in range(number * PER_REQUEST, (number + 1) * PER_REQUEST))


async def send_all(served: Served) -> None:
    for number in range(NUM_CANARIES // PER_REQUEST):
        text = canaries(number)
        fields: dict[str, Any] = {"prompt": text, "max_tokens": 2, "stop": [f"{MARK}!"], "user": f"{MARK}-user"}
        if number % 2:
            status, _ = await served.complete(**fields)
        else:
            message = {"role": "user", "content": text, "name": f"{MARK}-name"}
            body = {"messages": [message], "max_tokens": 2, "stop": [f"{MARK}!"]}
            status, _ = await served.post("/v1/chat/completions", body)
        assert status == 200


async def send_what_goes_wrong(served: Served) -> None:
    text = list(canaries(0).encode())
    for body in (
        completion(prompt=canaries(0) * 10),  # too long
        completion(prompt=canaries(0), temperature=MARK),
        completion(prompt=canaries(0), stop=[MARK] * 100),
        {"messages": [{"role": "jester", "content": MARK}], "max_tokens": 2},
        {MARK: MARK},
    ):
        for path in ("/v1/completions", "/v1/chat/completions", f"/v1/{MARK}"):
            status, _ = await served.post(path, body)
            assert status >= 400
    async with served.session.post("/v1/completions", data=f"{{ {MARK}") as response:
        assert response.status == 400
    status, _ = await served.complete(prompt=[*text, FAILING])
    assert status == 500
    status, _ = await served.complete(prompt=[*text, POISON])
    assert status in (500, 503)
    supervisor = served.service.engine.supervisor
    await served.until(lambda: supervisor.num_restarts == 2 and supervisor.state is EngineState.READY)
    status, _ = await served.complete(prompt=canaries(0))
    assert status == 200


def serve_them(folder: Path) -> str:
    """All of it to a server of its own, logging as much as it can; its metrics."""

    async def story() -> str:
        async with serving(folder, max_model_len=4096, num_kv_blocks=1024) as served:
            await send_all(served)
            await send_what_goes_wrong(served)
            async with served.session.get("/metrics") as response:
                return await response.text()

    set_up_logging("debug", sys.stderr)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(story())


def test_no_canary_is_in_any_recording_reading_log_line_or_metric(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.daemon.test_canaries", tmp_path / "run"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "step failed" in done.stderr
    assert "engine died" in done.stderr
    assert "vllm:generation_tokens_total" in done.stdout
    assert MARK.encode() in msgpack.packb([*MARK.encode()]), "token ids in a recording would be found"
    assert MARK not in done.stderr
    assert MARK not in done.stdout
    assert len(segment_paths(tmp_path / "run")) == 3
    assert MARK not in read_in_every_way(tmp_path / "run", tmp_path / "readings", capsys)
    for path in [path for path in tmp_path.rglob("*") if path.is_file()]:
        data = b"".join(unsealed(path)) if path.suffix == ".rps" else path.read_bytes()
        assert MARK.encode() not in data, path
        assert MARK not in path.name


if __name__ == "__main__":
    print(serve_them(Path(sys.argv[1])))
