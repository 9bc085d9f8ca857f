"""Recordings for the tests, made as the engine makes them: loop, core, recorder, and the executor without weights."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgpack

from engine.core.contents import RequestContents
from engine.core.decisions import StepPlanned
from engine.core.events import StepCompleted
from engine.core.limits import Limits
from engine.core.sampling_params import SamplingParams
from engine.core.scheduler import Core
from engine.core.vocabulary import Entry, entry_to_array
from engine.execution.interface import Runner, StepResult
from engine.execution.scripted import ScriptedRunner
from engine.loop import EngineLoop
from engine.protocol import Arrive, Cancel, Message, Stop
from recorder.format import SEGMENT_MAGIC, segment_path
from recorder.frames import FramedFile
from recorder.header import Header
from recorder.keys import KeyRing
from recorder.reader import Recording
from recorder.writer import Recorder
from replay.model_runs.open_model import OpenedRunner, Overrides

SALT = bytes(range(16))
SCRIPTED_CLASS = "scripted-1"
LIMITS = Limits(
    block_size=4,
    num_kv_blocks=24,
    max_model_len=96,
    max_num_seqs=6,
    max_num_batched_tokens=16,
    max_num_queued_reqs=40,
    reserve_output="none",  # so that blocks run out
)


class TickingClock:
    """Every reading is a millisecond later than the one before."""

    def __init__(self) -> None:
        self._now_ns = 1_000_000_000

    def now_ns(self) -> int:
        self._now_ns += 1_000_000
        return self._now_ns

    def wall_ns(self) -> int:
        return 1_700_000_000_000_000_000 + self._now_ns


class PlannedInbox:
    """Messages that come in while a given step is executed, or as soon as the engine is idle."""

    def __init__(self, messages: list[tuple[int, Message]]) -> None:
        self._messages = sorted(messages, key=lambda item: item[0])
        self._num_steps = 0

    def get(self) -> Message:
        return self._messages.pop(0)[1] if self._messages else Stop("test over")

    def drain(self) -> list[Message]:
        self._num_steps += 1
        due = [message for step, message in self._messages if step <= self._num_steps]
        self._messages = [item for item in self._messages if item[0] > self._num_steps]
        return due


def mixed_load(num_requests: int, seed: int = 0) -> list[tuple[int, Message]]:
    """Requests with shared prefixes, some cancelled at random moments."""
    draw = random.Random(seed)
    prefixes = [tuple(draw.randrange(1, 1000) for _ in range(12)) for _ in range(3)]
    messages: list[tuple[int, Message]] = []
    step = 0
    for request in range(num_requests):
        step += draw.randrange(4)
        prompt = draw.choice(prefixes) + tuple(draw.randrange(1, 1000) for _ in range(draw.randrange(1, 20)))
        arrive = Arrive(
            request,
            f"req-{request}",
            "",
            0,
            step,
            draw.randrange(1, 30),
            SamplingParams(seed=draw.randrange(1 << 32), ignore_eos=True),
            RequestContents(prompt),
        )
        messages.append((step, arrive))
        if request % 6 == 5:
            messages.append((step + draw.randrange(12), Cancel(request, "client")))
    return messages


def stopping_load(num_requests: int) -> list[tuple[int, Message]]:
    """Requests, numbered from 100 on, that end by a token of their own, most of them soon."""
    messages: list[tuple[int, Message]] = []
    for number in range(num_requests):
        contents = RequestContents(tuple(range(1, 6 + number)), stop_token_ids=tuple(range(0, 1000, 9)))
        sampling = SamplingParams(seed=number)
        messages.append((3 * number, Arrive(100 + number, f"stops-{number}", "", 0, 0, 40, sampling, contents)))
    return messages


def asking_load(num_requests: int) -> list[tuple[int, Message]]:
    """`mixed_load`, of which every second request asks about its prompt, and every sixth about nothing else."""

    def asked(message: Message) -> Message:
        if not isinstance(message, Arrive) or message.request % 2:
            return message
        arrive = message._replace(sampling=message.sampling._replace(num_prompt_logprobs=message.request % 3))
        return arrive._replace(max_output_tokens=0) if message.request % 6 == 0 else arrive

    return [(step, asked(message)) for step, message in mixed_load(num_requests)]


def make_header(limits: Limits = LIMITS) -> Header:
    return Header(
        salt=SALT,
        reprise_version="0.1.0",
        limits=limits.to_dict(),
        config={"model": "scripted"},
        environment={"numerics_class": SCRIPTED_CLASS, "backend": "scripted", "model": "scripted"},
    )


def make_runner(limits: Limits = LIMITS, salt: bytes = SALT) -> ScriptedRunner:
    return ScriptedRunner(limits.num_kv_blocks, limits.block_size, salt)


def open_scripted(header: Header, overrides: Overrides) -> OpenedRunner:
    """What execute and isolate get in place of a model."""
    return OpenedRunner(
        make_runner(Limits.from_dict(header.limits), header.salt), SCRIPTED_CLASS, {"backend": "scripted"}
    )


class TimedRunner(ScriptedRunner):
    """A token takes a while to compute and none to copy, so that swapping pays."""

    def execute(self, plan: StepPlanned) -> StepResult:
        result = super().execute(plan)
        num_tokens = sum(count for _request, _start, count in plan.rows)
        return result._replace(completed=result.completed._replace(execute_ns=num_tokens * 1_000_000))


class KeyframedRecorder(Recorder):
    """Wants a keyframe at every so many-th opportunity, whatever the clock says."""

    keyframe_every = 0
    _num_asked = 0

    @property
    def wants_keyframe(self) -> bool:
        self._num_asked += 1
        return self.keyframe_every > 0 and self._num_asked % self.keyframe_every == 0


def record_run(
    directory: Path,
    messages: list[tuple[int, Message]],
    *,
    limits: Limits = LIMITS,
    runner: Runner | None = None,
    make_core: Callable[[Limits], Core] = Core,
    record_content: bool = True,
    max_segment_bytes: int = 64 << 20,
    keys: KeyRing | None = None,
    keyframe_every: int = 0,
) -> Path:
    """Serve `messages` until all is done; returns the run's folder."""
    clock = TickingClock()
    recorder = KeyframedRecorder(
        directory,
        make_header(limits),
        clock,
        record_content=record_content,
        max_segment_bytes=max_segment_bytes,
        sync_interval_ms=1000,
        keys=keys,
    )
    recorder.keyframe_every = keyframe_every
    core, executor = make_core(limits), runner or make_runner(limits)
    loop = EngineLoop(core, executor, clock, recorder, lambda entry, outputs: None, digest_key=SALT)
    cause = loop.serve(PlannedInbox(messages))
    recorder.close(cause)
    return directory


