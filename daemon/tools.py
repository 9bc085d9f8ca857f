"""A function that the answer must call: `tools` with a `tool_choice` that names one; its schema is the grammar.

It works with any model; the chat template is not told of the tools, so the messages must
say what the function is for. Whether to call one is left to no model here: that needs templates and answers written
for it, and is refused. It must not know how an answer is told.
"""

from dataclasses import dataclass
from typing import Any

from daemon.errors import ApiError, bad_request
from daemon.fields import Body, kind_of
from daemon.structure import Structure, of_schema

MAX_TOOLS, MAX_NAME_CHARS = 128, 64


@dataclass(frozen=True, slots=True)
class ForcedCall:
    """
    name        of the function
    arguments   what they must read
    """

    name: str
    arguments: Structure


def read_forced_call(body: Body) -> ForcedCall | None:
    """The call that a chat's answer must be; None where it is to be a text. Raises ApiError 400."""
    functions = _functions(body.get("tools"))
    choice = body.get("tool_choice")
    if choice == "none" or (not functions and choice in (None, "auto")):
        return None
    name = _chosen(choice, list(functions))
    if name not in functions:
        raise bad_request(f"tool_choice names the function {name[:MAX_NAME_CHARS]!r}, which tools lacks", "tool_choice")
    place, parameters = functions[name]
    return ForcedCall(name, of_schema(parameters, f"{place}.function.parameters", "tools"))


def _chosen(choice: Any, names: list[str]) -> str:
    if type(choice) is dict:
        function = choice.get("function")
        if choice.get("type") != "function" or type(function) is not dict or type(function.get("name")) is not str:
            raise bad_request('tool_choice must be {"type": "function", "function": {"name": …}}', "tool_choice")
        return str(function["name"])
    if choice == "required" and len(names) == 1:
        return names[0]
    if choice in (None, "auto", "required"):
        raise _left_to_the_model()
    raise bad_request("tool_choice must be none, or name a function", "tool_choice")


def _left_to_the_model() -> ApiError:
    return bad_request(
        "tools among which the model may choose are not supported: tool_choice must be none, required with a single "
        'tool, or {"type": "function", "function": {"name": …}}',
        "tool_choice",
    )


def _functions(tools: Any) -> dict[str, tuple[str, Any]]:
    """name → (place, schema of the parameters)"""
    if tools is None:
        return {}
    if type(tools) is not list or len(tools) > MAX_TOOLS:
        raise bad_request(f"tools must be a list of at most {MAX_TOOLS} tools", "tools")
    functions: dict[str, tuple[str, Any]] = {}
    for index, tool in enumerate(tools):
        place = f"tools[{index}]"
        if type(tool) is not dict or tool.get("type") != "function" or type(tool.get("function")) is not dict:
            raise bad_request(f'{place} must be {{"type": "function", "function": {{…}}}}', "tools")
        name, parameters = tool["function"].get("name"), tool["function"].get("parameters")
        if type(name) is not str or not 0 < len(name) <= MAX_NAME_CHARS or name in functions:
            raise bad_request(f"{place}.function.name must be unique, 1 to {MAX_NAME_CHARS} characters", "tools")
        if parameters is not None and type(parameters) is not dict:
            raise bad_request(f"{place}.function.parameters must be a schema, not {kind_of(parameters)}", "tools")
        functions[name] = (place, {"type": "object", **(parameters or {})})
    return functions
