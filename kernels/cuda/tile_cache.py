"""Choices of tiles kept on disk, so that a device is measured once.

One file per key. The key names all that a choice depends on: the device, triton, torch, and the sources of the matrix
product; another of these is another file. What is read is believed only as far as it names tiles that could be chosen
today. It must not know how a choice is made.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernels.cuda.autotune import Choice
from kernels.cuda.tiles import Order, Plan, Shape, Tile, candidates

_SOURCES = ("linear.py", "weight_tile.py", "planes.py", "weights.py", "tiles.py", "launch.py", "autotune.py")


class TileCache:
    """Choices by shape, of one key."""

    def __init__(self, folder: Path, key: Mapping[str, str]) -> None:
        """
        folder   made when the first choice is kept
        key      names → values; `sources_digest` belongs in it
        """
        digest = hashlib.sha256(json.dumps(dict(key), sort_keys=True).encode()).hexdigest()[:16]
        self.path = folder / f"tiles-{digest}.json"
        self._key = dict(key)
        self._choices = self._read()

    def get(self, shape: Shape) -> Choice | None:
        """The choice kept for `shape`, if it could still be made."""
        try:
            kept = self._choices[_name(shape)]
            tiles = tuple(_tile(entry) for entry in kept["tiles"])
            choice = Choice(Plan(tiles, tuple(int(limit) for limit in kept["limits"])), str(kept["bits"]))
        except (AssertionError, KeyError, TypeError, ValueError):
            return None
        return choice if set(tiles) <= set(candidates(shape)) else None

    def keep(self, choices: Mapping[Shape, Choice]) -> None:
        """Write these beside those already kept, whole or not at all. Raises OSError."""
        self._choices = {**self._read(), **{_name(shape): _entry(choice) for shape, choice in choices.items()}}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        beside = self.path.with_suffix(f".{os.getpid()}")
        beside.write_text(json.dumps({"key": self._key, "choices": self._choices}, indent=1))
        beside.replace(self.path)

    def _read(self) -> dict[str, Any]:
        """Nothing where there is no file, or one of another key or another form."""
        try:
            kept = json.loads(self.path.read_text())
            return dict(kept["choices"]) if kept["key"] == self._key else {}
        except (OSError, KeyError, TypeError, ValueError):
            return {}


def sources_digest() -> str:
    """Of the files that decide what a tile computes."""
    digest = hashlib.sha256()
    for name in _SOURCES:
        digest.update((Path(__file__).parent / name).read_bytes())
    return digest.hexdigest()[:16]


def _name(shape: Shape) -> str:
    layout = shape.layout
    parts = (layout.bits, layout.group, layout.super_group, layout.offset, int(layout.has_minimums))
    return f"{shape.num_outputs}x{shape.num_inputs} of " + "-".join(map(str, parts))


def _entry(choice: Choice) -> dict[str, Any]:
    tiles = [{**tile._asdict(), "order": list(tile.order)} for tile in choice.plan.tiles]
    return {"tiles": tiles, "limits": list(choice.plan.limits), "bits": choice.bits}


def _tile(entry: Any) -> Tile:
    return Tile(**{**entry, "order": Order(*entry["order"])})
