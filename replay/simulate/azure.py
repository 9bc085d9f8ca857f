"""The Azure LLM inference traces of 2023: CSV of wall-clock times (seven decimals) and token counts.

Source: github.com/Azure/AzurePublicDataset, AzureLLMInferenceDataset2023.md.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime

from replay.simulate.arrivals import NS_PER_S, Arrival

HEADING = "TIMESTAMP,ContextTokens,GeneratedTokens"


def read_azure(lines: Sequence[str]) -> Iterator[Arrival]:
    """Arrivals from the trace's first one on. Raises ValueError at a line that is none."""
    first_ns: int | None = None
    for line in lines[1:]:
        stamp, prompt, output = line.split(",")
        at_ns = _nanoseconds(stamp)
        first_ns = at_ns if first_ns is None else first_ns
        yield Arrival(at_ns - first_ns, int(prompt), int(output))


def _nanoseconds(stamp: str) -> int:
    seconds, _, fraction = stamp.partition(".")
    since = datetime.fromisoformat(seconds) - datetime(2000, 1, 1)
    return (since.days * 86_400 + since.seconds) * NS_PER_S + int(fraction[:9].ljust(9, "0"))
