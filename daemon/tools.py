"""The functions that an answer may call: `tools`, `tool_choice` and `parallel_tool_calls` of a chat.

The prompt tells the model of them, the answer's grammar holds it to a text or calls of these functions with arguments
by their schemas; so a call can be forced of any model, and none writes one that cannot be read. It must not know how a
model writes calls.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from daemon import fields
from daemon.errors import bad_request
from daemon.fields import Body, kind_of
from daemon.structure import Structure
from engine.text.grammar_order import GrammarOrder
from engine.text.text_model import TextModel
from engine.text.tool_grammar import control_ids

MAX_TOOLS, MAX_NAME_CHARS = 128, 64
_NO_PARAMETERS: dict[str, Any] = {"type": "object", "properties": {}}


@dataclass(frozen=True, slots=True)
class ToolUse:
    """
    told          all tools, as the chat template is told of them
    callable      (name, schema of its arguments) of those that may be called
    is_required   the answer is a call
    is_parallel   it may be several
    """

    told: tuple[Mapping[str, Any], ...]
    callable: tuple[tuple[str, Any], ...]
    is_required: bool
    is_parallel: bool

    def structure(self, text_model: TextModel) -> Structure:
        """What the answer of this model must read."""
        form = text_model.tool_format
        marks = control_ids(form, text_model.vocabulary)
        order = GrammarOrder("calls", (form.name, self.callable, marks, self.is_required, self.is_parallel))
        return Structure("tools", "tools", order)


def read_tools(body: Body) -> ToolUse | None:
    """None where no function can be called. Raises ApiError 400."""
    told = _tools(body.get("tools"))
    choice = body.get("tool_choice")
    is_parallel = fields.boolean(body, "parallel_tool_calls", True)
    if not told and choice in (None, "none", "auto"):
        return None
    if not told:
        raise bad_request(
            "tool_choice asks for a call, and no tools are given: give tools, or leave it out", "tool_choice"
        )
    schemas = {tool["function"]["name"]: tool["function"]["parameters"] for tool in told}
    match choice:
        case "none":
            return None
        case None | "auto" | "required":
            return ToolUse(told, tuple(schemas.items()), choice == "required", is_parallel)
    name = _named(choice)
    if name not in schemas:
        raise bad_request(f"tool_choice names the function {name[:MAX_NAME_CHARS]!r}, which tools lacks", "tool_choice")
    return ToolUse(told, ((name, schemas[name]),), is_required=True, is_parallel=False)


def _named(choice: Any) -> str:
    function = choice.get("function") if type(choice) is dict else None
    if type(function) is not dict or choice.get("type") != "function" or type(function.get("name")) is not str:
        raise bad_request(
            'tool_choice must be none, auto, required or {"type": "function", "function": {"name": …}}', "tool_choice"
        )
    return str(function["name"])


def _tools(value: Any) -> tuple[dict[str, Any], ...]:
    if value is None:
        return ()
    if type(value) is not list or len(value) > MAX_TOOLS:
        raise bad_request(f"tools must be a list of at most {MAX_TOOLS} tools", "tools")
    names: set[str] = set()
    tools = []
    for index, tool in enumerate(value):
        place = f"tools[{index}]"
        if type(tool) is not dict or tool.get("type") != "function" or type(tool.get("function")) is not dict:
            raise bad_request(f'{place} must be {{"type": "function", "function": {{…}}}}', "tools")
        tools.append({"type": "function", "function": _function(tool["function"], f"{place}.function", names)})
    return tuple(tools)


def _function(function: Body, place: str, names: set[str]) -> dict[str, Any]:
    """Whole: with a description and parameters, which templates look for."""
    name, parameters, description = (function.get(key) for key in ("name", "parameters", "description"))
    if type(name) is not str or not 0 < len(name) <= MAX_NAME_CHARS or name in names:
        raise bad_request(f"{place}.name must be unique, 1 to {MAX_NAME_CHARS} characters", "tools")
    if parameters is not None and type(parameters) is not dict:
        raise bad_request(f"{place}.parameters must be a schema, not {kind_of(parameters)}", "tools")
    if description is not None and type(description) is not str:
        raise bad_request(f"{place}.description must be a text, not {kind_of(description)}", "tools")
    names.add(name)
    schema = {**_NO_PARAMETERS, **parameters} if parameters else {**_NO_PARAMETERS, "additionalProperties": False}
    return {"name": name, "description": description or "", "parameters": schema}
