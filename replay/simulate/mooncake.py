"""The Mooncake traces: a JSON object a line, with an id for each block of 512 prompt tokens.

An id stands for the block and all before it, so equal ids are prefixes to be found in a cache; answers have none, so
a conversation's next turn does not find the answer before it.

Source: Qin et al., Mooncake, FAST 2025; github.com/kvcache-ai/Mooncake.
"""

import json
from collections.abc import Iterator, Sequence

from replay.simulate.arrivals import Arrival

TOKENS_PER_ID = 512
_NS_PER_MS = 1_000_000


def read_mooncake(lines: Sequence[str]) -> Iterator[Arrival]:
    """Raises ValueError or KeyError at a line that is none."""
    for line in lines:
        row = json.loads(line)
        yield Arrival(
            row["timestamp"] * _NS_PER_MS,
            row["input_length"],
            row["output_length"],
            prefix_ids=tuple(row["hash_ids"]),
            tokens_per_id=TOKENS_PER_ID,
        )
