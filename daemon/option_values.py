"""Readers of one option's value, from text (flag, environment) or from a TOML value alike.

Each raises ValueError that says what is wanted; `config.py` adds the option's name and where the value stood. This
file must not know which options there are.
"""

import re
from collections.abc import Callable
from typing import Any

Reader = Callable[[Any], Any]

_BYTE_UNITS = {"": 1, "B": 1, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40, "KB": 10**3, "MB": 10**6}
_BYTE_UNITS |= {"GB": 10**9, "TB": 10**12, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off"})


def text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("give a text")
    return value


def one_of(*choices: str) -> Reader:
    def read(value: Any) -> str:
        if value not in choices:
            raise ValueError(f"choose one of {', '.join(choices)}")
        return str(value)

    return read


def policy(*known: str) -> Reader:
    """One of the known, or an operator's own as module:Class."""

    def read(value: Any) -> str:
        if value not in known and not re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", str(value)):
            raise ValueError(f"choose one of {', '.join(known)}, or name your own as module:Class")
        return str(value)

    return read


def weights(value: Any) -> tuple[tuple[str, int], ...]:
    """(name, weight ≥ 1) pairs, from a text such as "a=2,b=1", a table, or pairs."""
    pairs: list[tuple[str, Any]]
    if isinstance(value, str):
        named = [part.rpartition("=") for part in value.split(",") if part.strip()]
        pairs = [(name, weight) for name, _, weight in named]
    elif isinstance(value, dict):
        pairs = list(value.items())
    elif isinstance(value, tuple | list) and all(isinstance(pair, tuple | list) and len(pair) == 2 for pair in value):
        pairs = [(name, weight) for name, weight in value]
    else:
        raise ValueError("give names and weights such as a=2,b=1")
    read = tuple([(name.strip(), _integer_or_none(weight) or 0) for name, weight in pairs])
    if any(not name or weight < 1 for name, weight in read) or len(dict(read)) < len(read):
        raise ValueError("give each name once, with a whole weight of at least 1, such as a=2,b=1")
    return read


def integer(minimum: int, maximum: int) -> Reader:
    def read(value: Any) -> int:
        number = _integer_or_none(value)
        if number is None or not minimum <= number <= maximum:
            raise ValueError(f"give a whole number from {minimum} to {maximum}")
        return number

    return read


def optional_integer(minimum: int, maximum: int) -> Reader:
    """As `integer`; the empty text stands for none."""
    read_integer = integer(minimum, maximum)

    def read(value: Any) -> int | None:
        return None if value == "" else int(read_integer(value))

    return read


def seconds(minimum: float, maximum: float) -> Reader:
    def read(value: Any) -> float:
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = float("nan")
        if isinstance(value, bool) or not minimum <= number <= maximum:
            raise ValueError(f"give seconds from {minimum:g} to {maximum:g}")
        return number

    return read


def share(value: Any) -> float:
    """Of a whole: 0 to 1."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = float("nan")
    if isinstance(value, bool) or not 0 <= number <= 1:
        raise ValueError("give a share from 0 to 1")
    return number


def byte_size(value: Any) -> int:
    """Bytes, from a number or from a text such as 512MiB, 2GiB, 1.5G (powers of 1024) or 500MB (powers of 1000)."""
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-zA-Z]*)\s*", str(value))
    unit = _BYTE_UNITS.get(match[2].upper()) if match and not isinstance(value, bool) else None
    if match is None or unit is None:
        raise ValueError("give a size such as 536870912, 512MiB or 2GiB")
    size = int(float(match[1]) * unit)
    if not 0 < size < 2**50:
        raise ValueError("give a size above 0 and below 1024TiB")
    return size


def byte_size_or_zero(value: Any) -> int:
    """As `byte_size`; 0 for none at all."""
    return 0 if str(value).strip() == "0" else byte_size(value)


def optional_byte_size(value: Any) -> int | None:
    """As `byte_size`; the empty text stands for none."""
    return None if value == "" else byte_size(value)


def switch(value: Any) -> bool:
    word = str(value).lower()
    if word in _TRUE:
        return True
    if word in _FALSE:
        return False
    raise ValueError("give true or false")


def names(value: Any) -> tuple[str, ...]:
    """A list of names, or one text with names separated by commas."""
    given = value.split(",") if isinstance(value, str) else value
    if not isinstance(given, (list, tuple)) or not all(isinstance(name, str) for name in given):
        raise ValueError("give one name or several separated by commas")
    return tuple([name.strip() for name in given if name.strip()])


def origins(value: Any) -> tuple[str, ...]:
    """Of web pages, as browsers write them: a scheme and a host, in lower case and without a path; or *."""
    listed = names(value)
    if not all(origin == "*" or re.fullmatch(r"[a-z][a-z0-9+.-]*://[a-z0-9.\[\]:-]+", origin) for origin in listed):
        raise ValueError("give origins such as https://chat.example:8443, without a path, or *")
    return listed


def _integer_or_none(value: Any) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    return int(value) if isinstance(value, str) and re.fullmatch(r"[+-]?[0-9]{1,18}", value.strip()) else None
