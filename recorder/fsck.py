"""Every check there is, over every file of a recording: checksums, entries, indexes, digests, what is missing.

It reads all and changes nothing; `repair.py` makes a whole recording of what can be read.
"""

from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import msgpack

from engine.core.vocabulary import entry_from_array
from recorder.errors import RecordingError
from recorder.format import PART_SUFFIX, SEALED_SUFFIX, SEGMENT_SUFFIX, VAULT_CIPHERS, VAULT_MAGIC, VAULT_SUFFIX
from recorder.frames import FrameReader
from recorder.header import Header
from recorder.index import Index
from recorder.reader import Recording
from recorder.segment_files import open_segment


@dataclass(slots=True)
class Examined:
    """One file, read to its end.

    num_records   entries, or records of contents, that are whole
    faults        what is wrong with it, in words; nothing is lost by a fault that begins with "index"
    """

    path: Path
    num_bytes: int
    num_records: int = 0
    faults: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Examination:
    """
    files    each by itself
    notices  what they lack together: gaps, holes, segments that are missing or do not continue one another
    """

    files: list[Examined]
    notices: list[str]

    @property
    def is_sound(self) -> bool:
        return not self.notices and not any(file.faults for file in self.files)


def examine(path: Path) -> Examination:
    """A run's folder, or one segment with its vault. Raises RecordingError when there is nothing to examine."""
    folder = path if path.is_dir() else path.parent
    names = sorted(folder.iterdir()) if path.is_dir() else [path, path.with_suffix(VAULT_SUFFIX)]
    files = [_examine_file(name) for name in names if name.suffix in _EXAMINERS and name.exists()]
    try:
        recording = Recording.open(path)
        for _entry in recording.entries():
            pass
        notices = [str(notice) for notice in recording.notices]
    except RecordingError as error:
        if not files:
            raise
        notices = [str(error)]
    return Examination(files, notices)


def _examine_file(path: Path) -> Examined:
    examined = Examined(path, path.stat().st_size)
    try:
        _EXAMINERS[path.suffix](examined)
    except RecordingError as error:
        examined.faults.append(str(error))
    return examined


def _examine_segment(examined: Examined) -> None:
    with closing(open_segment(examined.path)) as frames:
        Header.from_map(frames.header, examined.path)
        for body in frames:
            try:
                entry_from_array(msgpack.unpackb(body, use_list=False, strict_map_key=False))
            except Exception as error:  # a stranger's bytes may be wrong in any way
                frames.mark_damaged(f"the frame holds no entry: {error or type(error).__name__}", body)
                break
            examined.num_records += 1
        examined.faults += [f"{lost} bytes at {offset} are lost: {reason}" for offset, lost, reason in frames.damages]


def _examine_sealed(examined: Examined) -> None:
    from recorder.sealed import SealedReader

    _examine_segment(examined)
    with closing(SealedReader(examined.path)) as reader:
        if reader.index_fault:
            examined.faults.append(f"index: {reader.index_fault}")
        footer, index = reader.footer, reader.index
        size, digest = reader.live_digest()
    if footer is not None and (size, digest) != (footer.live_bytes, footer.live_digest):
        examined.faults.append("it does not hold the live segment that it was made of: digests differ")
    if footer is not None and footer.num_entries != examined.num_records:
        examined.faults.append(f"the footer tells of {footer.num_entries} entries, {examined.num_records} can be read")
    if index is not None and not examined.faults and rebuilt_index(examined.path) != index:
        examined.faults.append("index: it is not what the entries say")


def rebuilt_index(sealed: Path) -> Index:
    """As it would be written now."""
    from recorder.sealed import SealedReader

    index = Index()
    with closing(SealedReader(sealed)) as reader:
        for offset, bodies in reader.chunks():
            index.add(offset, [msgpack.unpackb(body, use_list=False, strict_map_key=False) for body in bodies])
    return index


def _examine_vault(examined: Examined) -> None:
    with closing(FrameReader(examined.path, VAULT_MAGIC)) as frames:
        Header.from_map(frames.header, examined.path, VAULT_CIPHERS)
        examined.num_records = sum(1 for _body in frames)
        examined.faults += [f"{lost} bytes at {offset} are lost: {reason}" for offset, lost, reason in frames.damages]


def _examine_part(examined: Examined) -> None:
    examined.faults.append("index: a sealing was cut off here; the next one removes it")


_EXAMINERS = {
    SEGMENT_SUFFIX: _examine_segment,
    SEALED_SUFFIX: _examine_sealed,
    VAULT_SUFFIX: _examine_vault,
    PART_SUFFIX: _examine_part,
}
