"""`reprise redact`: a copy of a recording without contents or names, that a stranger can check, and execute if asked.

Every token of the copy is synthetic, and equal exactly where the originals' digests say that whole blocks were: so
prompts share prefixes as they did, and under a new key their digests give the core the same hits. With a model the
recorded plans are carried out on the synthetic prompts, and results and digests are those: the copy can be executed,
bit for bit. Without one they are zero. No contents of the original are read.

Lengths, times, seeds, reasons and counts stay as they were: the decisions follow from them. Keyframes are the core's
own, made anew on the redacted events (`redacted_states.py`).
"""

import secrets
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgpack

from engine.core.contents import RequestContents
from engine.core.decisions import StepPlanned
from engine.core.events import (
    AuditCompleted,
    ExecutorRestarted,
    KVMismatch,
    PolicyChanged,
    RequestArrived,
    StepCompleted,
    StepFailed,
)
from engine.core.limits import Limits
from engine.core.vocabulary import CoreKeyframe, Entry, RecordingClosed, entry_to_array
from engine.execution.digests import DIGEST_BYTES, block_digest
from engine.execution.interface import Runner, StepResult
from recorder.errors import RecordingError
from recorder.format import SEGMENT_MAGIC, VAULT_MAGIC, segment_path, vault_path
from recorder.frames import FramedFile
from recorder.header import Header
from recorder.in_turn import InTurn
from recorder.sealing import seal
from recorder.vault_records import PROMPT, TOKENS
from replay.environment import NUMERICS_CLASS
from replay.lives import Life, Run
from replay.model_runs.open_model import OpenRunner, Overrides
from replay.model_runs.redacted_names import RedactedNames
from replay.model_runs.redacted_states import RedactedStates
from replay.model_runs.synthetic_tokens import synthetic_tokens
from replay.refusal import CannotCompare

ORIGIN = "redacted"
_BATCH_ENTRIES = 256


@dataclass(slots=True)
class Redacted:
    """What the copy holds."""

    num_entries: int = 0
    num_requests: int = 0
    num_tokens: int = 0
    num_keyframes: int = 0
    is_executable: bool = False
    why_no_keyframes: str = ""


def redact(
    source: Path, target: Path, open_runner: OpenRunner | None = None, overrides: Overrides | None = None
) -> Redacted:
    """Write the copy into a new folder; `open_runner` makes it executable. Raises RecordingError, CannotCompare."""
    if target.exists():
        raise RecordingError(f"{target} exists: a redacted copy goes into a folder of its own")
    run = Run.open(source)
    target.mkdir(mode=0o700, parents=True)
    done, names, digest = Redacted(is_executable=open_runner is not None), RedactedNames.of(run.lives), b""
    for number, life in enumerate(run.lives, start=1):
        if life.refusal is not None:
            raise life.refusal
        header = _header(life.header, number, digest, names)
        opened = open_runner(header, overrides or Overrides()) if open_runner else None
        numerics_class = opened.numerics_class if opened else ""
        header = replace(header, environment={**header.environment, NUMERICS_CLASS: numerics_class})
        digest = _write_life(life, _Redaction(header, names, opened.runner if opened else None, done), header, target)
    return done


@dataclass(slots=True)
class _Held:
    """A request as it is in the copy: tokens so far, the digests of its full blocks, and which was which."""

    tokens: list[int]
    digests: list[bytes]
    index_of: dict[bytes, int]
    num_outputs: int = 0


