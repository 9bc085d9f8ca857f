"""A client is served behind the disk for as long as the disk keeps up, and not delayed for ever when it does not."""

import time
from pathlib import Path

from engine.protocol import RecorderStatus, Stop, encode
from tests.engine.engine_process import NUM_OUTPUT_TOKENS, NUM_REQUESTS, Engine, assert_seen_is_recorded


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
