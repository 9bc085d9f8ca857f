"""The recording format: this docstring is its specification, format version 2.

It is written so that a reader can be made from it alone, with any msgpack package (and any zstd one, for sealed
segments). `frames.py` and `chunks.py` read and write the framing, `header.py` the header's fields; nothing else knows
them. Version 1 had neither sealed segments nor encrypted vaults; its live segments are read as they are.

**Folder.** One run of the server is one folder (mode 0700). It holds segments `000001.rpr`, `000002.rpr` … and, where
contents were to be kept, a vault `000001.vault` … beside each of them (all mode 0600, for lengths and timings tell
much even without texts). A segment is only ever appended to, by one process. The next one begins when the size or age
asked for would be exceeded, when a segment became unwritable, or when another engine process takes the run over. Then
the one before is sealed: `000001.rps` takes the place of `000001.rpr`. Where both are there, the sealed one counts.
`000001.pin` beside a segment keeps it from being removed; a `000001.part` is a sealed segment not yet done.

**Live segment.** All integers outside msgpack are unsigned, 32 bits, little-endian.

    magic     8 bytes   89 52 50 52 0D 0A 1A 0A (\\x89RPR); of a vault 89 52 50 56 0D 0A 1A 0A (\\x89RPV).
                        As PNG's: a text-mode transfer, or a cut to 7 bits, shows at once.
    header    1 frame   its body is a msgpack map, see below
    entries   frames    until the end of the file. There is no footer and no index: a killed writer leaves a valid file

**Frame.**

    length     4 bytes   of the body; 1 … 67,108,864 (64 MiB). A reader refuses others unread, and one that runs past
                         the end of the file, so no damaged length makes it allocate. (A zero-filled tail claims 0.)
    checksum   4 bytes   CRC-32C (Castagnoli, as in RFC 3720; reflected, initial value and final xor FFFFFFFF), chained:
                         checksum(n) = crc32c of the bytes [length(n), body(n)] continued from checksum(n-1), and
                         checksum(-1) = crc32c(magic), where frame 0 is the header.
                         That is one running CRC over magic, length, body, length, body …
    body       length    one msgpack object

The chain means that a frame is good only after all frames before it: what lies behind a damaged frame cannot be told
from leftovers, so a file is its longest good prefix. The header holds a random salt and the segment's number: no frame
of one file continues the chain of another. CRC-32C finds every burst up to 32 bits and is computed in about 0.1 µs for
an entry; it guards against tearing and decay, not against forgery.

**Sealed segment.** What the live one held, compressed, so that the live file can be had back bit for bit.

    magic     8 bytes   89 52 50 53 0D 0A 1A 0A (\\x89RPS)
    header    1 frame   the live segment's header, with the same body; its checksum goes on from this magic
    chunks              until the end
    trailer             u32 offset of the footer's chunk; 8 bytes 89 52 50 45 0D 0A 1A 0A (\\x89RPE)

    chunk     u32 kind; u32 stored bytes; u32 raw bytes; u32 checksum; the stored bytes, one zstd frame of the raw ones.
              checksum = crc32c continued from the header's over [u32 offset of the chunk in the file, kind, stored
              bytes, raw bytes, the stored bytes]: no chunk of another file or place passes. Raw bytes are at most
              67,371,012; a reader believes no length before the checksum is right. Unknown kinds are to be skipped
    kind 1    the live frames without their checksums: u32 length, body, u32 length, body … (about 256 KiB of them; a
              keyframe begins a chunk)
    kind 2    what followed the live segment's last whole frame: a torn tail. Usually there is none
    kind 3    the index, a map: chunks [[offset, entries, first sequence, first now_ns, last now_ns, first step, last
              step] …] with steps -1 for none; requests [[request, first chunk, last chunk] …]; keyframes [[sequence,
              num_steps, now_ns, chunk] …]. It may be damaged without loss: chunks stand in a row
    kind 4    the footer, a map: num_entries; live_bytes and live_digest (BLAKE2b-256) of the live segment, which the
              next segment's header names; damage [offset, bytes lost, reason] of the live segment, or nil;
              index_offset. It is the last chunk: a file without one was cut

**Header of a segment**: a map with string keys. Keys are only ever added, each with a default for files without it;
unknown keys are to be ignored.

    format_version           int    of the writer
    min_reader_version       int    a reader that knows only lower versions must refuse the file; a writer raises it
                                    only for changes that an older reader would misread
    salt                     bytes  16, random per recording; also the key of the prefix-block digests in the entries.
                                    It keeps digests of two recordings from being compared; whoever holds the file can
                                    still test guesses against it
    boot_id                  str    of the machine's boot: monotonic times compare only within one
    created_wall_ns          int    nanoseconds since 1970-01-01 UTC at the segment's opening
    created_now_ns           int    the monotonic clock at the same moment: ties every now_ns to the calendar
    reprise_version          str
    previous_segment_digest  bytes  BLAKE2b with 32 bytes of output over the whole file of the segment before, empty
                                    for none: a segment exchanged or cut later shows
    segment_number           int    1, 2, 3 … in the run
    first_sequence           int    sequence of the segment's first entry
    starts_fresh             bool   true: a new engine process, an empty core and its sequences begin here;
                                    false: the segment goes on from the one before
    schema                   map    kind number → [record name, [field name …]] for all kinds the writer knew
    structures               map    name → [field name …] of the nested arrays: Entry, SamplingParams
    limits, config           map    every bound of the core and every option of the engine, defaults filled in
    environment              map    what numbers depend on: versions, backend, numerics class, model digest, CPU …
    quirks                   map    name → value: deliberate changes of behaviour since format version 1, so that a
                                    later replayer can behave as the recorded one did; an absent one has its first value
    origin                   str    "" for what an engine recorded; "repaired", "redacted" for a copy made of such a
                                    recording, "shrunk" for a part of one performed again, "replayed" for what
                                    came out when its plans were executed again
    cipher                   str    "none": bodies are plain. A vault's may be "aes-256-gcm". A reader that does not
                                    know the name must refuse the file

**Entry**, the body of each frame after a segment's header: an array `[sequence, now_ns, event, [decision …]]`.

    sequence          0, 1, 2 … in the order in which the core saw the events, without a hole in one engine process
    now_ns            the one monotonic clock reading that the core was given for this event
    event, decision   arrays `[kind, field, field …]`, the fields in the order of the header's schema

The meaning of kinds and fields stands in `engine/core/events.py`, `decisions.py` and `vocabulary.py`. A kind number is
never used for another meaning. Fields are only appended: a reader drops fields beyond those it knows and keeps records
of unknown kinds as they are. Times are nanoseconds, digests binary strings, enumerations their string values.

Three kinds are the recorder's own, and stand as the event of an entry without decisions:

    RecordingGap      [first_sequence, num_entries, cause]: so many entries from first_sequence on (which is also the
                      entry's own sequence) could not be kept; the next entry's sequence is first_sequence +
                      num_entries. now_ns is that of the last of them
    RecordingClosed   [cause]: the last entry of an engine process that was shut in order. Where it lacks, the process
                      was killed or still runs, and entries that waited to be appended are unknown

    CoreKeyframe      [num_steps, state]: the whole state of the core before the next entry, whose sequence it bears;
                      `engine/core/keyframes/layout.py` says what state looks like. Replay can begin at any keyframe,
                      and goes on from the first one behind a gap. One is written about every 1,000 steps or 10 s, as
                      long as they are no more than a 17th of the stream, and each segment begins with one where it can
                      be had; an engine process's first segment needs none, for its core is new. Nothing is lost with a
                      keyframe but a place to begin at. (A reader from before there were keyframes keeps it as a record
                      of an unknown kind, and finds its sequence twice)

**Vault.** Framed as a live segment, with a magic of its own; it is not sealed. Header keys: format_version,
min_reader_version, salt, boot_id, created_wall_ns, created_now_ns, reprise_version, segment_number, cipher, as above.
Bodies are arrays, with kinds of their own:

    [1, request, [prompt token id …], [stop token id …], [[token id, bias] …], [stop string …], follows_text,
     [output token id …]]
                 a request's contents, appended before the entry of any step that used them; the output tokens are those
                 that an engine before this one had delivered
    [2, step, [[request, token id] …]]
                 a step's tokens in the order of its `emitted`, appended before that entry
    [3, num_records, cause]
                 so many records could not be kept
    [4, key id, nonce, ciphertext]
                 where the header's cipher is "aes-256-gcm": one of the first two kinds, encrypted with AES-256-GCM (the
                 tag is the last 16 bytes) under the data key of that id, nonce 12 random bytes, associated data [salt,
                 u32 segment_number, key id]. A record holds contents of one tenant only, so a step may have several
                 of kind 2. `keys.py` says where data keys lie. Records of kind 3 stay plain

Step numbers begin again in a segment that starts fresh; request numbers do not. Nothing in any of these files is ever
unpickled or evaluated.
"""

