"""The daemon itself is killed under streams: whoever comes back to the next one gets exactly the rest."""

import asyncio
import contextlib
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.integration.client import completion
from tests.integration.daemon_process import DaemonProcess

CANARY = "Quetzalcoatlus"
NUM_TOKENS = 60
PATH = "/v1/completions"


def bodies() -> dict[str, dict[str, Any]]:
    """Greedy, sampled with penalties, with a stop string; each with its usage at the end."""
    more: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}, "return_token_ids": True}
    sampled: dict[str, Any] = {"temperature": 0.8, "seed": 4, "presence_penalty": 0.5, "logprobs": 2}
    prompt = f"{CANARY} and four rivers: "
    return {
        "greedy": completion(16, 1, output=NUM_TOKENS, **more),
        "sampled": completion(output=NUM_TOKENS, prompt=prompt, **more) | sampled,
        "stop": completion(prompt="1, 2, 3, 4,", stop=[" 22"], max_tokens=150, **more),
    }


Events = list[tuple[str, dict[str, Any]]]


async def read(session: aiohttp.ClientSession, body: Any, headers: dict[str, str], events: Events) -> None:
    """Each event with its id, until the end or until the connection breaks."""
    with contextlib.suppress(aiohttp.ClientError):
        async with session.post(PATH, json=body, headers=headers) as response:
            assert response.status == 200, await response.text()
            event_id = ""
            async for line in response.content:
                if line.startswith(b"id: "):
                    event_id = line[4:].decode().strip()
                elif line.startswith(b"data: {"):
                    events.append((event_id, json.loads(line[6:])))


def told(events: Events) -> list[Any]:
    """What the events say, without what names the call."""
    return [(event_id, event["choices"], event.get("usage")) for event_id, event in events]


@pytest.mark.parametrize("record_content", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_streams_go_on_in_the_daemon_after_one_that_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record_content: bool
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "runtime"))
    flags: dict[str, Any] = {"record_content": record_content, "enable_prefix_caching": False, "max_num_seqs": 2}
    daemon = DaemonProcess(tmp_path, **flags)
    with daemon:
        first, whole = asyncio.run(break_and_read(daemon))
        kept = kept_in(daemon)
        assert len(kept) == len(first), "one file for each that may be asked for"
        assert not any(CANARY.encode() in path.read_bytes() for path in kept)
        assert not list(daemon.record_dir.rglob("*.key")) or record_content, "the key does not lie beside them"
        rest = asyncio.run(come_back(daemon, first))
        for name, events in whole.items():
            assert told(first[name] + rest[name]) == told(events)
            assert rest[name], f"{name} had ended before the daemon was killed"


def kept_in(daemon: DaemonProcess) -> list[Path]:
    return list((daemon.record_dir / "resume").rglob("*.resume"))


async def break_and_read(daemon: DaemonProcess) -> tuple[dict[str, Events], dict[str, Events]]:
    """Kill the daemon in the middle of all streams and start it again; what each had told, and what it should tell."""
    wanted = {"X-Reprise-Resume-Seconds": "120"}
    async with aiohttp.ClientSession(daemon.base_url) as session:
        whole: dict[str, Events] = {name: [] for name in bodies()}
        for name, body in bodies().items():
            await read(session, body, {}, whole[name])
        first: dict[str, Events] = {name: [] for name in bodies()}
        reading = [
            asyncio.create_task(read(session, body, wanted | {"X-Request-Id": name}, first[name]))
            for name, body in bodies().items()
        ]
        async with asyncio.timeout(120):
            while not reading[0].done() and (len(first["greedy"]) < 12 or len(kept_in(daemon)) < len(reading)):
                await asyncio.sleep(0.005)
        daemon.kill()
        await asyncio.gather(*reading)
    daemon.start()
    return first, whole


async def come_back(daemon: DaemonProcess, first: dict[str, Events]) -> dict[str, Events]:
    rest: dict[str, Events] = {name: [] for name in first}
    async with aiohttp.ClientSession(daemon.base_url) as session:
        for name, events in first.items():
            last_id = events[-1][0] if events else ""
            await read(session, None, {"X-Request-Id": name, "Last-Event-ID": last_id}, rest[name])
    return rest
