"""How a daemon ends, drained by SIGTERM, cut short or killed (s15), and its engine: each leaves a true recording."""

import asyncio
import contextlib
import itertools
import os
import signal
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from engine.core.decisions import FinishReason
from engine.core.events import DrainRequested, ExecutorRestarted
from engine.core.vocabulary import RecordingClosed
from recorder.reader import Recording
from tests.integration.aftermath import check_daemon, check_recording
from tests.integration.client import Client, Stream, completion, connect
from tests.integration.daemon_process import DaemonProcess, reprise
from tests.integration.served import check_accounts, check_error
from tests.integration.trace import Life, Trace, limits_of, trace_of, until_recorded

CHAT = "/v1/chat/completions"
FLAGS: dict[str, Any] = {"max_num_seqs": 2, "num_kv_blocks": 192, "max_model_len": 1_100}
NUM_TOKENS = 120
ENDLESS = 1_000  # tokens: more than any of these daemons lives to see


def stream_body(key: int, output: int) -> dict[str, Any]:
    return completion(16, key, output=output, stream=True, stream_options={"include_usage": True})


def chat_body(output: int) -> dict[str, Any]:
    return completion(output=output, messages=[{"role": "user", "content": "Name three rivers."}])


# ── s15: SIGTERM drains ──────────────────────────────────────────────────────────────────────────────────────────────


def test_sigterm_lets_running_streams_finish_and_refuses_what_is_new(tmp_path: Path) -> None:
    daemon = DaemonProcess(tmp_path, drain_timeout=30, **FLAGS)
    daemon.start()
    streams, signalled_at = asyncio.run(drain_while_three_run(daemon))
    exit_code, seconds = ending(daemon, signalled_at)
    assert exit_code == 0, daemon.log
    assert seconds < 30 + 5
    trace = check_closed(daemon, "drained")
    check_accounts(trace.entries, daemon.recording, streams)
    check_undisturbed(trace, trace["a"])
    assert [type(entry.event) for entry in trace.entries].count(DrainRequested) == 1
    assert "late" not in trace.lives


async def drain_while_three_run(daemon: DaemonProcess) -> tuple[list[Stream], float]:
    """The answers, and when the signal was sent."""
    async with connect(daemon.base_url) as client:
        a = client.send(stream_body(1, NUM_TOKENS), headers={"X-Request-Id": "a"})
        b = client.send(chat_body(NUM_TOKENS), path=CHAT, headers={"X-Request-Id": "b"})
        await until_recorded(daemon, lambda trace: {"a", "b"} <= set(trace.lives))
        queued = client.send(stream_body(2, 8), headers={"X-Request-Id": "queued"})
        await queued.until_accepted()
        await a.until_tokens(10)
        signalled_at = time.monotonic()
        daemon.signal(signal.SIGTERM)
        while daemon.get("/ready").status_code == 200:
            assert time.monotonic() < signalled_at + 5, "readiness stays on"
        await check_late_is_refused(daemon, client)
        assert not a.finish_reason, "the drain was over before it was looked at"
        for stream, num_tokens in ((a, NUM_TOKENS), (b, NUM_TOKENS), (queued, 8)):
            await stream.until_end()
            assert stream.error is None
            assert stream.finish_reason == "length"
            assert len(stream.token_ids) == num_tokens
        assert a.is_done
        assert queued.is_done
    return [a, b, queued], signalled_at


async def check_late_is_refused(daemon: DaemonProcess, client: Client) -> None:
    """The running ones are still served; what comes now is told to come again, elsewhere or later."""
    late = client.send(completion(8, 3, max_tokens=4), headers={"X-Request-Id": "late"})
    await late.until_end(timeout=20)
    assert late.status == 503
    assert late.error is not None
    check_error(late.error)
    assert int(late.headers["retry-after"]) >= 1
    assert daemon.get("/ready").status_code == 503
    assert daemon.get("/health").status_code == 200


def check_undisturbed(trace: Trace, life: Life) -> None:
    """The drain left no hole in a running stream: a token in every step, no pause longer than others."""
    assert life.token_steps == list(range(life.token_steps[0], life.token_steps[0] + NUM_TOKENS))
    gaps = [after - before for before, after in itertools.pairwise(life.token_times)]
    assert max(gaps) <= max(1_000_000_000, 5 * statistics.median(gaps))


def test_what_outlives_the_drain_timeout_is_told_so(tmp_path: Path) -> None:
    daemon = DaemonProcess(tmp_path, drain_timeout=1, **FLAGS)
    daemon.start()
    signalled_at = asyncio.run(cut_three(daemon, lambda: daemon.signal(signal.SIGTERM)))
    exit_code, seconds = ending(daemon, signalled_at)
    assert exit_code == 0, daemon.log
    assert 1 <= seconds < 1 + 5
    check_cut(check_closed(daemon, "drained"))


