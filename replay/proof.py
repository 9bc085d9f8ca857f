"""What `isolate --prove` and `bisect` find beneath a difference: the first row, layer and operation, and whose data.

Plain data, and the words for it; `model_runs/prove.py` finds it. It must not know runners or recordings.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple


class OperationPlace(NamedTuple):
    """One operation on one row: a request's token at `position`, computed in `step`; layer -1 is outside the layers."""

    step: int
    request: int
    position: int
    layer: int
    operation: str

    def __str__(self) -> str:
        where = self.operation if self.layer < 0 else f"layer {self.layer}, {self.operation}"
        return f"step {self.step}, request {self.request}, token position {self.position}, {where}"


class Writer(NamedTuple):
    """Who wrote a row of keys and values: a request's token at `position`, in `step`."""

    request: int
    request_id: str
    position: int
    step: int

    def __str__(self) -> str:
        return f"request {self.request} ({self.request_id}), its position {self.position}, written in step {self.step}"


@dataclass(frozen=True, slots=True)
class ForeignRow:
    """A row of the request's KV cache that does not hold what the request computes alone.

    block, offset   where it lies, as the step's block table says
    layer           the first one that differs
    num_layers, num_positions   layers that differ in this row; positions that differ in any
    owner           who computed exactly these bytes for itself; None: nobody
    num_owners      rows of other requests with the same bytes (a shared prefix), the owner's among them
    last_writer     who wrote to the slot last; None: nobody has
    """

    position: int
    block: int
    offset: int
    layer: int
    num_layers: int
    num_positions: int
    owner: Writer | None
    num_owners: int
    last_writer: Writer | None


@dataclass(frozen=True, slots=True)
class Proof:
    """Where two executions of the same rows part: in company and alone, or on two builds.

    first     None where no operation differed
    foreign   the first differing row of its KV cache at that step, where one differs
    remark    what follows from it
    """

    first: OperationPlace | None
    foreign: ForeignRow | None
    remark: str

    def lines(self) -> Iterator[str]:
        """For people."""
        if self.first is not None:
            yield f"bits first differ at {self.first}"
        if self.foreign is not None:
            yield from _foreign_lines(self.foreign)
        yield self.remark

    def values(self) -> dict[str, Any]:
        """For JSON."""
        foreign = None if self.foreign is None else asdict(self.foreign)
        for name in ("owner", "last_writer"):
            writer = None if self.foreign is None else getattr(self.foreign, name)
            if foreign is not None:
                foreign[name] = None if writer is None else writer._asdict()
        return {
            "first": None if self.first is None else self.first._asdict(),
            "foreign": foreign,
            "remark": self.remark,
        }


def _foreign_lines(row: ForeignRow) -> Iterator[str]:
    yield (
        f"block {row.block}, slot {row.offset}, read as its position {row.position}, holds another key or value than "
        f"it computes alone, from layer {row.layer} on ({row.num_layers} layers; {row.num_positions} positions in all)"
    )
    if row.owner is not None:
        more = f" (so did {row.num_owners - 1} more rows, of a shared prefix)" if row.num_owners > 1 else ""
        yield f"guilty: these bytes are {row.owner}{more}"
    elif row.last_writer is not None:
        yield f"nobody computed these bytes for itself; the slot was last written by {row.last_writer}"
    else:
        yield "nobody computed these bytes for itself, and nobody has written to the slot"
