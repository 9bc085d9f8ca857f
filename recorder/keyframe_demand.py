"""When a keyframe is wanted: often enough that replay can begin near any step, seldom enough to cost little.

The engine thread tells what goes by and asks; the writer thread says what it has written, and asks for one where a
segment is to end. Each side changes its own numbers only, so that no lock is needed. It must not know states.
"""

from engine.core.events import StepCompleted
from engine.core.vocabulary import Entry

STEPS = 1_000  # completed since the one before: then one is due, or after …
AGE_NS = 10_000_000_000
STREAM_PER_KEYFRAME = 16  # times a keyframe's own bytes are recorded before the next is due: they are a 17th at most
MAX_BYTES_BETWEEN = 8 << 20  # … but no more than this, which is replayed in a second


class KeyframeDemand:
    """
    is_answered   one was given: there is somebody who gives them
    """

    def __init__(self) -> None:
        self.is_answered = False
        self._num_steps = 0
        self._since_ns: int | None = None
        self._now_ns = 0
        self._num_answers = 0
        self._bytes_at_answer = 0
        self._num_asks = 0  # the writer's from here on
        self._num_bytes = 0
        self._last_bytes = 0

    # ── the engine thread ────────────────────────────────────────────────────────────────────────────────────────

    def see(self, entry: Entry) -> None:
        self._now_ns = entry.now_ns
        if type(entry.event) is StepCompleted:
            self._num_steps += 1
        if self._since_ns is None:
            self._since_ns = entry.now_ns

    @property
    def is_wanted(self) -> bool:
        if self._num_asks != self._num_answers:
            return True
        if self._num_steps < STEPS and self._now_ns - (self._since_ns or 0) < AGE_NS:
            return False
        num_bytes = self._num_bytes - self._bytes_at_answer
        return self._num_steps > 0 and num_bytes >= min(STREAM_PER_KEYFRAME * self._last_bytes, MAX_BYTES_BETWEEN)

    def answer(self) -> None:
        """One was given; all that was asked until now is answered with it."""
        self.is_answered = True
        self._num_answers = self._num_asks
        self._bytes_at_answer = self._num_bytes
        self._num_steps = 0
        self._since_ns = self._now_ns

    # ── the writer thread ────────────────────────────────────────────────────────────────────────────────────────

    def ask(self) -> None:
        """One is wanted at the next opportunity, whatever was given before."""
        self._num_asks += 1

    def has_grown(self, num_bytes: int) -> None:
        """So much of the stream is on file."""
        self._num_bytes = num_bytes

    def has_written(self, num_bytes: int) -> None:
        """A keyframe of so many bytes."""
        self._last_bytes = num_bytes
