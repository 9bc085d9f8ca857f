"""The process that makes grammars: what a client gives may take its time or its life, and no stream goes with it.

Frames on stdin and stdout: u32 little-endian length, msgpack. The first holds a `GrammarVocabulary`, answered by READY;
each further one is an order as JSON text, answered by ("made", grammar) or ("invalid", why). A grammar is tried as the
engine will use it: built over the vocabulary, its first mask computed. What takes too much CPU time, memory or stack
ends the process, which is its answer. It must not know requests.
"""

import json
import resource
import signal
import struct
import sys
import time
from typing import IO, Any

import msgpack

from engine.text.grammar import InvalidGrammar
from engine.text.grammar_order import GrammarOrder, make_grammar
from engine.text.grammar_table import GrammarVocabulary, matcher_of, table_of

MAX_CPU_SECONDS = 1.0  # for all of it
MAX_ENGINE_SECONDS = 0.25  # of that, what the engine will spend on it before its first token, all streams waiting
MAX_MEMORY_BYTES = 2 << 30  # of address space: 0.4 GiB are taken before the first grammar
MAX_STACK_BYTES = 4 << 20  # half of what the engine has, which begins deeper
READY = ("ready", "")
LENGTH = struct.Struct("<I")


def main() -> int:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_STACK, (MAX_STACK_BYTES, MAX_STACK_BYTES))
    told = read_frame(sys.stdin.buffer)
    if told is None:
        return 0
    table = table_of(GrammarVocabulary(*told))
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    write_frame(sys.stdout.buffer, READY)
    while (order := read_frame(sys.stdin.buffer)) is not None:
        signal.setitimer(signal.ITIMER_PROF, MAX_CPU_SECONDS)  # its signal ends the process
        answer = _answer(table, order)
        signal.setitimer(signal.ITIMER_PROF, 0)
        write_frame(sys.stdout.buffer, answer)
    return 0


def read_frame(stream: IO[bytes]) -> Any:
    """None at the end of the stream."""
    head = stream.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    body = stream.read(LENGTH.unpack(head)[0])
    return msgpack.unpackb(body, use_list=False) if body else None


def write_frame(stream: IO[bytes], value: Any) -> None:
    body = msgpack.packb(value)
    stream.write(LENGTH.pack(len(body)) + body)
    stream.flush()


def _answer(table: Any, order: str) -> tuple[str, str]:
    maker, arguments = json.loads(order)
    try:
        grammar = make_grammar(GrammarOrder(maker, tuple(arguments)))
    except InvalidGrammar as error:
        return "invalid", str(error)
    except RecursionError:
        return "invalid", "it is nested too deeply"
    began = time.process_time()
    matcher = matcher_of(table, grammar)
    matcher.compute_bitmask()
    seconds = time.process_time() - began
    if matcher.is_error():
        return "invalid", " ".join(matcher.get_error().split())[:300]
    if seconds > MAX_ENGINE_SECONDS:
        return (
            "invalid",
            f"it takes {seconds:.2f} s to prepare, at most {MAX_ENGINE_SECONDS} are given: make it simpler",
        )
    return "made", grammar


if __name__ == "__main__":
    sys.exit(main())
