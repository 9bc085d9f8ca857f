"""A step's launches remembered: captured once in CUDA graphs, then started as one, or as one for each piece.

Hundreds of small kernels started one by one from Python take longer than they run. A graph fixes addresses and sizes,
so it belongs to one KV memory and goes when that memory does. The first step of its kind runs launch by launch, for
what is compiled or loaded then cannot be captured. The interpreter has no graphs: there every step runs so.

A step of decodes is one graph. A step with prefill comes in more shapes than graphs can be kept of, so there only the
pieces between two layers' attention are captured, which follow from the padded number of rows alone.
"""

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils.weak import WeakIdKeyDictionary

from kernels.cuda.launch import INTERPRETED
from kernels.cuda.step import Piece

Launches = Callable[[], None]
Capture = Callable[[Launches], Launches]  # launches, none of which runs, → what starts them, any number of times


class Graphs:
    """Of the same pieces over any KV memory.

    capture    None: each step runs launch by launch
    captured   what pieces that are captured follow from
    """

    def __init__(self, capture: Capture | None, captured: str) -> None:
        self._capture = capture
        self._captured = captured
        self._of_memory = WeakIdKeyDictionary()  # tensor → place of a piece → its graph; None before there is one

    def run(self, memory: torch.Tensor, pieces: Sequence[Piece]) -> None:
        """Run `pieces` over `memory`. Those that are captured must do the same each time."""
        is_known = memory in self._of_memory
        graphs: dict[int, Launches] | None = self._of_memory[memory] if is_known else None
        if self._capture is not None and is_known and graphs is None:
            graphs = self._of_memory[memory] = {}
        elif not is_known:
            self._of_memory[memory] = None
        for place, piece in enumerate(pieces):
            if self._capture is None or graphs is None or piece.follows != self._captured:
                piece.run()
                continue
            if place not in graphs:
                graphs[place] = self._capture(piece.run)
            graphs[place]()


def device_capture() -> Capture | None:
    """Captures share one pool of device memory, for they run in turn. None in the interpreter."""
    if INTERPRETED:
        return None
    pool: Any = torch.cuda.graph_pool_handle()
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]  # torch has no types here

    def capture(launches: Launches) -> Launches:
        graph = torch.cuda.CUDAGraph()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side), _nothing_collected():
            graph.capture_begin(pool=pool, capture_error_mode="thread_local")
            try:
                launches()
            finally:
                graph.capture_end()
        torch.cuda.current_stream().wait_stream(side)
        return graph.replay

    return capture


@contextmanager
def _nothing_collected() -> Iterator[None]:
    """A tensor that goes while a graph is captured could free device memory, which a capture does not bear.

    `torch.cuda.graph` collects and empties its cache before each capture instead: tens of milliseconds for each piece.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
