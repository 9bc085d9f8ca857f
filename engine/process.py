"""The engine process: frames in, frames out, the loop in between, the recorder beside it.

Started by the daemon's supervisor with one end of a socket pair: `python -m engine.process --fd N --config JSON`. It
is the composition root: the one place that knows core, executor, recorder and protocol together. It ends when it is
told to, and when the daemon is gone (end of file).
"""

import argparse
import os
import platform
import queue
import secrets
import signal
import socket
import sys
import threading
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from engine.clock import Clock, SystemClock
from engine.config import EngineConfig
from engine.core.contents import TokenOutput
from engine.core.errors import EngineError
from engine.core.events import CancelCause
from engine.core.limits import MAX_INBOX_ITEMS, MAX_OUTBOX_FRAMES
from engine.core.scheduler import Core
from engine.core.vocabulary import Entry
from engine.execution.build import BuiltRunner, build_runner
from engine.execution.digests import DIGEST_BYTES
from engine.execution.interface import Runner
from engine.grammar_desk import GrammarDesk
from engine.injection import JumpingClock
from engine.log import Logger, set_up_at_first_line
from engine.loop import EngineLoop, NoRecord, RecordSink
from engine.own_policy import POLICY_DIGEST, OwnPolicy, is_own_policy, load_own_policy, policy_factory
from engine.protocol import (
    Cancel,
    Failed,
    FrameDecoder,
    Handled,
    Message,
    ProtocolError,
    Ready,
    RecorderStatus,
    Stop,
    encode,
)
from engine.self_audit import SelfAudit
from recorder.header import Header
from recorder.incidents import Incident
from recorder.keeper import Keeper
from recorder.retention import Bounds
from recorder.slo_watch import SloWatch
from recorder.writer import Recorder

if TYPE_CHECKING:  # cryptography is for those who keep contents
    from recorder.keys import KeyRing

log = Logger(__name__)

READ_BYTES = 1 << 16
STATUS_INTERVAL_NS = 1_000_000_000
MAX_APPEND_WAIT_S = 0.25  # for the disk, once per stall: then clients are served before what they see is on file


