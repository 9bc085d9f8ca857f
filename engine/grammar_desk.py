"""Requests whose answers follow a grammar wait here until it is built, in a thread beside the loop: no stream waits.

An arrival becomes an event when its grammar is ready, so what is recorded is the order as the core saw it. What is said
of such a request meanwhile, that its client has left, comes behind its arrival; a drain comes behind all that were here
before it. A grammar that cannot be built here is built by the loop, as it was before there was a desk. It must not
know grammars.
"""

import queue
import threading
from collections.abc import Callable

from engine.core.limits import MAX_INBOX_ITEMS
from engine.log import Logger
from engine.protocol import Arrive, Cancel, Drain, Message

STACK_BYTES = 8 << 20  # twice what the process has that tried the grammar first

log = Logger(__name__)


class GrammarDesk:
    """`pass_on` every message, from one thread; each reaches `put` once, most of them at once.

    prepare   makes ready what the loop will ask for; None: not yet known, and nothing waits
    """

    def __init__(self, put: Callable[[Message], None]) -> None:
        self.prepare: Callable[[str], None] | None = None
        self._put = put
        self._lock = threading.Lock()
        self._waiting: dict[int, list[Message]] = {}  # request → what comes behind its arrival
        self._orders: queue.Queue[Arrive | Drain] = queue.Queue(MAX_INBOX_ITEMS)
        self._thread: threading.Thread | None = None

    def pass_on(self, message: Message) -> None:
        if isinstance(message, Arrive) and message.contents.grammar and self.prepare is not None:
            self._order(message)
        elif isinstance(message, Drain) and self._waiting:
            self._orders.put(message)
        elif not (isinstance(message, Cancel) and self._comes_behind(message)):
            self._put(message)

    def _order(self, arrive: Arrive) -> None:
        if self._thread is None:
            self._thread = _started(self._work)
        with self._lock:
            self._waiting[arrive.request] = []
        self._orders.put(arrive)

    def _comes_behind(self, cancel: Cancel) -> bool:
        with self._lock:
            behind = self._waiting.get(cancel.request)
            if behind is not None:
                behind.append(cancel)
            return behind is not None

    # ── in the thread ────────────────────────────────────────────────────────────────────────────────────────────

    def _work(self) -> None:
        while True:
            message = self._orders.get()
            if isinstance(message, Drain):
                self._put(message)
                continue
            try:
                assert self.prepare is not None, "nothing waits without it"
                self.prepare(message.contents.grammar)
            except Exception as error:  # the loop will meet it too, and fail this request alone
                log.warning("a grammar was not built beside the loop", error=type(error).__name__)
            with self._lock:  # whoever comes from now on comes behind
                for each in (message, *self._waiting.pop(message.request)):
                    self._put(each)


def _started(work: Callable[[], None]) -> threading.Thread:
    before = threading.stack_size(STACK_BYTES)
    try:
        thread = threading.Thread(target=work, name="grammars", daemon=True)
        thread.start()
    finally:
        threading.stack_size(before)
    return thread