def test_a_second_sigterm_ends_the_drain_at_once(tmp_path: Path) -> None:
    daemon = DaemonProcess(tmp_path, drain_timeout=600, **FLAGS)
    daemon.start()

    def signal_twice() -> None:
        daemon.signal(signal.SIGTERM)
        time.sleep(0.5)
        daemon.signal(signal.SIGTERM)

    signalled_at = asyncio.run(cut_three(daemon, signal_twice))
    exit_code, seconds = ending(daemon, signalled_at)
    assert exit_code == 0, daemon.log
    assert seconds < 10, "the drain timeout was waited for"
    check_cut(check_closed(daemon, "drained"))


async def cut_three(daemon: DaemonProcess, end: Callable[[], None]) -> float:
    """Two endless streams, an endless chat that waits for its turn, and `end`; returns when that was called."""
    async with connect(daemon.base_url) as client:
        a = client.send(stream_body(1, ENDLESS), headers={"X-Request-Id": "a"})
        b = client.send(chat_body(ENDLESS), path=CHAT, headers={"X-Request-Id": "b"})
        await until_recorded(daemon, lambda trace: {"a", "b"} <= set(trace.lives))
        queued = client.send(stream_body(2, ENDLESS), headers={"X-Request-Id": "queued"})
        await queued.until_accepted()
        await a.until_tokens(10)
        signalled_at = time.monotonic()
        end()
        check_told(await a.until_end(), is_stream=True)
        check_told(await b.until_end(), is_stream=False)
        check_told(await queued.until_end(), is_stream=True)
        assert len(a.token_ids) >= 10
        assert not queued.token_ids
    return signalled_at


def check_told(stream: Stream, *, is_stream: bool) -> None:
    """No bare cut: an error in words, as the last event of a stream before [DONE], or as a 503."""
    assert stream.error is not None
    check_error(stream.error)
    assert stream.error["type"] == "service_unavailable_error"
    assert stream.finish_reason is None
    assert stream.status == (200 if is_stream else 503)
    if is_stream:
        assert "error" in stream.events[-1]
        assert stream.is_done
    else:
        assert int(stream.headers["retry-after"]) >= 1


def check_cut(trace: Trace) -> None:
    assert {life.finish.reason for life in trace.lives.values()} == {FinishReason.DRAINED}
    assert set(trace.lives) == {"a", "b", "queued"}
    assert trace["a"].finish.num_output_tokens >= 10
    assert trace["queued"].finish.num_output_tokens == 0


# ── SIGKILL ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_killed_daemon_leaves_no_engine_and_a_recording_that_replays(tmp_path: Path) -> None:
    daemon = DaemonProcess(tmp_path, **FLAGS)
    daemon.start()
    engine = engine_pid(daemon)
    asyncio.run(kill_while_streaming(daemon, daemon.kill))
    until_gone(engine)
    first = daemon.recording
    assert len(trace_of(daemon)["a"].token_steps) >= 10
    check_replays(first)
    with daemon:  # again, beside the old recording and on the same port
        check_daemon(daemon)
        assert daemon.recording != first
    check_recording(daemon.recording)


def test_daemon_and_engine_killed_together_leave_every_whole_entry(tmp_path: Path) -> None:
    """As when the machine's memory runs out: nobody is left to close the recording."""
    daemon = DaemonProcess(tmp_path, **FLAGS)
    daemon.start()
    engine = engine_pid(daemon)

    def kill_both() -> None:
        daemon.signal(signal.SIGSTOP)  # it must not see the engine die
        os.kill(engine, signal.SIGKILL)
        daemon.kill()

    asyncio.run(kill_while_streaming(daemon, kill_both))
    until_gone(engine)
    trace = trace_of(daemon)
    assert not any(isinstance(entry.event, RecordingClosed) for entry in trace.entries)
    assert len(trace["a"].token_steps) >= 10, "what had been written was lost"
    check_replays(daemon.recording)


async def kill_while_streaming(daemon: DaemonProcess, kill: Callable[[], None]) -> None:
    async with connect(daemon.base_url) as client:
        a = client.send(stream_body(1, ENDLESS), headers={"X-Request-Id": "a"})
        await a.until_tokens(10)
        await until_recorded(daemon, lambda trace: len(trace["a"].token_steps) >= 10)
        kill()
        with contextlib.suppress(aiohttp.ClientError):  # a daemon that is gone can say nothing
            await a.until_end()
        assert not a.is_done


def check_replays(recording: Path) -> None:
    """All decisions up to the last whole entry, and all tokens. Requests that were live have no end, and cannot."""
    for verb in ("check", "execute"):
        done = reprise(verb, recording)
        assert done.returncode == 0, done.stdout + done.stderr


# ── an engine that dies ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The answers of a daemon whose engine lives on, by request id."""
    with DaemonProcess(tmp_path_factory.mktemp("undisturbed"), **CRASH_FLAGS) as daemon:
        return asyncio.run(ask_under_kills(daemon, 0))


