"""How much of its `max_output_tokens` a request is expected to emit: learned from those that came to their own ends.

Clients who say exactly what they want use all of it, and those who leave the default use a few per cent of it: so the
share used is learned apart for each magnitude (power of two) of the maximum. Before enough have ended a request is
expected to use all, up to FIRST_GUESS_TOKENS, for admitting too few costs a little and too many much. Integers only.
It must not know who asks, nor for what.
"""

FIRST_GUESS_TOKENS = 512
MIN_ENDS = 8  # of a magnitude before its share is believed
MAX_ENDS = 256  # then sum and count are halved, so that old ends fade


class ExpectedOutput:
    """At most 64 magnitudes are kept, of two numbers each."""

    def __init__(self) -> None:
        self._used: dict[int, tuple[int, int, int]] = {}  # magnitude → tokens emitted, tokens allowed, ends

    def predict(self, max_output_tokens: int) -> int:
        """Output tokens to expect, 1 to `max_output_tokens`; 0 where nothing is to come."""
        if max_output_tokens == 0:
            return 0
        emitted, allowed, num_ends = self._used.get(max_output_tokens.bit_length(), (0, 0, 0))
        if num_ends < MIN_ENDS:
            return min(max_output_tokens, FIRST_GUESS_TOKENS)
        return max(1, -(-max_output_tokens * emitted // allowed))

    def learn(self, max_output_tokens: int, num_output_tokens: int) -> None:
        """A request came to its own end after so many tokens."""
        magnitude = max_output_tokens.bit_length()
        emitted, allowed, num_ends = self._used.get(magnitude, (0, 0, 0))
        if num_ends >= MAX_ENDS:
            emitted, allowed, num_ends = emitted // 2, allowed // 2, num_ends // 2
        self._used[magnitude] = (emitted + num_output_tokens, allowed + max_output_tokens, num_ends + 1)
