"""What one call of the API asks for, checked: the fields of its body in our own words. It must not know JSON."""

from dataclasses import dataclass
from typing import Any

from daemon.chat_rendering import PLAIN, Rendering
from daemon.choice_plan import ONE_CHOICE, ChoiceCounts
from daemon.prompt_logprobs import NOTHING_ASKED, PromptAsk
from daemon.responses_request import Asked
from daemon.shown_text import TEXT_ALONE, ShownText
from daemon.structure import Structure
from daemon.tools import ToolUse
from daemon.urgency import Urgency
from engine.core.sampling_params import SamplingParams

Prompt = str | tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Question:
    """One call of the API, checked.

    prompts            texts or token-id lists; empty for a chat
    messages           of a chat, as `chat_messages.py` reads them; empty for a completion
    max_output_tokens  None: the API's default, which depends on what the context leaves
    seed               None: to be drawn by the daemon
    sampling           its own seed is still 0
    num_logprobs       as in SamplingParams: -1 none, 0 the chosen token's own
    structure          what the answer must read, and the same as a grammar once that is made
    tools              functions that it may call, or must; its grammar then is theirs
    asked              of /v1/responses: what its answer says again
    echo               the answer begins with the prompt's text
    counts             how many choices each prompt has
    rendering          of a chat
    adds_special       the tokens that the model wants around a text are put around a completion's prompt
    max_prompt_tokens  of a longer prompt only the last so many count; 0: all, -1: as many as leave room
    shown              what of the answer's tokens becomes text
    continuous_usage   each chunk of a stream tells the usage so far
    suffix             of a completion: the answer belongs between the prompt and it
    prompt_ask         what is wanted of the prompt's own tokens
    unknown_fields     names of fields that were not looked at
    """

    is_chat: bool
    model: str | None
    prompts: tuple[Prompt, ...]
    messages: tuple[dict[str, Any], ...]
    max_output_tokens: int | None
    sampling: SamplingParams
    seed: int | None
    stop_strings: tuple[str, ...]
    stop_token_ids: tuple[int, ...]
    logit_bias: tuple[tuple[int, float], ...]
    stream: bool
    include_usage: bool
    return_token_ids: bool
    urgency: Urgency
    request_id: str
    unknown_fields: tuple[str, ...]
    echo: bool = False
    structure: Structure | None = None
    grammar: str = ""
    tools: ToolUse | None = None
    asked: Asked | None = None
    counts: ChoiceCounts = ONE_CHOICE
    prompt_ask: PromptAsk = NOTHING_ASKED
    suffix: str = ""
    rendering: Rendering = PLAIN
    adds_special: bool = True
    max_prompt_tokens: int = 0
    shown: ShownText = TEXT_ALONE
    continuous_usage: bool = False

    @property
    def follows_text(self) -> bool:
        """The answer goes on within a text, whose blank before it counts."""
        return not self.is_chat or self.rendering.goes_on

    @property
    def num_logprobs(self) -> int:
        return self.sampling.num_logprobs
