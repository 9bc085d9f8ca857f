"""The pool of KV blocks and the prefix index: numbers, no tensors.

A block is in exactly one of three places: held (reference count above zero), free (nothing of worth in it), or
evictable (count zero, contents indexed by digest, given up in LRU order when free blocks run out). Only full blocks
whose contents have been written are indexed, so a hit can be read at once. It must not know requests.

Source: Kwon et al., PagedAttention, SOSP 2023; chained block hashes as in section 4.3 there (shared prefixes).
"""

from collections import OrderedDict, deque
from collections.abc import Sequence


class BlockPool:
    """`num_blocks` blocks with reference counts, and an index digest → block over those with known contents."""

    def __init__(self, num_blocks: int, *, enable_prefix_caching: bool) -> None:
        self.num_blocks = num_blocks
        self._enable_prefix_caching = enable_prefix_caching
        self._reference_counts = [0] * num_blocks
        self._free: deque[int] = deque(range(num_blocks))
        self._evictable: OrderedDict[int, None] = OrderedDict()  # least recently released first
        self._block_of_digest: dict[bytes, int] = {}
        self._digest_of_block: dict[int, bytes] = {}

    @property
    def num_free(self) -> int:
        """Blocks that can be allocated: free or evictable."""
        return len(self._free) + len(self._evictable)

    def find_prefix(self, digests: Sequence[bytes], max_blocks: int) -> list[int]:
        """The longest run of indexed blocks for `digests` from its beginning, at most `max_blocks`."""
        hits: list[int] = []
        for digest in digests[:max_blocks]:
            block = self._block_of_digest.get(digest)
            if block is None:
                break
            hits.append(block)
        return hits

    def num_evictable_among(self, blocks: Sequence[int]) -> int:
        return sum(1 for block in blocks if self._reference_counts[block] == 0)

    def num_exclusive(self, blocks: Sequence[int]) -> int:
        """How many of a holder's blocks nobody else holds: what releasing them would make free."""
        return sum(1 for block in blocks if self._reference_counts[block] == 1)

    def num_leading_shared(self, blocks: Sequence[int]) -> int:
        """How many leading blocks of a holder's another one holds too, and can be found."""
        for count, block in enumerate(blocks):
            if self._reference_counts[block] < 2 or block not in self._digest_of_block:
                return count
        return len(blocks)

    def hold(self, blocks: Sequence[int]) -> None:
        """Share blocks found by `find_prefix`."""
        for block in blocks:
            if self._reference_counts[block] == 0:
                del self._evictable[block]
            self._reference_counts[block] += 1

    def allocate(self, count: int) -> tuple[list[int], list[int]]:
        """`count` blocks to be written, and those of them whose cached contents were evicted for it.

        The caller has made sure that `count` ≤ `num_free`.
        """
        allocated: list[int] = []
        evicted: list[int] = []
        for _ in range(count):
            if self._free:
                block = self._free.popleft()
            else:
                block, _ = self._evictable.popitem(last=False)
                del self._block_of_digest[self._digest_of_block.pop(block)]
                evicted.append(block)
            assert self._reference_counts[block] == 0
            self._reference_counts[block] = 1
            allocated.append(block)
        return allocated, evicted

    def release(self, blocks: Sequence[int]) -> int:
        """Give up one holder's blocks, last one first, so that a prefix outlives what follows it.

        Returns how many of them nobody holds any more.
        """
        num_freed = 0
        for block in reversed(blocks):
            self._reference_counts[block] -= 1
            assert self._reference_counts[block] >= 0, f"block {block} was released twice"
            if self._reference_counts[block] > 0:
                continue
            num_freed += 1
            if block in self._digest_of_block:
                self._evictable[block] = None
            else:
                self._free.append(block)
        return num_freed

    def index(self, block: int, digest: bytes) -> None:
        """Make a full, written, held block findable. The first block with these contents stays the indexed one."""
        if self._enable_prefix_caching and digest not in self._block_of_digest and block not in self._digest_of_block:
            self._block_of_digest[digest] = block
            self._digest_of_block[block] = digest

    def drop_index(self) -> int:
        """Forget what the cached blocks hold: nobody finds them, and those that nobody holds are free. Returns how many
        could be found."""
        num_found = len(self._digest_of_block)
        self._free.extend(self._evictable)
        self._evictable.clear()
        self._block_of_digest.clear()
        self._digest_of_block.clear()
        return num_found

    def check_invariants(self) -> None:
        """No block lost, none in two places, every index entry both ways. Cost: one pass over the pool."""
        held = {block for block, count in enumerate(self._reference_counts) if count > 0}
        free, evictable = set(self._free), set(self._evictable)
        assert len(free) == len(self._free), "a block is free twice"
        assert len(held) + len(free) + len(evictable) == self.num_blocks, "a block is lost or in two places"
        assert held | free | evictable == set(range(self.num_blocks))
        assert {digest: block for block, digest in self._digest_of_block.items()} == self._block_of_digest
        assert evictable <= set(self._digest_of_block)
        assert not free & set(self._digest_of_block)
