"""The metadata reader: equal to the `gguf` package on whole files, a typed error on all others."""

import struct
from pathlib import Path

import pytest
from gguf import GGUFReader
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.core.errors import ModelError
from engine.text.gguf_metadata import read_gguf_metadata
from engine.text.gguf_vocabulary import gguf_vocabulary
from tests.text.gguf_files import write_byte_level, write_sentencepiece


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gguf") / "whole.gguf"
    return write_byte_level(path, "smollm", merges=("a b", "Ġ t"), add_bos_token=True)


def test_values_are_those_of_the_gguf_package(tmp_path: Path) -> None:
    path = write_sentencepiece(tmp_path / "m.gguf", add_bos_token=True)
    metadata = read_gguf_metadata(path)
    fields = {key: field for key, field in GGUFReader(path).fields.items() if not key.startswith("GGUF.")}
    assert len(fields) >= 8
    for key, field in fields.items():
        assert metadata._values[key] == field.contents()


def test_a_file_cut_anywhere_in_its_metadata_is_refused(whole: Path, tmp_path: Path) -> None:
    data = whole.read_bytes()
    cut = tmp_path / "cut.gguf"
    end_of_metadata = data.rindex(b"tokenizer.ggml.")  # behind it lies only the last value
    for length in [*range(200), *range(200, end_of_metadata, 37)]:
        cut.write_bytes(data[:length])
        with pytest.raises(ModelError, match=r"cut\.gguf"):
            read_gguf_metadata(cut)


def _little(count: int) -> bytes:
    return struct.pack("<Q", count)


@pytest.mark.parametrize(
    ("head", "what"),
    [
        (b"GGML" + bytes(20), "does not begin with GGUF"),
        (b"GGUF" + struct.pack(">I", 3) + bytes(16), "version"),
        (b"GGUF" + struct.pack("<I", 1) + bytes(16), "version is 1"),
        (b"GGUF\3\0\0\0" + _little(0) + _little(1 << 62), "metadata keys"),
        (b"GGUF\3\0\0\0" + _little(0) + _little(1) + _little(1 << 63), "claims 9223372036854775808 bytes"),
        (
            b"GGUF\3\0\0\0" + _little(0) + _little(1) + _little(1) + b"k" + struct.pack("<II", 9, 8) + _little(1 << 40),
            "items",
        ),
        (
            b"GGUF\3\0\0\0" + _little(0) + _little(1) + _little(1) + b"k" + struct.pack("<II", 9, 4) + _little(1 << 20),
            "ends",
        ),
        (
            b"GGUF\3\0\0\0" + _little(0) + _little(1) + _little(1) + b"k" + struct.pack("<II", 9, 9) + _little(1),
            "nested",
        ),
        (b"GGUF\3\0\0\0" + _little(0) + _little(1) + _little(1) + b"\xff" + struct.pack("<I", 4), "not UTF-8"),
        (b"GGUF\3\0\0\0" + _little(0) + _little(1) + _little(1) + b"k" + struct.pack("<I", 99), "type 99"),
        (
            b"GGUF\3\0\0\0" + _little(0) + _little(1) + _little(1) + b"k" + struct.pack("<IQ", 8, 5) + b"abc",
            "5 bytes, 3 are",
        ),
    ],
)
def test_no_length_is_believed_before_it_is_checked(tmp_path: Path, head: bytes, what: str) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(head)
    with pytest.raises(ModelError, match=what):
        read_gguf_metadata(path)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_damage_anywhere_gives_a_vocabulary_or_a_typed_error(whole: Path, tmp_path: Path, data: st.DataObject) -> None:
    content = bytearray(whole.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    damaged = tmp_path / "damaged.gguf"
    damaged.write_bytes(content)
    try:
        vocabulary = gguf_vocabulary(damaged)
    except ModelError:
        return
    assert len(vocabulary.token_bytes) > 0
    assert all(0 <= number < len(vocabulary.token_bytes) for number in vocabulary.eos_token_ids)


def test_a_value_of_another_type_is_refused_with_its_key(whole: Path) -> None:
    metadata = read_gguf_metadata(whole)
    with pytest.raises(ModelError, match=r"'tokenizer\.ggml\.model' holds str, not int"):
        metadata.integer("tokenizer.ggml.model")
    with pytest.raises(ModelError, match="no metadata key 'absent'"):
        metadata.string("absent")
    with pytest.raises(ModelError, match=r"array 'tokenizer\.ggml\.tokens' holds str, not float"):
        metadata.floats("tokenizer.ggml.tokens")
