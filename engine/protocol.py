"""What the daemon and the engine process say to each other: msgpack frames over a socket pair.

A frame is a u32 little-endian length and a msgpack array whose first element names the message. Engine → daemon, the
`Handled` message carries the very entry that was recorded, so that metrics and the live view are readings of the
same stream. This module knows no socket: `encode` gives bytes, `FrameDecoder` takes bytes.
"""

import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgpack

from engine.core.contents import PromptLogprobs, RequestContents, TokenOutput
from engine.core.errors import EngineError
from engine.core.limits import MAX_FRAME_BYTES
from engine.core.sampling_params import SamplingParams
from engine.core.vocabulary import Entry, entry_from_array, entry_to_array

_LENGTH = struct.Struct("<I")


class ProtocolError(EngineError):
    """The other process sent what this one cannot read."""


class Arrive(NamedTuple):
    """Daemon → engine: a request, with its contents. Fields as in `RequestArrived`."""

    request: int
    request_id: str
    tenant: str
    priority: int
    arrival_ns: int
    max_output_tokens: int
    sampling: SamplingParams
    contents: RequestContents
    ttft_target_ms: int = 0
    itl_target_ms: int = 0
    deadline_ns: int = 0
    num_handovers: int = 0
    num_cached_tokens: int = -1
    trace_context: str = ""
    num_choices: int = 1
    operation: str = "text_completion"
    is_streamed: bool = False


class Cancel(NamedTuple):
    """Daemon → engine. Fields as in `RequestCancelled`."""

    request: int
    cause: str


class ChangePolicy(NamedTuple):
    """Daemon → engine: fields as in `PolicyChanged`. Answered by the entry of that event, or by `PolicyRefused`."""

    policy: str
    parameters: tuple[tuple[str, Any], ...] = ()
    counted: tuple[tuple[Any, ...], ...] = ()


class Drain(NamedTuple):
    """Daemon → engine: take no new request."""


class Restarted(NamedTuple):
    """Daemon → engine, first message after a restart: what becomes of the requests of the engine before.

    Fields as in `ExecutorRestarted`.
    """

    lost: tuple[tuple[int, str, int, int], ...]
    handed_over: tuple[tuple[int, int], ...] = ()
    blamed: tuple[int, ...] = ()


class Stop(NamedTuple):
    """Daemon → engine: close the recording and exit."""

    cause: str


class Ready(NamedTuple):
    """Engine → daemon: the model is loaded. `info` names backend, numerics class, limits, model and recording."""

    info: dict[str, Any]


class PolicyRefused(NamedTuple):
    """Engine → daemon: a `ChangePolicy` named what cannot be; nothing has changed."""

    policy: str
    message: str


class PolicyCounted(NamedTuple):
    """Engine → daemon, at most once a second: what the policy has counted, for the next engine's `ChangePolicy`."""

    policy: str
    counted: tuple[tuple[Any, ...], ...]


class Failed(NamedTuple):
    """Engine → daemon: it cannot start or go on; `message` is for the operator."""

    message: str


class Handled(NamedTuple):
    """Engine → daemon: one entry, as recorded, and the tokens that its TokensEmitted stand for, in the same order."""

    entry: Entry
    outputs: tuple[TokenOutput, ...]


class PromptScored(NamedTuple):
    """Engine → daemon: what was asked about a prompt, before the entry of the step that has finished it.

    Nobody is told before that entry. An engine that takes the request over and finishes its prompt again says it again.
    """

    prompt: PromptLogprobs


class RecorderStatus(NamedTuple):
    """Engine → daemon: what the recorder has written and lost, for /metrics.

    num_early_entries       sent before they were on file, because the disk stalled
    num_removed_segments    to keep the bounds
    num_directory_bytes, num_pinned_bytes
                            of all runs in the record directory, as last counted
    is_stopped              entries are being lost: the disk is full or refuses them
    num_waiting_entries     given to the recorder, and not yet on file or counted as lost
    """

    num_bytes: int
    num_entries: int
    num_gap_entries: int
    num_early_entries: int = 0
    num_removed_segments: int = 0
    num_directory_bytes: int = 0
    num_pinned_bytes: int = 0
    is_stopped: bool = False
    num_waiting_entries: int = 0


_TO_ENGINE = (Arrive, Cancel, ChangePolicy, Drain, Restarted, Stop)
_TO_DAEMON = (Ready, Failed, Handled, PolicyCounted, PolicyRefused, PromptScored, RecorderStatus)
Message = (
    Arrive
    | Cancel
    | ChangePolicy
    | Drain
    | Restarted
    | Stop
    | Ready
    | Failed
    | Handled
    | PolicyCounted
    | PolicyRefused
    | PromptScored
    | RecorderStatus
)
_TYPES: dict[str, type[Any]] = {kind.__name__: kind for kind in (*_TO_ENGINE, *_TO_DAEMON)}


def encode(message: Message) -> bytes:
    """The frame of `message`."""
    if isinstance(message, Handled):
        fields: tuple[Any, ...] = (entry_to_array(message.entry), message.outputs)
    else:
        fields = tuple(message)
    body = msgpack.packb((type(message).__name__, *fields))
    if len(body) > MAX_FRAME_BYTES:
        raise ProtocolError(f"a {type(message).__name__} frame of {len(body)} bytes exceeds {MAX_FRAME_BYTES}")
    return _LENGTH.pack(len(body)) + bytes(body)


def decode(body: bytes) -> Message:
    """The message in a frame's body."""
    try:
        name, *fields = msgpack.unpackb(body, use_list=False, strict_map_key=False)
        if name == "Handled":
            outputs = tuple([TokenOutput(*output) for output in fields[1]])
            return Handled(entry_from_array(fields[0]), outputs)
        if name == "PromptScored":
            return PromptScored(PromptLogprobs(*fields[0]))
        if name == "Arrive":
            arrive = Arrive(*fields)
            return arrive._replace(
                sampling=SamplingParams(*arrive.sampling), contents=RequestContents(*arrive.contents)
            )
        message: Message = _TYPES[name](*fields)
        return message
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise ProtocolError(f"unreadable frame of {len(body)} bytes: {error}") from error


class FrameDecoder:
    """Cuts a byte stream into messages, keeping what is not yet whole."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Message]:
        self._buffer += data
        offset = 0
        while len(self._buffer) - offset >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._buffer, offset)
            if length > MAX_FRAME_BYTES:
                raise ProtocolError(f"a frame claims {length} bytes, at most {MAX_FRAME_BYTES} are read")
            end = offset + _LENGTH.size + length
            if len(self._buffer) < end:
                break
            yield decode(bytes(self._buffer[offset + _LENGTH.size : end]))
            offset = end
        del self._buffer[:offset]
