"""How a chat becomes its prompt: what the client tells the template beside messages and tools.

`chat_template_kwargs` reach the template as variables (`enable_thinking` of Qwen 3), as vLLM has it; `reasoning_effort`
is one, too. `continue_final_message` leaves the last message open: the answer is its rest. It must not know templates.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from daemon import fields
from daemon.chat_messages import Message
from daemon.errors import bad_request
from daemon.fields import Body, kind_of

MAX_VARIABLES, MAX_NAME_CHARS = 64, 64
_FIELDS_OF_THEIR_OWN = ("messages", "tools", "documents", "add_generation_prompt", "continue_final_message")
_NOT_TO_REPLACE = (*_FIELDS_OF_THEIR_OWN, "chat_template", "tokenize", "raise_exception", "strftime_now")


class Rendering(NamedTuple):
    """
    variables     of the template
    adds_prompt   the prompt ends where an answer begins
    goes_on       it ends within the last message instead
    adds_special  the tokens that the model wants around a text are put around the rendered one, too
    """

    variables: Mapping[str, Any] = {}
    adds_prompt: bool = True
    goes_on: bool = False
    adds_special: bool = False


PLAIN = Rendering()


def read_rendering(body: Body, messages: Sequence[Message]) -> Rendering:
    """Raises ApiError 400 that names the field."""
    goes_on = fields.boolean(body, "continue_final_message")
    if goes_on and body.get("add_generation_prompt") is True:
        message = "add_generation_prompt begins an answer, continue_final_message goes on with the last: give one"
        raise bad_request(message, "continue_final_message")
    last = messages[-1]
    if goes_on and (last["role"] != "assistant" or "tool_calls" in last):
        message = "continue_final_message needs a last message of the role assistant, with a content and no calls"
        raise bad_request(message, "continue_final_message")
    adds_prompt = fields.boolean(body, "add_generation_prompt", True) and not goes_on
    return Rendering(_variables(body), adds_prompt, goes_on, fields.boolean(body, "add_special_tokens"))


def _variables(body: Body) -> dict[str, Any]:
    name = "chat_template_kwargs"
    value = body.get(name)
    effort = fields.text(body, "reasoning_effort", "", MAX_NAME_CHARS)
    told = {"reasoning_effort": effort} if effort else {}
    if value is None:
        return told
    if type(value) is not dict or len(value) > MAX_VARIABLES:
        raise bad_request(f"{name} must be an object of at most {MAX_VARIABLES} variables, not {kind_of(value)}", name)
    for key in value:
        if not key.isidentifier() or len(key) > MAX_NAME_CHARS or key in _NOT_TO_REPLACE:
            remedy = "give it as a field of its own" if key in _FIELDS_OF_THEIR_OWN else "leave it out"
            raise bad_request(f"{name} holds {key[:MAX_NAME_CHARS]!r}, which is no template's variable: {remedy}", name)
    return {**told, **value}