class _Redaction:
    """One life: entries in, entries out, with the records of contents that belong before each."""

    def __init__(self, header: Header, names: RedactedNames, runner: Runner | None, done: Redacted) -> None:
        self._salt = header.salt
        self._block_size = Limits.from_dict(header.limits).block_size
        self._names = names
        self._runner = runner
        self._done = done
        self._blocks: dict[bytes, tuple[tuple[int, ...], bytes]] = {}  # original digest → tokens, digest here
        self._held: dict[int, _Held] = {}
        self._result: StepResult | None = None
        self._in_turn = InTurn()
        self._states = RedactedStates(header)
        self._next_sequence = header.first_sequence
        self._last_now_ns = header.created_now_ns

    def keyframe(self, place: Entry) -> Entry | None:
        """Of the copy, where the original has one."""
        keyframe = self._states.keyframe(place)
        self._done.num_keyframes += keyframe is not None
        return keyframe

    def redact(self, entry: Entry) -> tuple[Entry, list[Any]]:
        event: Any = entry.event
        contents: list[Any] = []
        if isinstance(event, RequestArrived):
            event, contents = self._arrived(event)
        elif isinstance(event, StepCompleted):
            event, contents = self._completed(event)
        elif isinstance(event, KVMismatch):
            event = event._replace(expected=0, got=1)
        elif isinstance(event, StepFailed | AuditCompleted):
            event = event._replace(error=event.error.partition(":")[0])
        elif isinstance(event, ExecutorRestarted):
            event = event._replace(lost=tuple([(row[0], self._names.request(row[1]), *row[2:]) for row in event.lost]))
        elif isinstance(event, PolicyChanged):
            event = event._replace(
                parameters=tuple([self._parameter(*pair) for pair in event.parameters]),
                counted=tuple([(self._names.tenant(row[0]), *row[1:]) for row in event.counted]),
            )
        self._carry_out(entry)
        self._done.num_entries += 1
        self._next_sequence, self._last_now_ns = entry.sequence + 1, entry.now_ns
        redacted = entry._replace(event=event)
        self._states.see(redacted)
        self._done.why_no_keyframes = self._done.why_no_keyframes or self._states.why_none
        return redacted, contents

    def closing_entry(self) -> Entry:
        """After the last one: the original was shut in order, too."""
        return Entry(self._next_sequence, self._last_now_ns, RecordingClosed(ORIGIN), ())

    def _arrived(self, event: RequestArrived) -> tuple[RequestArrived, list[Any]]:
        held = _Held([], [], {})
        for original in event.prompt_digests:
            tokens, _ = self._blocks.get(original) or (self._drawn(original, self._block_size), b"")
            held.tokens += tokens
            self._fill(held, original)
        num_left = event.num_prompt_tokens - len(held.tokens)
        held.tokens += self._drawn(b"prompt %d" % event.request, num_left)
        contents = RequestContents(
            tuple(held.tokens), output_token_ids=self._drawn(b"given %d" % event.request, event.num_output_tokens)
        )
        held.tokens += contents.output_token_ids
        held.num_outputs = event.num_output_tokens
        self._held[event.request] = held
        self._done.num_requests += 1
        sampling = event.sampling._replace(ignore_eos=True)
        if self._runner is not None:
            self._runner.add_request(event.request, sampling, contents, tuple(held.digests))
        redacted = event._replace(
            request_id=self._names.request(event.request_id),
            tenant=self._names.tenant(event.tenant),
            trace_context="",
            grammar_digest=b"",
            prompt_digests=tuple(held.digests),
            sampling=sampling,
        )
        return redacted, [(PROMPT, event.request, *contents)]

    def _completed(self, event: StepCompleted) -> tuple[StepCompleted, list[Any]]:
        filled = tuple([(request, self._fill(self._held[request], original)) for request, original in event.filled])
        drawn = {output.request: output.token_id for output in self._result.outputs} if self._result else {}
        bits = {row[0]: row[2:] for row in self._result.completed.emitted} if self._result else {}
        emitted, rows = [], []
        for request, flag, _digest, _bits in event.emitted:
            held = self._held[request]
            token = drawn[request] if self._result else self._drawn(b"%d %d" % (request, held.num_outputs), 1)[0]
            held.tokens.append(token)
            held.num_outputs += 1
            emitted.append((request, flag, *bits.get(request, (0, 0))))
            rows.append((request, token))
        self._done.num_tokens += len(rows)
        kv_digests = self._result.completed.kv_digests if self._result else ()
        prompts = {row[0]: row for row in self._result.completed.prompt_logprobs} if self._result else {}
        told = tuple([prompts.get(row[0], (*row[:2], 0)) for row in event.prompt_logprobs])
        self._result = None
        redacted = event._replace(emitted=tuple(emitted), filled=filled, kv_digests=kv_digests)
        redacted = redacted._replace(prompt_logprobs=told)
        return redacted, [(TOKENS, event.step, rows)]

    def _fill(self, held: _Held, original: bytes) -> bytes:
        """The digest here of the request's next full block, or of the same one computed again."""
        index = held.index_of.setdefault(original, len(held.digests))
        if index == len(held.digests):
            tokens = tuple(held.tokens[index * self._block_size : (index + 1) * self._block_size])
            digest = block_digest(held.digests[-1] if held.digests else b"", tokens, self._salt)
            held.digests.append(digest)
            self._blocks[original] = tokens, digest
        return held.digests[index]

    def _carry_out(self, entry: Entry) -> None:
        if self._runner is None:
            return
        for decision in self._in_turn(entry).decisions:
            if isinstance(decision, StepPlanned):
                self._result = self._runner.execute(decision)
            else:
                self._runner.carry_out(decision)  # type: ignore[arg-type]  # unknown records never come here

    def _drawn(self, seed: bytes, num_tokens: int) -> tuple[int, ...]:
        return synthetic_tokens(self._salt, seed, num_tokens)

    def _parameter(self, name: str, value: Any) -> tuple[str, Any]:
        return (name, self._names.weights(value)) if name == "tenant_weights" else (name, value)


