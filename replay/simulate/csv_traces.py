"""Traces as CSV, their columns found by name in any order: Azure's, BurstGPT's and vidur's.

Azure     TIMESTAMP (wall clock, up to nine decimals), ContextTokens, GeneratedTokens: 2023 and 2024
BurstGPT  Timestamp (seconds), Request tokens, Response tokens; failures have a response of 0 tokens and count as of 1
vidur     num_prefill_tokens, num_decode_tokens, and where it has times, arrived_at (seconds)

Sources: github.com/Azure/AzurePublicDataset; Wang et al., BurstGPT, KDD 2025; github.com/microsoft/vidur.
"""

import csv
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import NamedTuple

from replay.simulate.arrivals import NS_PER_S, Arrival
from replay.simulate.trace_lines import TraceText
from replay.simulate.trace_rows import Row


class CsvFormat(NamedTuple):
    """
    at      column of the arrival; "" where there is none
    at_ns   reads it
    """

    name: str
    at: str
    prompt: str
    output: str
    at_ns: Callable[[Row, str], int]

    @property
    def columns(self) -> frozenset[str]:
        return frozenset((self.at, self.prompt, self.output)) - {""}


def _seconds(row: Row, column: str) -> int:
    return row.at_ns(column, NS_PER_S)


def _wall_clock(row: Row, column: str) -> int:
    """`2023-11-16 18:17:03.9799600`, one decimal more than `fromisoformat` takes; a zone may follow."""
    stamp = row.text(column).removesuffix("+00:00").removesuffix("Z")
    seconds, _, fraction = stamp.partition(".")
    try:
        since = datetime.fromisoformat(seconds) - datetime(1970, 1, 1)
        decimals = (
            int(fraction[:9].ljust(9, "0")) if fraction.isascii() and (not fraction or fraction.isdigit()) else -1
        )
    except (ValueError, TypeError):
        decimals = -1
    if decimals < 0:
        row.fail(column, "must be a time as 2023-11-16 18:17:03.9799600")
    return (since.days * 86_400 + since.seconds) * NS_PER_S + decimals


AZURE = CsvFormat("Azure", "timestamp", "contexttokens", "generatedtokens", _wall_clock)
BURST_GPT = CsvFormat("BurstGPT", "timestamp", "requesttokens", "responsetokens", _seconds)
VIDUR = CsvFormat("vidur", "arrivedat", "numprefilltokens", "numdecodetokens", _seconds)
VIDUR_LENGTHS = VIDUR._replace(at="")
CSV_FORMATS = (AZURE, BURST_GPT, VIDUR, VIDUR_LENGTHS)


def column_names(heading: str) -> list[str]:
    """Of a header line, in small letters and digits only; none where it is no CSV."""
    try:
        names = next(csv.reader([heading]), [])
    except csv.Error:
        return []
    return ["".join(filter(str.isalnum, name)).lower() for name in names]


def csv_rows(text: TraceText) -> Iterator[Row]:
    """Each line below the header, by column. Raises UnusableTrace at one of another length."""
    columns: list[str] = []
    for number, line in text.lines():
        place = f"line {number}"
        try:
            cells = next(csv.reader([line], strict=True), [])
        except csv.Error as error:
            text.fail(place, f"is no CSV: {error}")
        if not columns:
            columns = column_names(line)
        elif len(cells) != len(columns):
            text.fail(place, f"has {len(cells)} fields, the header has {len(columns)}")
        else:
            yield Row(text.path, place, dict(zip(columns, cells, strict=True)))


def read_csv(text: TraceText, form: CsvFormat) -> Iterator[Arrival]:
    """In the file's order; times are 0 where the format has none."""
    for row in csv_rows(text):
        at_ns = form.at_ns(row, form.at) if form.at else -1
        yield Arrival(at_ns, row.tokens(form.prompt), row.tokens(form.output))
