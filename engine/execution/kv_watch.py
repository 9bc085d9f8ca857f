"""Whether blocks still hold what was written to them: a digest of each when it fills, compared when it is read again.

Read again means found in the prefix cache, copied to the host pool, and copied back from it. Only full blocks have a
digest while they lie in the pool; in the host pool those that are not full have one, too, for nothing is written to
them there. It must not know tokens, nor how keys and values lie in memory: `digest` reads them.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from engine.core.decisions import RequestAdmitted
from engine.core.events import KVMismatch, KVNoticed


class Written(NamedTuple):
    """What was written to a block, and by whom. is_full: no further token goes there."""

    digest: int
    writer: int
    is_full: bool = True


class Filled(NamedTuple):
    """Block `block`, at place `block_index` of the table of `request`, is full now."""

    request: int
    block_index: int
    block: int


class KVWatch:
    """One pool's. What it notices waits in `take` until the core is told.

    digest   digests of blocks as they lie in the pool now
    tables   the block table of every request that is held
    """

    def __init__(
        self,
        digest: Callable[[Sequence[int]], list[int]],
        tables: Callable[[], Iterable[tuple[int, Sequence[int]]]],
    ) -> None:
        self._digest = digest
        self._tables = tables
        self._written: dict[int, Written] = {}
        self._in_host: dict[int, Written] = {}
        self._noticed: list[KVMismatch] = []

    def take(self) -> list[KVMismatch]:
        """What was noticed since it was last asked, each block once."""
        noticed, self._noticed = self._noticed, []
        return list({mismatch.block: mismatch for mismatch in reversed(noticed)}.values())[::-1]

    def written(self, block: int) -> Written | None:
        """What its holder has filled the block with; None while it is not full."""
        return self._written.get(block)

    def mismatch_at_audit(self, request: int, index: int, got: int, expected: int) -> KVMismatch | None:
        """A finished request should have written `expected`: where what it wrote still lies in the pool."""
        for block, written in self._written.items():
            if written.digest == got:
                return self._mismatch(block, written._replace(digest=expected), got, KVNoticed.AUDIT, request, index)
        return None

    def filled(self, blocks: Sequence[Filled]) -> tuple[tuple[int, int, int], ...]:
        """Take the digests of blocks that the step has filled: `StepCompleted.kv_digests`."""
        digests = self._digest([each.block for each in blocks]) if blocks else []
        for each, digest in zip(blocks, digests, strict=True):
            self._written[each.block] = Written(digest, each.request)
        return tuple([(each.request, each.block_index, digest) for each, digest in zip(blocks, digests, strict=True)])

    def allocated(self, blocks: Iterable[int]) -> None:
        """They will be written anew."""
        for block in blocks:
            self._written.pop(block, None)

    def admitted(self, decision: RequestAdmitted) -> None:
        """Before it reads them, look at the blocks that were found in the prefix cache or have been copied back."""
        num_found, num_copied = decision.num_hit_blocks, len(decision.host_blocks)
        found = decision.block_ids[:num_found]
        self.allocated(decision.block_ids[num_found:])
        self._compare(decision.request, 0, found, [self._written.get(block) for block in found], KVNoticed.HIT)
        copied = decision.block_ids[num_found : num_found + num_copied]
        expected = [self._in_host.pop(host_block) for host_block in decision.host_blocks]
        self._compare(decision.request, num_found, copied, expected, KVNoticed.SWAP_IN)
        self._written |= {block: written for block, written in zip(copied, expected, strict=True) if written.is_full}

    def copied_out(self, request: int, blocks: Sequence[int], host_blocks: Sequence[int]) -> None:
        """Look at its leading blocks, which have been copied to the host pool."""
        found = [self._written.get(block) for block in blocks]
        digests = self._compare(request, 0, blocks, found, KVNoticed.SWAP_OUT)
        for host_block, digest, written in zip(host_blocks, digests, found, strict=True):
            self._in_host[host_block] = Written(digest, written.writer if written else request, written is not None)

    def _compare(
        self, request: int, first: int, blocks: Sequence[int], expected: Sequence[Written | None], noticed: KVNoticed
    ) -> list[int]:
        """Digests of the blocks as they are; those that differ from what is expected are noticed."""
        digests = self._digest(blocks) if blocks else []
        for index, (block, written, digest) in enumerate(zip(blocks, expected, digests, strict=True), first):
            if written is not None and written.digest != digest:
                self._noticed.append(self._mismatch(block, written, digest, noticed, request, index))
        return digests

    def _mismatch(
        self, block: int, written: Written, got: int, noticed: KVNoticed, request: int, index: int
    ) -> KVMismatch:
        readers = tuple(sorted(number for number, table in self._tables() if block in table))
        return KVMismatch(block, written.digest, got, written.writer, readers, noticed, request, index)
