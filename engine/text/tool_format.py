"""How a model writes the calls of functions: told by its chat template, or the way we describe to one without.

Four ways cover the supported models: Hermes' tags (Qwen 2.5 and 3, Hermes), Llama 3's bare JSON, Mistral's list with
and without a blank. A template that speaks of tools in another way is rendered without them, and they are described to
the model (`tool_prompt.py`): the grammar makes the answer a call in any case. It must not know requests or grammars.
"""

import re
from typing import NamedTuple


class ToolFormat(NamedTuple):
    """The calls of an answer: `begins`, then each call, with `separator` between two, then `ends`.

    A call is `opening`, the name as a JSON text, `between`, the arguments as a JSON object, `closing`.
    trigger     the text that makes a call of what follows it; a free text cannot contain it
    separator   None: an answer holds one call
    is_whole    a call is the whole answer: `trigger` counts at its beginning only
    controls    pieces that some vocabularies have as control tokens
    call_id     pattern of what may stand before `closing`: the id that the model gives a call
    """

    name: str
    opening: str
    between: str
    closing: str
    trigger: str
    separator: str | None
    begins: str = ""
    ends: str = ""
    is_whole: bool = False
    controls: tuple[str, ...] = ()
    call_id: str = ""


HERMES = ToolFormat(
    "hermes",
    opening='<tool_call>\n{"name": ',
    between=', "arguments": ',
    closing="}\n</tool_call>",
    trigger="<tool_call>",
    separator="\n",
    controls=("<tool_call>", "</tool_call>"),
)
LLAMA = ToolFormat(
    "llama",
    opening='{"name": ',
    between=', "parameters": ',
    closing="}",
    trigger="{",
    separator=None,
    is_whole=True,
)
MISTRAL = ToolFormat(
    "mistral",
    opening='{"name": ',
    between=', "arguments": ',
    closing="}",
    trigger="[TOOL_CALLS]",
    separator=", ",
    begins="[TOOL_CALLS][",
    ends="]",
    controls=("[TOOL_CALLS]",),
    call_id=', "id": "[a-zA-Z0-9]{9}"',
)
SPACED_MISTRAL = MISTRAL._replace(name="mistral-spaced", begins="[TOOL_CALLS] [")

FORMATS = {each.name: each for each in (HERMES, LLAMA, MISTRAL, SPACED_MISTRAL)}


def format_told_by(chat_template: str | None) -> ToolFormat | None:
    """What the template writes for calls when it is given tools; None where it takes none, or in a way not known."""
    source = chat_template or ""
    if not re.search(r"\btools\b", source):
        return None
    if "[TOOL_CALLS]" in source:
        if "[ARGS]" in source:  # names and arguments without a list around them
            return None
        return SPACED_MISTRAL if "[TOOL_CALLS] [" in source else MISTRAL
    if "<tool_call>" in source:
        return None if "<function=" in source else HERMES
    return LLAMA if '"parameters": ' in source and "ipython" in source else None
