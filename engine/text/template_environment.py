"""The sandbox that a model's chat template runs in.

A template is a program that came with the model: it can neither reach Python's internals nor change what it is given,
and `range` is bounded, but its running time is the operator's trust in the model.
"""

import json
from typing import Any, NoReturn

import jinja2.ext
from jinja2 import TemplateError, nodes
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

__all__ = ["TemplateError", "template_environment"]


def template_environment() -> ImmutableSandboxedEnvironment:
    """What templates on the model hubs are written for: the settings of Hugging Face's apply_chat_template."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationBlocks, jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    return environment


class _GenerationBlocks(jinja2.ext.Extension):
    """{% generation %} … {% endgeneration %} marks the model's own turns for training; here only the content counts."""

    tags = {"generation"}  # noqa: RUF012  # the base class declares it so

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON without the HTML escapes of Jinja's own filter."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)
