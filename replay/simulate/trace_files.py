"""A trace's file → its arrivals, whatever the format: the first line tells which it is. Gzip is unpacked."""

import gzip
from pathlib import Path

from replay.simulate import azure, servegen
from replay.simulate.arrivals import Arrival, UnusableTrace
from replay.simulate.azure import read_azure
from replay.simulate.mooncake import read_mooncake
from replay.simulate.servegen import read_servegen

MAX_TRACE_BYTES = 1 << 30  # unpacked; no trace that is worth simulating is longer


def read_trace(
    path: Path, lengths: Path | None = None, from_s: float = 0, to_s: float = float("inf"), divide_rate: float = 1
) -> list[Arrival]:
    """In order of time.

    lengths       ServeGen's second file; where none is given, NAME-lengths.json beside NAME.csv
    from_s, to_s  which part of the day ServeGen's are drawn for; the other formats give all
    divide_rate   ServeGen's rates become so much lower, their proportions stay
    Raises UnusableTrace.
    """
    lines = _text(path).splitlines()
    heading = lines[0].lstrip("\ufeff") if lines else ""
    try:
        if heading == azure.HEADING:
            return list(read_azure(lines))
        if heading == servegen.HEADING:
            return read_servegen(lines, _text(lengths or _beside(path)), from_s, to_s, divide_rate)
        if heading.startswith("{"):
            return list(read_mooncake(lines))
    except (ValueError, KeyError, TypeError) as error:
        raise UnusableTrace(f"{path}: a line cannot be read ({type(error).__name__}: {error})") from error
    raise UnusableTrace(
        f"{path} begins with {heading[:60]!r}: give an Azure trace ({azure.HEADING}), a Mooncake trace (JSON lines "
        f"with hash_ids) or ServeGen's clients ({servegen.HEADING})"
    )


def _text(path: Path) -> str:
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            data = file.read(MAX_TRACE_BYTES + 1)
    except (OSError, EOFError) as error:
        raise UnusableTrace(f"{path} cannot be read: {error}") from error
    if len(data) > MAX_TRACE_BYTES:
        raise UnusableTrace(f"{path} has more than {MAX_TRACE_BYTES} bytes: cut it")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UnusableTrace(f"{path} is no text: {error}") from error


def _beside(path: Path) -> Path:
    name = path.name.removesuffix(".gz").removesuffix(".csv")
    return path.with_name(f"{name}-lengths.json")