class SocketInbox:
    """Messages read from the socket by a thread of its own; the end of the socket reads as a Stop.

    desk   where arrivals wait for their grammars
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._queue: queue.Queue[Message] = queue.Queue(MAX_INBOX_ITEMS)
        self.desk = GrammarDesk(self._queue.put)
        threading.Thread(target=self._read, name="inbox", daemon=True).start()

    def get(self) -> Message:
        return self._queue.get()

    def cancel(self, request: int) -> None:
        """As if its client had left."""
        self._queue.put(Cancel(request, CancelCause.CLIENT))

    def drain(self) -> list[Message]:
        messages: list[Message] = []
        while True:
            try:
                messages.append(self._queue.get_nowait())
            except queue.Empty:
                return messages

    def _read(self) -> None:
        decoder = FrameDecoder()
        try:
            while data := self._connection.recv(READ_BYTES):
                for message in decoder.feed(data):
                    self.desk.pass_on(message)
            self._queue.put(Stop("the daemon is gone"))
        except OSError as error:
            self._queue.put(Stop(f"the daemon is gone: {error}"))
        except ProtocolError as error:
            log.error("the daemon sent what cannot be read", error=str(error))
            self._queue.put(Stop(f"protocol error: {error}"))


class SocketOutbox:
    """Frames for the daemon, sent by a thread of its own: the loop waits only when MAX_OUTBOX_FRAMES lie here.

    An entry leaves only once it is on file or counted as lost, so that whatever a client has seen is in the recording
    even if this process is killed the moment after. A disk that stalls delays that by MAX_APPEND_WAIT_S; from then on
    until the entry it was waited for is on file entries leave at once, and are counted as early.
    """

    def __init__(self, connection: socket.socket, clock: Clock) -> None:
        self._connection = connection
        self._clock = clock
        self._queue: queue.Queue[Message | None] = queue.Queue(MAX_OUTBOX_FRAMES)
        self._recorder_status = RecorderStatus(0, 0, 0)
        self._recorder: Recorder | None = None
        self._keeper: Keeper | None = None
        self._stalled_at: int | None = None  # the entry that the disk kept us waiting for
        self._num_early_entries = 0
        self._thread = threading.Thread(target=self._send, name="outbox", daemon=True)
        self._thread.start()

    def watch(self, recorder: Recorder, keeper: Keeper) -> None:
        """Report the recorder's counters to the daemon whenever they have changed."""
        self._keeper = keeper
        self._recorder = recorder

    def put(self, message: Message) -> None:
        self._queue.put(message)

    def close(self) -> None:
        """Send what lies here, then stop."""
        self._queue.put(None)
        self._thread.join()

    def _send(self) -> None:
        is_open = True
        status_ns = self._clock.now_ns()
        while True:
            if (now_ns := self._clock.now_ns()) - status_ns >= STATUS_INTERVAL_NS:
                status_ns = now_ns
                is_open = is_open and self._send_status()
            try:
                message = self._queue.get(timeout=STATUS_INTERVAL_NS / 1e9)
            except queue.Empty:
                continue
            if message is None:
                self._send_status()
                return
            if isinstance(message, Handled) and self._recorder is not None:
                self._hold_back(message.entry.sequence, self._recorder)
            is_open = is_open and self._send_frame(message)

    def _hold_back(self, sequence: int, recorder: Recorder) -> None:
        """Until the entry is on file; not at all while the disk is known to stall."""
        was_stalled = self._stalled_at is not None
        if self._stalled_at is not None and recorder.wait_until_settled(self._stalled_at, 0):
            self._stalled_at = None  # it moves again
        if self._stalled_at is None and recorder.wait_until_settled(sequence, MAX_APPEND_WAIT_S):
            return
        self._num_early_entries += 1
        if self._stalled_at is None:
            self._stalled_at = sequence
            if not was_stalled:
                log.error("the recorder's disk stalls: clients are served ahead of it", waited_s=MAX_APPEND_WAIT_S)

    def _send_status(self) -> bool:
        recorder, keeper = self._recorder, self._keeper
        if recorder is None or keeper is None:
            return True
        status = RecorderStatus(
            recorder.num_bytes,
            recorder.num_entries,
            recorder.num_gap_entries,
            self._num_early_entries,
            keeper.num_removed,
            keeper.outcome.num_bytes,
            keeper.outcome.num_pinned_bytes,
            recorder.is_paused or recorder.has_gap_to_write,
            recorder.num_waiting_entries,
        )
        if status == self._recorder_status:
            return True
        self._recorder_status = status
        return self._send_frame(status)

    def _send_frame(self, message: Message) -> bool:
        try:
            self._connection.sendall(encode(message))
        except OSError:  # the daemon is gone; the inbox sees it too and stops the loop
            return False
        return True


