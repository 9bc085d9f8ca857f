"""What an answer must read → its grammar, made in a process of its own that may die of it.

Nothing of it runs in the event loop, and one grammar is made at a time: a client that sends hostile ones keeps those
waiting who send others, never a stream. Grammars made lately are known. It must not know HTTP beyond its errors.
"""

import asyncio
import hashlib
import json
import os
import select
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import structlog

from daemon import grammar_child
from daemon.errors import ApiError, bad_request, unavailable
from daemon.structure import Structure
from engine.text.grammar import MAX_GRAMMAR_CHARS
from engine.text.grammar_table import GrammarVocabulary
from engine.text.vocabulary import Vocabulary

MODULE = "daemon.grammar_child"
MAX_ORDER_CHARS = 4 * MAX_GRAMMAR_CHARS
MAX_WAITING = 64
MAX_KNOWN, MAX_KNOWN_CHARS = 256, 4 << 20
START_SECONDS, ANSWER_SECONDS = 60.0, 30.0  # of the clock; CPU time is counted by the child

log = structlog.get_logger(__name__)


class GrammarMaker:
    """Safe for concurrent calls; `close` when no more come. The process is started with the first grammar."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = GrammarVocabulary(
            vocabulary.token_bytes, tuple(sorted(vocabulary.special_ids)), vocabulary.eos_token_ids
        )
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="grammar")
        self._child: subprocess.Popen[bytes] | None = None
        self._known: dict[bytes, str] = {}
        self._num_known_chars = 0
        self._num_waiting = 0

    async def make(self, structure: Structure) -> str:
        """Raises ApiError: 400 that names the place, 503 when too many wait."""
        try:
            order = json.dumps(structure.order)
        except RecursionError as error:
            raise bad_request(f"{structure.place} is nested too deeply", structure.field) from error
        if len(order) > MAX_ORDER_CHARS:
            raise bad_request(f"{structure.place} has {len(order)} characters as JSON, too many", structure.field)
        key = hashlib.blake2b(order.encode(), digest_size=16).digest()
        if key in self._known:
            return self._known[key]
        if self._num_waiting >= MAX_WAITING:
            raise unavailable(f"{MAX_WAITING} grammars wait to be made", "overloaded")
        self._num_waiting += 1
        try:
            outcome, text = await asyncio.get_running_loop().run_in_executor(self._thread, self._ask, order)
        finally:
            self._num_waiting -= 1
        if outcome != "made":
            raise _refusal(structure, outcome, text)
        self._remember(key, text)
        return text

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)
        if self._child is not None:
            self._child.kill()  # a thread that waits for its answer sees the end of its output
        self._thread.shutdown(wait=True)
        self._end_child()

    def _remember(self, key: bytes, grammar: str) -> None:
        self._known[key] = grammar
        self._num_known_chars += len(grammar)
        while len(self._known) > MAX_KNOWN or self._num_known_chars > MAX_KNOWN_CHARS:
            self._num_known_chars -= len(self._known.pop(next(iter(self._known))))

    # ── in the thread ────────────────────────────────────────────────────────────────────────────────────────────

    def _ask(self, order: str) -> tuple[str, str]:
        """The child's answer; "died" where it has none, "late" where it took too long, "absent" without a child."""
        if self._child is None or self._child.poll() is not None:
            self._end_child()
            try:
                self._child = _start()
                if _exchange(self._child, self._vocabulary, START_SECONDS) != grammar_child.READY:
                    raise OSError("it ended at once")
            except OSError as error:  # a timeout, too
                log.error("grammars cannot be made", error=str(error), exit_code=self._end_child())
                return "absent", ""
        try:
            answer = _exchange(self._child, order, ANSWER_SECONDS)
        except TimeoutError:
            self._end_child()
            return "late", ""
        except OSError:
            answer = None
        if answer is None:
            log.warning("a grammar ended the process that made it", exit_code=self._end_child())
            return "died", ""
        return answer

    def _end_child(self) -> int | None:
        child, self._child = self._child, None
        if child is None:
            return None
        child.kill()
        code = child.wait()
        for stream in (child.stdin, child.stdout):
            if stream is not None:
                try:
                    stream.close()
                except OSError:
                    log.debug("what was not written is lost with the process")
        return code


def _start() -> "subprocess.Popen[bytes]":
    """Its stderr would tell of clients' texts."""
    packages = str(Path(__file__).resolve().parent.parent)
    paths = [packages, *filter(None, [os.environ.get("PYTHONPATH")])]
    return subprocess.Popen(
        [sys.executable, "-P", "-m", MODULE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )


def _exchange(child: "subprocess.Popen[bytes]", told: Any, seconds: float) -> tuple[str, str] | None:
    """None when it ended. Raises TimeoutError, OSError."""
    assert child.stdin is not None, "it is a pipe"
    assert child.stdout is not None, "it is a pipe"
    grammar_child.write_frame(child.stdin, told)
    if not select.select([child.stdout], [], [], seconds)[0]:
        raise TimeoutError
    answer: tuple[str, str] | None = grammar_child.read_frame(child.stdout)
    return answer


def _refusal(structure: Structure, outcome: str, text: str) -> ApiError:
    if outcome == "invalid":
        return bad_request(f"{structure.place}: {text}", structure.field)
    if outcome == "died":
        bound = f"more than {grammar_child.MAX_CPU_SECONDS:g} s of CPU time, or memory, to prepare"
        return bad_request(f"{structure.place}: it is too complex, it takes {bound}: make it simpler", structure.field)
    return unavailable("no grammar can be made at present", "overloaded")
