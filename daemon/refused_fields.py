"""Fields of other servers that would change the answer and are not supported here: refused, never silently dropped.

Each is accepted where its value leaves the answer as it is, for many clients send the defaults along.
"""

from typing import Any

from daemon.errors import bad_request
from daemon.fields import Body

# field → values that change nothing (null never does)
_HARMLESS: dict[str, tuple[Any, ...]] = {
    "best_of": (1,),
    "suffix": ("",),
    "tools": ([],),
    "tool_choice": ("none",),
    "echo": (False,),
    "functions": ([],),
    "function_call": ("none",),
    "modalities": (["text"],),
    "spaces_between_special_tokens": (True,),
    "use_beam_search": (False,),
    "length_penalty": (1, 1.0),
    "allowed_token_ids": (),
    "bad_words": ([],),
    "continue_final_message": (False,),
    "add_generation_prompt": (True,),
    "chat_template": (),
    "chat_template_kwargs": ({},),
    "documents": ([],),
    "audio": (),
    "web_search_options": (),
    "prompt_embeds": (),
    "logits_processors": ([],),
    "vllm_xargs": ({},),
    "kv_transfer_params": ({},),
    "thinking_token_budget": (),
    "include_reasoning": (True,),
    "guided_whitespace_pattern": (),
    "return_tokens_as_token_ids": (False,),
    "detokenize": (True,),
}
REFUSABLE_FIELDS = frozenset(_HARMLESS)
_OF_COMPLETIONS = ("best_of", "echo", "suffix")  # read there
_OF_CHATS = ("tools", "tool_choice", "continue_final_message", "add_generation_prompt", "chat_template_kwargs")


def refuse_unsupported(body: Body, *, is_chat: bool) -> None:
    """Raises ApiError 400 for the first field that asks for what is not supported."""
    for name, harmless in _HARMLESS.items():
        value = body.get(name)
        if name in (_OF_CHATS if is_chat else _OF_COMPLETIONS):
            continue
        if value is None or any(type(value) is type(allowed) and value == allowed for allowed in harmless):
            continue
        allowed_text = " or ".join([_shown(allowed) for allowed in harmless]) or "null"
        raise bad_request(f"{name} is not supported: leave it out, or give {allowed_text}", name)
    misplaced = "prompt" if is_chat else "messages"
    if body.get(misplaced) is not None:
        endpoint = "/v1/completions" if is_chat else "/v1/chat/completions"
        raise bad_request(f"{misplaced} belongs to {endpoint}", misplaced)


def _shown(value: Any) -> str:
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else str(value).replace("'", '"')