import os
import struct
from pathlib import Path

from engine.core.limits import MAX_FRAME_BYTES

FORMAT_VERSION = 2
MIN_READER_VERSION = 1  # what we write can be read by readers of this version on

SEGMENT_MAGIC = b"\x89RPR\r\n\x1a\n"
VAULT_MAGIC = b"\x89RPV\r\n\x1a\n"
SEALED_MAGIC = b"\x89RPS\r\n\x1a\n"
SEALED_END = b"\x89RPE\r\n\x1a\n"
SEGMENT_SUFFIX = ".rpr"
SEALED_SUFFIX = ".rps"
PART_SUFFIX = ".part"  # a sealed segment that is still being written
VAULT_SUFFIX = ".vault"

U32 = struct.Struct("<I")
FRAME_PREFIX = struct.Struct("<II")  # length, checksum
MAX_BODY_BYTES = MAX_FRAME_BYTES
DIGEST_BYTES = 32
CIPHER_NONE = "none"
CIPHER_AES = "aes-256-gcm"
VAULT_CIPHERS = (CIPHER_NONE, CIPHER_AES)


def segment_path(directory: Path, number: int) -> Path:
    return directory / f"{number:06d}{SEGMENT_SUFFIX}"


def vault_path(directory: Path, number: int) -> Path:
    return directory / f"{number:06d}{VAULT_SUFFIX}"


def segment_paths(directory: Path) -> list[Path]:
    """The folder's segments in the order of their numbers (not of their names: a millionth one has seven digits).

    One that is there both live and sealed is about to be removed live: the sealed one stands for it.
    """
    found: dict[int, Path] = {}
    for entry in os.scandir(directory):
        stem, _, suffix = entry.name.rpartition(".")
        if stem.isdecimal() and (suffix == "rps" or (suffix == "rpr" and int(stem) not in found)) and entry.is_file():
            found[int(stem)] = directory / entry.name
    return [found[number] for number in sorted(found)]
