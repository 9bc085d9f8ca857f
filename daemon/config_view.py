"""The configuration as it is shown: every option with its value and where that comes from, secrets masked.

`reprise config show` and `GET /config` are this one table. It must not know who asks.
"""

from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from daemon.config import DaemonConfig, flag_name
from daemon.config_sources import Configured

MASK = "(set, not shown)"


def config_table(configured: Configured, in_flight: Iterable[str] = ()) -> dict[str, dict[str, Any]]:
    """Option → {"value", "source", "in_flight"}: as JSON takes them, in the order of `reprise serve --help`.

    in_flight   names of the options that a reload changes while serving
    """
    changing = frozenset(in_flight)
    return {
        flag_name(option): {
            "value": MASK if option.metadata["is_secret"] and value else value,
            "source": configured.source(option.name),
            "in_flight": option.name in changing,
        }
        for option in fields(DaemonConfig)
        for value in [getattr(configured.config, option.name)]
    }


def as_text(table: dict[str, dict[str, Any]]) -> str:
    """A line each: name, value, source."""
    values = {name: _written(row["value"]) for name, row in table.items()}
    width, value_width = max(map(len, values)), min(40, max(map(len, values.values())))
    return "\n".join(f"{name:{width}}  {values[name]:{value_width}}  {row['source']}" for name, row in table.items())


def _written(value: Any) -> str:
    """As it would stand in the TOML file."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join("=".join(map(str, item)) if isinstance(item, tuple) else str(item) for item in value) or '""'
    return f'"{value or ""}"' if isinstance(value, str) or value is None else str(value)
