"""What travels beside the stream and never into the core: token ids.

The daemon sends a request's contents with its arrival, execution returns the tokens it drew with a step's result, and
the recorder keeps both in the vault when it was asked to. What a prompt's log-probabilities are it does not keep: they
can be computed again, and their digest lies in the stream.
"""

from typing import NamedTuple


class RequestContents(NamedTuple):
    """The token ids and texts that a client gave.

    logit_bias     (token id, bias) pairs, ascending by token id
    stop_strings   execution ends the request with the token that completes one of them (FinishFlag.STOP)
    follows_text   the answer goes on from the prompt's text (a completion), so its first space is a part of it
    output_token_ids   emitted already, by an engine that died: the answer goes on behind them
    grammar        what the answer must read, as `engine/text/grammar.py` writes it; "": anything
    """

    prompt_token_ids: tuple[int, ...]
    stop_token_ids: tuple[int, ...] = ()
    logit_bias: tuple[tuple[int, float], ...] = ()
    stop_strings: tuple[str, ...] = ()
    follows_text: bool = False
    output_token_ids: tuple[int, ...] = ()
    grammar: str = ""


class TokenOutput(NamedTuple):
    """One emitted token.

    logprob        natural-log probability under the unmodified logits; nan-free
    top_logprobs   (token id, log-probability), most likely first, ties by lowest id; empty unless asked for
    """

    request: int
    token_id: int
    logprob: float
    top_logprobs: tuple[tuple[int, float], ...] = ()


class PromptLogprobs(NamedTuple):
    """What the model says of a prompt's tokens, each after those before it; the first has none before it, and no row.

    num_top        alternatives per token
    logprobs       float32 of each token from the second on, little-endian, one after the other
    ranks          u32 each: 1 for the likeliest; of equals the lowest id is first
    top_ids        u32, `num_top` for each, most likely first, ties by lowest id
    top_logprobs   float32 beside them
    """

    request: int
    num_top: int
    logprobs: bytes
    ranks: bytes
    top_ids: bytes
    top_logprobs: bytes

    @property
    def num_tokens(self) -> int:
        """That it tells of."""
        return len(self.logprobs) // 4
