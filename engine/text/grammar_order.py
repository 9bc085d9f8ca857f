"""What is to become a grammar, as plain values: whoever makes it may be another process. It must not know requests."""

from collections.abc import Callable
from typing import Any, NamedTuple

from engine.text import grammar
from engine.text.tool_format import FORMATS
from engine.text.tool_grammar import of_calls


class GrammarOrder(NamedTuple):
    """
    maker       a key of MAKERS
    arguments   its own, as msgpack can hold them
    """

    maker: str
    arguments: tuple[Any, ...] = ()


def make_grammar(order: GrammarOrder) -> str:
    """Raises InvalidGrammar."""
    return MAKERS[order.maker](*order.arguments)


def _of_calls(
    form: str, functions: list[tuple[str, Any]], control_ids: dict[str, int], is_required: bool, is_parallel: bool
) -> str:
    return of_calls(FORMATS[form], functions, control_ids, is_required=is_required, is_parallel=is_parallel)


MAKERS: dict[str, Callable[..., str]] = {
    "json": grammar.of_json_schema,
    "object": grammar.of_any_object,
    "regex": grammar.of_pattern,
    "choice": grammar.of_choices,
    "grammar": grammar.of_grammar,
    "calls": _of_calls,
}
