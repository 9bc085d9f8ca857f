"""The engine's limits as flags of the verbs that let a core decide under others than recorded."""

import argparse
from dataclasses import fields
from typing import Any

from engine.core.limits import Limits

_SHORT = {
    "scheduling_policy": ["--policy"],
    "scheduling_phases": ["--phases"],
    "num_kv_blocks": ["--kv-blocks"],
}


def add_limits(parser: argparse.ArgumentParser, *, as_recorded: bool = False) -> None:
    """One flag per field of `Limits`; the default is that of the field, or None with `as_recorded`."""
    group = parser.add_argument_group("the engine's limits, as for serve")
    for field in fields(Limits):
        names = [*_SHORT.get(field.name, []), f"--{field.name.replace('_', '-')}"]
        kind: dict[str, Any] = {"type": type(field.default), "metavar": type(field.default).__name__.upper()}
        if isinstance(field.default, bool):
            kind = {"action": argparse.BooleanOptionalAction}
        elif isinstance(field.default, tuple):
            kind = {"nargs": "+", "type": _pair, "metavar": "NAME=N"}
        default = None if as_recorded else field.default
        text = "default: as recorded" if as_recorded else "default: %(default)s"
        group.add_argument(*names, dest=field.name, default=default, help=text, **kind)


def given_limits(args: argparse.Namespace) -> dict[str, Any]:
    """The fields that were given, where None stands for those that were not."""
    given = {field.name: getattr(args, field.name) for field in fields(Limits)}
    return {
        name: tuple(value) if isinstance(value, list) else value for name, value in given.items() if value is not None
    }


def _pair(text: str) -> tuple[str, int]:
    name, _, value = text.rpartition("=")
    return name, int(value)