def entries_of(path: Path) -> list[Entry]:
    return list(Recording.open(path).entries())


def rewrite(source: Path, directory: Path, change: Callable[[list[Entry]], list[Entry]]) -> Path:
    """The recording with other entries, re-encoded as one segment; its vault goes along."""
    header = Recording.open(source).header
    directory.mkdir()
    file = FramedFile(segment_path(directory, 1), SEGMENT_MAGIC, header.to_map())
    file.append([msgpack.packb(entry_to_array(entry)) for entry in change(entries_of(source))])
    file.close()
    for vault in source.glob("*.vault"):
        (directory / vault.name).write_bytes(vault.read_bytes())
    return directory


def changed_decision(
    entries: list[Entry], kind: type[Any], change: Callable[[Any], Any], *, occurrence: int = 0
) -> tuple[list[Entry], int, int]:
    """Replace one decision of `kind`; returns the entries, the sequence, and the decision's place in its entry."""
    for number, entry in enumerate(entries):
        for index, decision in enumerate(entry.decisions):
            if type(decision) is kind:
                if occurrence == 0:
                    replaced = (*entry.decisions[:index], change(decision), *entry.decisions[index + 1 :])
                    return (
                        [*entries[:number], entry._replace(decisions=replaced), *entries[number + 1 :]],
                        entry.sequence,
                        index,
                    )
                occurrence -= 1
    raise AssertionError(f"the recording holds too few {kind.__name__}")


def bits_of(path: Path) -> dict[int, list[tuple[int, int]]]:
    """request → hidden digest and log-probability bits of each of its tokens."""
    bits: dict[int, list[tuple[int, int]]] = {}
    for entry in entries_of(path):
        if isinstance(entry.event, StepCompleted):
            for request, _flag, digest, logprob in entry.event.emitted:
                bits.setdefault(request, []).append((digest, logprob))
    return bits
