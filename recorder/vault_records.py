"""What a vault holds: the kinds of its records, and the two that the engine thread hands over. See `format.py`."""

from typing import NamedTuple

from engine.core.contents import RequestContents, TokenOutput

PROMPT = 1
TOKENS = 2
GAP = 3


class Prompt(NamedTuple):
    request: int
    contents: RequestContents


class StepTokens(NamedTuple):
    step: int
    outputs: tuple[TokenOutput, ...]
