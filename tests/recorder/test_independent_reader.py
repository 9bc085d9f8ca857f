"""A reader made from the docstring of recorder/format.py alone: msgpack and the standard library, nothing of ours."""

from pathlib import Path
from typing import Any

import msgpack

from engine.core.vocabulary import entry_to_array
from tests.recorder.samples import one_of_every_kind, read, record, step_entry


def crc32c_table() -> list[int]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


def independent_frames(path: Path, magic: bytes) -> list[Any]:
    """Header and entries of one file, every checksum checked."""
    data, table, crc, bodies = path.read_bytes(), crc32c_table(), 0xFFFFFFFF, []

    def extend(piece: bytes) -> None:
        nonlocal crc
        for byte in piece:
            crc = crc >> 8 ^ table[(crc ^ byte) & 0xFF]

    assert data.startswith(magic)
    extend(magic)
    offset = len(magic)
    while offset < len(data):
        length = int.from_bytes(data[offset : offset + 4], "little")
        body = data[offset + 8 : offset + 8 + length]
        extend(data[offset : offset + 4] + body)
        assert crc ^ 0xFFFFFFFF == int.from_bytes(data[offset + 4 : offset + 8], "little")
        bodies.append(msgpack.unpackb(body, use_list=False, strict_map_key=False))
        offset += 8 + length
    return bodies


def test_it_reads_the_same_entries(tmp_path: Path) -> None:
    entries = one_of_every_kind() + [step_entry(sequence) for sequence in range(len(one_of_every_kind()), 20)]
    folder = record(tmp_path / "run", entries)
    header, *arrays = independent_frames(folder / "000001.rpr", bytes.fromhex("89 52 50 52 0D 0A 1A 0A"))
    assert [tuple(array) for array in arrays] == [entry_to_array(entry) for entry in read(folder)[0]]
    assert header["format_version"] == 2
    assert header["cipher"] == "none"


def test_the_schema_in_the_header_names_every_field(tmp_path: Path) -> None:
    folder = record(tmp_path / "run", one_of_every_kind())
    header, *arrays = independent_frames(folder / "000001.rpr", bytes.fromhex("89 52 50 52 0D 0A 1A 0A"))
    for _, _, event, decisions in arrays:
        for kind, *fields in (event, *decisions):
            name, field_names = header["schema"][kind]
            assert len(fields) == len(field_names), name
