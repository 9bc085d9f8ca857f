"""Frames between the processes: whole messages out, whatever way the bytes are cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core.contents import RequestContents, TokenOutput
from engine.core.decisions import RequestFinished, TokensEmitted
from engine.core.events import RequestArrived, StepCompleted
from engine.core.sampling_params import SamplingParams
from engine.core.vocabulary import Entry
from engine.protocol import (
    Arrive,
    Cancel,
    ChangePolicy,
    Drain,
    Failed,
    FrameDecoder,
    Handled,
    Message,
    PolicyRefused,
    ProtocolError,
    Ready,
    RecorderStatus,
    Restarted,
    Stop,
    encode,
)

CONTENTS = RequestContents((1, 2, 3), (7,), ((5, -1.5),), ("stop", "here"))
SAMPLING = SamplingParams(temperature=0.5, seed=2**64 - 1)
ENTRY = Entry(
    4,
    99,
    StepCompleted(2, ((0, "stop", 2**64 - 1, 5),), ((0, b"digest"),), 1, 2),
    (TokensEmitted(2, ((0, 1),)), RequestFinished(0, "stop", 3, 1, 0, 0, 1)),  # type: ignore[arg-type]
)
MESSAGES: list[Message] = [
    Arrive(0, "id", "default", 0, 12, 16, SAMPLING, CONTENTS),
    Cancel(0, "client"),
    Drain(),
    ChangePolicy("fair", (("tenant_weights", (("a", 2),)), ("decode_token_price", 3))),
    PolicyRefused("lottery", "no such policy"),
    Restarted(((3, "id", 2, 1),)),
    Stop("done"),
    Ready({"backend": "reference", "limits": {"block_size": 16}}),
    Failed("no such file"),
    Handled(ENTRY, (TokenOutput(0, 8, -0.5, ((8, -0.5), (9, -2.0))),)),
    Handled(Entry(0, 1, RequestArrived(0, "id", "t", 0, 5, 3, 9, (b"d" * 16,), SAMPLING), ()), ()),
    RecorderStatus(1, 2, 3),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_survives_its_frame(message: Message) -> None:
    assert list(FrameDecoder().feed(encode(message))) == [message]


@given(st.lists(st.sampled_from(MESSAGES), max_size=8), st.integers(1, 97))
def test_messages_are_whole_however_the_bytes_are_cut(messages: list[Message], size: int) -> None:
    stream = b"".join(encode(message) for message in messages)
    decoder = FrameDecoder()
    decoded = [m for start in range(0, len(stream), size) for m in decoder.feed(stream[start : start + size])]
    assert decoded == messages


@pytest.mark.parametrize("body", [b"", b"\xc1", b"\x91\xa7Unknown", b"\x93\xa6Cancel\x01\x02\x03", b"\x91\x01"])
def test_what_is_no_message_is_refused_with_its_size(body: bytes) -> None:
    with pytest.raises(ProtocolError, match=f"{len(body)} bytes"):
        list(FrameDecoder().feed(len(body).to_bytes(4, "little") + body))


def test_a_frame_that_claims_too_much_is_refused_unread() -> None:
    with pytest.raises(ProtocolError, match="claims 4294967295 bytes"):
        list(FrameDecoder().feed(b"\xff\xff\xff\xff"))