@pytest.mark.parametrize("num_kills", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_answers_go_on_when_their_engine_is_killed(tmp_path: Path, undisturbed: dict[str, Any], num_kills: int) -> None:
    with DaemonProcess(tmp_path, **CRASH_FLAGS) as daemon:
        killed = engine_pid(daemon)
        answers = asyncio.run(ask_under_kills(daemon, num_kills))
        assert answers == undisturbed
        assert engine_pid(daemon) != killed
        check_daemon(daemon)
        health = daemon.get("/health").json()
        assert health["num_engine_restarts"] == num_kills
        assert health["num_requests_handed_over"] > 0
    check_recording(daemon.recording, execute=True)
    isolated = reprise("isolate", daemon.recording, "a")
    assert isolated.returncode == 0, isolated.stdout + isolated.stderr
    trace = trace_of(daemon)
    restarts = [entry.event for entry in trace.entries if isinstance(entry.event, ExecutorRestarted)]
    assert [event.lost for event in restarts] == [()] * num_kills
    assert trace["a"].arrival.num_handovers >= 1
    assert Recording.open(daemon.recording).segments[-1].header.starts_fresh


CRASH_FLAGS: dict[str, Any] = {**FLAGS, "max_num_seqs": 4, "enable_prefix_caching": False, "seed": 3}


def bodies() -> dict[str, tuple[str, dict[str, Any]]]:
    """What an answer may depend on beside its tokens: seeds, penalties, log-probabilities, stop strings, length.

    The last ones wait in the queue, and one has a long prompt.
    """
    sampled = {"temperature": 0.9, "top_p": 0.95, "seed": 11}
    penalties = {"presence_penalty": 0.7, "frequency_penalty": 0.4, "repetition_penalty": 1.2}
    return {
        "a": ("/v1/completions", stream_body(1, 70)),
        "chat": (CHAT, chat_body(70) | sampled),
        "logprobs": (CHAT, chat_body(30) | {"logprobs": True, "top_logprobs": 3}),
        "penalties": ("/v1/completions", stream_body(2, 70) | sampled | penalties | {"min_tokens": 50}),
        "stop": ("/v1/completions", completion(prompt="1, 2, 3, 4,", stop=[" 33"], max_tokens=NUM_TOKENS, stream=True)),
        "long": ("/v1/completions", completion(300, 5, output=20)),
    }


async def ask_under_kills(daemon: DaemonProcess, num_kills: int) -> dict[str, Any]:
    """All at once, the engine killed between their first tokens and their ends."""
    async with connect(daemon.base_url) as client:
        streams = {
            name: client.send(body, path=path, headers={"X-Request-Id": name})
            for name, (path, body) in bodies().items()
        }
        for number in range(num_kills):
            await streams["a"].until_tokens(10 + 20 * number)
            while daemon.get("/ready").status_code != 200:
                await asyncio.sleep(0.05)
            os.kill(engine_pid(daemon), signal.SIGKILL)
            while (await asyncio.to_thread(daemon.get, "/health")).json()["num_engine_restarts"] == number:
                await asyncio.sleep(0.02)
        answers = {}
        for name, stream in streams.items():
            await stream.until_end()
            assert stream.error is None, stream.error
            logprobs = [choice.get("logprobs") for choice in stream.answer.get("choices", [])]
            answers[name] = (stream.text, stream.token_ids, stream.finish_reason, stream.usage, logprobs)
        assert answers["stop"][2] == "stop"
        return answers


# ── all ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def ending(daemon: DaemonProcess, signalled_at: float) -> tuple[int, float]:
    """Exit code, and seconds from the signal to the exit."""
    exit_code = daemon.wait()
    return exit_code, time.monotonic() - signalled_at


def check_closed(daemon: DaemonProcess, cause: str) -> Trace:
    """The recording is whole, ends with its closing, and replays."""
    entries = check_recording(daemon.recording, execute=True)
    closing = entries[-1].event
    assert isinstance(closing, RecordingClosed)
    assert closing.cause == cause
    recording = Recording.open(daemon.recording)
    assert len(list(recording.entries())) == len(entries)
    assert recording.notices == []
    assert recording.is_complete
    assert recording.is_closed
    assert limits_of(daemon).max_num_seqs == FLAGS["max_num_seqs"]
    return Trace(entries)


def engine_pid(daemon: DaemonProcess) -> int:
    """The daemon's only child."""
    (pid,) = Path(f"/proc/{daemon.pid}/task/{daemon.pid}/children").read_text().split()
    return int(pid)


def until_gone(pid: int, seconds: float = 30.0) -> None:
    """The process ends by itself: nobody sends it a signal."""
    deadline = time.monotonic() + seconds
    while Path(f"/proc/{pid}").exists() and is_alive(pid):
        assert time.monotonic() < deadline, f"process {pid} was left behind"
        time.sleep(0.05)


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def until_ready(daemon: DaemonProcess, seconds: float = 90.0) -> None:
    deadline = time.monotonic() + seconds
    while daemon.get("/ready").status_code != 200:
        assert time.monotonic() < deadline, daemon.log
        time.sleep(0.05)
