"""How long streams wait while grammars come: the longest time between two steps, built by the loop and beside it.

    python -m tests.bench.grammar_stalls [--grammars 20]

One stream of the default model runs in an engine's loop; every 20 steps a request comes whose schema is new and takes
about 0.1 s of CPU time to build, the first one the table of the vocabulary, too. Times are of this machine's clock.
"""

import argparse
import queue
import secrets
from itertools import pairwise

from engine.clock import SystemClock
from engine.config import EngineConfig
from engine.core.contents import RequestContents, TokenOutput
from engine.core.events import StepCompleted
from engine.core.sampling_params import SamplingParams
from engine.core.scheduler import Core
from engine.core.vocabulary import Entry
from engine.execution.build import BuiltRunner, build_runner
from engine.grammar_desk import GrammarDesk
from engine.loop import EngineLoop, NoRecord
from engine.protocol import Arrive, Message, Stop
from engine.text.grammar import of_json_schema

STEPS_BETWEEN = 20


class Inbox:
    """The engine process's own, without a socket."""

    def __init__(self) -> None:
        self.queue: queue.Queue[Message] = queue.Queue()
        self.desk = GrammarDesk(self.queue.put)

    def get(self) -> Message:
        return self.queue.get()

    def drain(self) -> list[Message]:
        messages: list[Message] = []
        while not self.queue.empty():
            messages.append(self.queue.get())
        return messages


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--grammars", type=int, default=20, help="how many come (default: %(default)s)")
    num_grammars: int = parser.parse_args().grammars
    built = build_runner(EngineConfig("smollm2-135m-instruct", num_threads=1), secrets.token_bytes(32), SystemClock())
    built.runner.prepare_grammar(of_json_schema({"type": "boolean"}))  # the table, which is made once
    for name, is_beside in (("built by the loop", False), ("built beside it", True), ("none come", None)):
        gaps = sorted(gaps_ms(built, 0 if is_beside is None else num_grammars, bool(is_beside)))
        p99, median = gaps[len(gaps) * 99 // 100], gaps[len(gaps) // 2]
        print(f"{name:18} longest {gaps[-1]:6.1f} ms, p99 {p99:6.1f}, median {median:5.1f}")


def gaps_ms(built: BuiltRunner, num_grammars: int, is_beside: bool) -> list[float]:
    """Between the steps of the stream."""
    clock, inbox = SystemClock(), Inbox()
    inbox.desk.prepare = built.runner.prepare_grammar if is_beside else None
    ends: list[int] = []
    num_steps = STEPS_BETWEEN * max(num_grammars, 10)

    def publish(entry: Entry, outputs: tuple[TokenOutput, ...]) -> None:
        if not isinstance(entry.event, StepCompleted):
            return
        ends.append(clock.now_ns())
        number = len(ends)
        if number % STEPS_BETWEEN == 1 and number < STEPS_BETWEEN * num_grammars:
            inbox.desk.pass_on(arrival(1_000 + number, grammar(number, is_beside)))
        if number == num_steps:
            inbox.desk.pass_on(Stop("enough"))

    runner = built.runner.emptied(built.limits.num_kv_blocks, built.limits.block_size, 0)
    loop = EngineLoop(Core(built.limits), runner, clock, NoRecord(), publish)
    inbox.desk.pass_on(arrival(1, "", num_steps + 1))
    loop.serve(inbox)
    return [(end - begin) / 1e6 for begin, end in pairwise(ends)]


def arrival(request: int, grammar: str, max_tokens: int = 4) -> Arrive:
    contents = RequestContents((1, 2, 3), grammar=grammar)
    sampling = SamplingParams(ignore_eos=not grammar)
    return Arrive(request, f"r{request}", "default", 0, 0, max_tokens, sampling, contents)


def grammar(number: int, is_beside: bool) -> str:
    """None is known yet."""
    patterns = [f"^[a-z]{{{place % 7 + 1},{20 + place}}}(foo|bar{number}{is_beside})+$" for place in range(400)]
    return of_json_schema(
        {
            "type": "object",
            "properties": {f"k{place}": {"pattern": each, "type": "string"} for place, each in enumerate(patterns)},
        }
    )


if __name__ == "__main__":
    main()
