"""Traces with ids of prompt blocks, a JSON object a line: Mooncake's, Bailian's, and those that `reprise export` makes.

An id stands for the block and all before it, so equal ids are prefixes to be found in a cache; answers have none, so
a conversation's next turn does not find the answer before it. Mooncake's blocks are of 512 tokens and its times in
milliseconds; Bailian's (which has `chat_id`) of 16, in seconds; a line may say its own `block_size`, and so do ours,
which also have `name`, `tenant`, `priority` and `max_output_tokens`.

Sources: Qin et al., Mooncake, FAST 2025, and github.com/kvcache-ai/Mooncake; Wang et al., KVCache Cache in the Wild,
ATC 2025, and github.com/alibaba-edu/qwen-bailian-usagetraces-anon.
"""

from collections.abc import Iterable, Iterator

from replay.simulate.arrivals import NS_PER_S, Arrival
from replay.simulate.trace_rows import MAX_TOKENS, Row

TOKENS_PER_ID = 512
_BAILIAN_TOKENS_PER_ID = 16
_NS_PER_MS = 1_000_000
_MAX_PRIORITY = 9


def read_mooncake(rows: Iterable[Row]) -> Iterator[Arrival]:
    """Ids are numbered anew in order of appearance. Raises UnusableTrace at a line that is none."""
    numbers: dict[int, int] = {}
    for row in rows:
        is_bailian = row.has("chat_id")
        num_prompt_tokens = row.tokens("input_length")
        tokens_per_id = _BAILIAN_TOKENS_PER_ID if is_bailian else TOKENS_PER_ID
        if row.has("block_size"):
            tokens_per_id = row.whole("block_size", 1, MAX_TOKENS)
        ids = row.ids("hash_ids")
        if ids and len(ids) < num_prompt_tokens // tokens_per_id:
            row.fail("input_length", f"needs {num_prompt_tokens // tokens_per_id} hash_ids, {len(ids)} are given")
        yield Arrival(
            row.at_ns("timestamp", NS_PER_S if is_bailian else _NS_PER_MS),
            num_prompt_tokens,
            row.tokens("output_length"),
            tenant=row.text("tenant"),
            priority=row.whole("priority", 0, _MAX_PRIORITY) if row.has("priority") else 0,
            max_output_tokens=row.tokens("max_output_tokens", default=0),
            prefix_ids=tuple([numbers.setdefault(number, len(numbers)) for number in ids]),
            tokens_per_id=tokens_per_id if ids else 0,
            name=row.text("name"),
        )