def _header(original: Header, number: int, digest: bytes, names: RedactedNames) -> Header:
    """Nothing of the machine's or the operator's names; what decisions and numbers depend on stays."""
    config = {**original.config, "record_dir": "", "vault_key_file": ""}
    limits = dict(original.limits)
    for values in (config, limits):
        if values.get("tenant_weights"):
            values["tenant_weights"] = names.weights(values["tenant_weights"])
    return replace(
        original,
        salt=secrets.token_bytes(DIGEST_BYTES),
        boot_id="",
        config=config,
        limits=limits,
        segment_number=number,
        previous_segment_digest=digest,
        origin=ORIGIN,
    )


def _write_life(life: Life, redaction: _Redaction, header: Header, target: Path) -> bytes:
    """One sealed segment and its vault; returns the digest that the next one names."""
    segment = FramedFile(segment_path(target, header.segment_number), SEGMENT_MAGIC, header.to_map())
    vault = FramedFile(vault_path(target, header.segment_number), VAULT_MAGIC, header.to_vault_map())
    refusals: list[CannotCompare] = []
    try:
        for bodies, contents in _batches(redaction, life.comparable_entries(refusals.append, keyframes=True)):
            vault.append(contents)
            segment.append(bodies)
        if life.is_closed:
            segment.append([msgpack.packb(entry_to_array(redaction.closing_entry()))])
        segment.sync()
        vault.sync()
    finally:
        segment.close()
        vault.close()
    if refusals:
        raise refusals[0]
    digest = segment.digest()
    seal(segment.path)
    return digest


def _batches(redaction: _Redaction, entries: Iterator[Entry]) -> Iterator[tuple[list[bytes], list[bytes]]]:
    bodies: list[bytes] = []
    contents: list[bytes] = []
    for entry in entries:
        if isinstance(entry.event, CoreKeyframe):
            keyframe = redaction.keyframe(entry)
            bodies += [msgpack.packb(entry_to_array(keyframe))] if keyframe is not None else []
            continue
        redacted, records = redaction.redact(entry)
        bodies.append(msgpack.packb(entry_to_array(redacted)))
        contents += [msgpack.packb(record) for record in records]
        if len(bodies) == _BATCH_ENTRIES:
            yield bodies, contents
            bodies, contents = [], []
    if bodies:
        yield bodies, contents
