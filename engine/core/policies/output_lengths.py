"""Learned output lengths: what a request of this tenant and prompt length will probably emit, in whole tokens.

Running means per tenant and prompt-length bucket (a power of two), per tenant, and over all; the narrowest one with
enough ends in it is asked. A mean is two integers, a sum and a count that are both halved when the count is full, so
that old ends fade; equal histories give equal predictions anywhere. It must not know ranks or limits.
"""

from collections import OrderedDict
from collections.abc import Iterable
from typing import Any

DEFAULT_OUTPUT_TOKENS = 128  # before anything ended
MIN_ENDS = 4  # in a mean before it is believed
MAX_ENDS = 64  # in a mean; then its sum and count are halved
MAX_MEANS = 8_192  # kept; then the one that learned least recently is forgotten

_Key = tuple[str, int]
_ALL: _Key = ("", -2)  # no tenant's: buckets are -1 or above


class OutputLengths:
    """Learns from ends, predicts for those under way."""

    def __init__(self) -> None:
        self._means: OrderedDict[_Key, tuple[int, int]] = OrderedDict()  # key → (sum, count), last learned last

    def predict(self, tenant: str, num_prompt_tokens: int) -> int:
        """Output tokens to expect, at least 1."""
        for key in _keys(tenant, num_prompt_tokens):
            total, count = self._means.get(key, (0, 0))
            if count >= MIN_ENDS:
                return max(1, total // count)
        return DEFAULT_OUTPUT_TOKENS

    def learn(self, tenant: str, num_prompt_tokens: int, num_output_tokens: int) -> None:
        """A request came to its own end after so many tokens."""
        for key in _keys(tenant, num_prompt_tokens):
            total, count = self._means.get(key, (0, 0))
            if count >= MAX_ENDS:
                total, count = total // 2, count // 2
            self._means[key] = (total + num_output_tokens, count + 1)
            self._means.move_to_end(key)
        while len(self._means) > MAX_MEANS:
            self._means.popitem(last=False)

    def latest(self, num_means: int) -> tuple[tuple[str, int, int, int], ...]:
        """(tenant, bucket, sum, count) of the means that learned most recently, the latest last."""
        chosen = [*self._means.items()][-num_means:]
        return tuple([(*key, total, count) for key, (total, count) in chosen])

    def go_on_from(self, means: Iterable[tuple[Any, ...]]) -> None:
        """Means as `latest` gave them."""
        for tenant, bucket, total, count in means:
            self._means[tenant, bucket] = (total, count)


def _keys(tenant: str, num_prompt_tokens: int) -> tuple[_Key, ...]:
    """From the narrowest to the widest."""
    return ((tenant, num_prompt_tokens.bit_length()), (tenant, -1), _ALL)
