"""The keeper of a run's record directory, a thread beside the recorder: sealing, bounds, pins, and the floor of space.

It looks every two seconds and sleeps in between; what takes time is done by a process of the lowest priority
(`housekeeping.py`). It must never be waited for by whoever serves.
"""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from engine.clock import Clock
from recorder.format import segment_path
from recorder.housekeeping import Order, Outcome, closed_segments
from recorder.incidents import Incident, Pin, pin_segment
from recorder.retention import Bounds
from recorder.writer import Recorder

LOOK_INTERVAL_S = 2.0
PASS_INTERVAL_NS = 600 * 10**9  # for what only grows old
MIN_PASS_INTERVAL_NS = 10 * 10**9  # while space is short
MAX_SEALED_AT_CLOSE_BYTES = 2 << 20  # a quarter of a second; more waits for the next start

Warn = Callable[[str, dict[str, object]], None]


class Keeper:
    """
    outcome     of the last pass
    num_removed, num_unpinned   in all passes
    """

    def __init__(self, recorder: Recorder, bounds: Bounds, clock: Clock, warn: Warn) -> None:
        """`warn` gets what an operator should read: a text and its figures; it is called in the keeper's thread."""
        self._recorder = recorder
        self._run = recorder.directory
        self._bounds = bounds
        self._clock = clock
        self._warn = warn
        self._closing = threading.Event()
        self._child: subprocess.Popen[bytes] | None = None
        self._pinned: set[tuple[int, str]] = set()
        self._told = ("", False)  # the last error, and whether entries are being lost by it
        self._last_pass_ns = -PASS_INTERVAL_NS if self._has_neighbours() else clock.now_ns()
        self.outcome = Outcome()
        self.num_removed = 0
        self.num_unpinned = 0
        self._thread = threading.Thread(target=self._keep, name="keeper", daemon=True)
        self._thread.start()

    def pin(self, incident: Incident) -> None:
        """The segment under way is worth keeping. Any thread."""
        self._recorder.incidents.put((self._recorder.segment_number, incident))

    def close(self) -> None:
        """After the recorder was closed: pin and seal what is left, as far as that is quick."""
        self._closing.set()
        child = self._child
        if child is not None:
            child.kill()  # whatever it was at is as it was before
        self._thread.join(LOOK_INTERVAL_S)

    def _keep(self) -> None:
        while not self._closing.wait(LOOK_INTERVAL_S):
            self._pin_incidents()
            if self._is_due() and not self._closing.is_set():
                self._pass()
            self._mind_the_floor()
            self._tell_faults()
        self._pin_incidents()
        self._seal_what_is_small()

    def _has_neighbours(self) -> bool:
        """Something was recorded here before: a pass at the start seals and bounds it."""
        with os.scandir(self._run.parent) as entries:
            return sum(1 for _entry in zip(entries, range(2), strict=False)) > 1

    def _is_due(self) -> bool:
        since_ns = self._clock.now_ns() - self._last_pass_ns
        if since_ns >= PASS_INTERVAL_NS:
            return True
        if since_ns < MIN_PASS_INTERVAL_NS:
            return False
        return self._is_below_floor() or any(closed_segments(self._run, self._recorder.segment_number))

    def _pass(self) -> None:
        self._last_pass_ns = self._clock.now_ns()
        order = Order(str(self._run.parent), self._run.name, self._recorder.segment_number, self._bounds)
        command = [sys.executable, "-P", "-m", "recorder.housekeeping", json.dumps(asdict(order))]
        packages = str(Path(__file__).resolve().parent.parent)
        paths = [packages, *filter(None, [os.environ.get("PYTHONPATH")])]
        try:
            with subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            ) as child:
                self._child = child
                output, _ = child.communicate()
            self.outcome = Outcome(**json.loads(output))
        except (OSError, ValueError) as error:
            if not self._closing.is_set():
                self._warn("the record directory was not looked after", {"error": str(error)})
            return
        finally:
            self._child = None
        self.num_removed += self.outcome.num_removed
        self.num_unpinned += self.outcome.num_unpinned
        for fault in self.outcome.faults:
            self._warn("the record directory could not be kept in order", {"fault": fault})

    def _is_below_floor(self) -> bool:
        try:
            free = os.statvfs(self._run)
        except OSError:
            return False
        return free.f_bavail * free.f_frsize < self._bounds.min_free_bytes

    def _tell_faults(self) -> None:
        """What the disk refuses though it has space, or somebody removes under the recorder: once, and its end."""
        recorder = self._recorder
        state = recorder.last_error, recorder.has_gap_to_write and not recorder.is_paused
        if state == self._told:
            return
        self._told = state
        figures: dict[str, object] = {"error": state[0], "num_gap_entries": recorder.num_gap_entries}
        self._warn(
            "recording has stopped, and is tried again" if state[1] else "recording goes on after an error", figures
        )

    def _mind_the_floor(self) -> None:
        """What is left of the disk belongs to others: recording stops, counted as a gap, until there is space again."""
        is_below = self._is_below_floor()
        if is_below == self._recorder.is_paused:
            return
        if is_below:
            cause = f"less than {self._bounds.min_free_bytes} bytes are free on the recorder's disk"
            self._recorder.pause(cause)
            self._warn("recording has stopped: " + cause, {})
        else:
            self._recorder.resume()
            self._warn("recording goes on: there is space again", {})

    def _pin_incidents(self) -> None:
        while not self._recorder.incidents.empty():
            number, incident = self._recorder.incidents.get_nowait()
            if number == 1 and incident is Incident.ENGINE_CRASH:
                continue  # a run's first engine goes on with an earlier daemon's streams: nothing died in this run
            has_begun_before = number > 1 and incident in (Incident.ENGINE_CRASH, Incident.REQUEST_KILLS_ENGINE)
            numbers = (number - 1, number) if has_begun_before else (number,)
            for each in numbers:
                if (each, incident) not in self._pinned:
                    self._pinned.add((each, incident))
                    self._pin(each, incident)

    def _pin(self, number: int, incident: Incident) -> None:
        try:
            pin_segment(segment_path(self._run, number), Pin(incident, True, self._clock.wall_ns()))
        except OSError as error:
            self._warn("a segment could not be pinned", {"segment": number, "reason": incident, "error": str(error)})

    def _seal_what_is_small(self) -> None:
        from recorder.errors import RecordingError
        from recorder.sealing import seal

        for path in closed_segments(self._run, self._recorder.segment_number + 1):
            try:
                if path.stat().st_size <= MAX_SEALED_AT_CLOSE_BYTES:
                    seal(path)
            except (RecordingError, OSError) as error:
                self._warn("a segment was not sealed", {"segment": str(path), "error": str(error)})