class EngineProcess:
    """Model, core, recorder and loop of one engine, started in this order."""

    def __init__(self, config: EngineConfig, connection: socket.socket) -> None:
        self._config = config
        self._clock: Clock = JumpingClock(SystemClock()) if config.inject else SystemClock()
        self._outbox = SocketOutbox(connection, self._clock)
        self._inbox = SocketInbox(connection)
        self._recorder: Recorder | None = None
        self._keeper: Keeper | None = None

    def run(self) -> int:
        """Serve until told to stop; returns the exit code. What keeps it from starting is said in a Failed message."""
        try:
            loop = self._build()
        except EngineError as error:
            return self._fail(str(error))
        except Exception as error:
            log.exception("the engine cannot start")
            return self._fail(f"the engine cannot start: {type(error).__name__}: {error}")
        cause = "engine error"
        try:
            cause = loop.serve(self._inbox)
            return 0
        except Exception as error:  # a broken invariant of ours: the recording ends with the event that broke it
            log.exception("the engine cannot go on")
            if self._keeper is not None:
                self._keeper.pin(Incident.ENGINE_ERROR)
            return self._fail(f"{type(error).__name__}: {error}")
        finally:
            if self._recorder is not None:
                self._recorder.close(cause)
            if self._keeper is not None:
                self._keeper.close()
            self._outbox.close()

    def _fail(self, message: str) -> int:
        self._outbox.put(Failed(message))
        self._outbox.close()
        return 1

    def _build(self) -> EngineLoop:
        salt = secrets.token_bytes(DIGEST_BYTES)
        name = self._config.scheduling_policy
        own = load_own_policy(name) if is_own_policy(name) else None
        built = build_runner(self._config, salt, self._clock)
        self._inbox.desk.prepare = built.runner.prepare_grammar
        core = Core(built.limits, policy_factory(own))
        sink: RecordSink = NoRecord()
        if self._config.record_dir:
            self._recorder = self._start_recorder(salt, built, own)
            self._keeper = Keeper(self._recorder, _bounds(self._config), self._clock, _warn)
            self._outbox.watch(self._recorder, self._keeper)
            sink = self._recorder
        self._outbox.put(Ready({**built.info, **self._told_when_ready(), "limits": built.limits.to_dict()}))
        if self._config.inject:
            self._inject_faults(built.runner)
        watch, audit = built.runner.watch, self._self_audit(built)
        return EngineLoop(core, built.runner, self._clock, sink, self._publish, self._outbox.put, watch, audit, salt)

    def _told_when_ready(self) -> dict[str, object]:
        """Where it is recorded, and what is to be added to a `now_ns` for the calendar's time."""
        clock, recorder = self._clock, self._recorder
        offset_ns = clock.wall_ns() - clock.now_ns() if recorder is None else recorder.wall_offset_ns
        return {"record_dir": self._config.record_dir, "recording": {"wall_offset_ns": offset_ns}}

    def _self_audit(self, built: BuiltRunner) -> SelfAudit | None:
        if self._config.audit_rate == 0:
            return None
        if not built.info["p4_holds"]:
            log.warning("no request is audited: alone it may have other bits on this machine")
            return None

        def make_runner(num_blocks: int) -> Runner:
            return built.runner.emptied(num_blocks, built.limits.block_size, 0)

        return SelfAudit(self._config.audit_rate, built.limits, make_runner, built.runner.watch)

    def _inject_faults(self, runner: Runner) -> None:
        from engine.injected_faults import EngineEffects, inject_into  # here, for no engine in service has any

        assert isinstance(self._clock, JumpingClock)
        recorder = self._recorder
        fill_disk = (lambda: recorder.pause("the disk is full (injected)")) if recorder else (lambda: None)
        inject_into(runner, self._config.inject, EngineEffects(self._clock, self._inbox.cancel, fill_disk))

    def _start_recorder(self, salt: bytes, built: BuiltRunner, own: OwnPolicy | None) -> Recorder:
        policy = {POLICY_DIGEST: own.sha256} if own else {}
        header = Header(
            salt=salt,
            reprise_version=version("reprise"),
            limits=built.limits.to_dict(),
            config=asdict(self._config),
            environment={
                **built.info,
                **policy,
                "llguidance": version("llguidance"),
                "python": platform.python_version(),
                "machine": platform.machine(),
            },
        )
        return Recorder(
            Path(self._config.record_dir),
            header,
            self._clock,
            record_content=self._config.record_content,
            max_segment_bytes=self._config.max_segment_bytes,
            keys=self._open_keys() if self._config.record_content else None,
            max_segment_age_s=self._config.max_segment_age_s,
            sync_interval_ms=self._config.sync_interval_ms,
            slo=SloWatch(self._config.slo_ttft_ms, self._config.slo_itl_ms),
        )

    def _open_keys(self) -> "KeyRing":
        from recorder.keys import open_ring  # here, for most recordings hold no contents

        keys = Path(self._config.record_dir).parent / "keys"
        return open_ring(keys, self._clock, os.environ, self._config.vault_key_file)

    def _publish(self, entry: Entry, outputs: tuple[TokenOutput, ...]) -> None:
        self._outbox.put(Handled(entry, outputs))


def _bounds(config: EngineConfig) -> Bounds:
    return Bounds(
        config.record_max_bytes, config.record_max_age_s, config.record_min_free_bytes, config.record_pin_bytes
    )


def _warn(text: str, figures: dict[str, object]) -> None:
    log.warning(text, **figures)


def main() -> int:
    """Entry of `python -m engine.process`."""
    parser = argparse.ArgumentParser(prog="python -m engine.process", description=__doc__.splitlines()[0])
    parser.add_argument("--fd", type=int, required=True, help="inherited socket to the daemon")
    parser.add_argument("--config", required=True, help="EngineConfig as JSON")
    arguments = parser.parse_args()
    set_up_at_first_line("info")
    for number in (signal.SIGINT, signal.SIGTERM):  # the daemon drains, and tells the engine when to stop
        signal.signal(number, signal.SIG_IGN)
    connection = socket.socket(fileno=arguments.fd)
    return EngineProcess(EngineConfig.from_json(arguments.config), connection).run()


if __name__ == "__main__":
    exit_code = main()
    sys.stderr.flush()
    os._exit(exit_code)  # all is written and sent; torch would take two seconds to tear itself down
