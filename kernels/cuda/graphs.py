"""A step's launches remembered: captured once in a CUDA graph, then started as one.

Hundreds of small kernels started one by one from Python take longer than they run. A graph fixes addresses and sizes;
so it belongs to one prepared step (`prepared.py`) and to one KV memory, and goes when that memory does. The first step
of its kind runs launch by launch, for what is compiled or loaded then cannot be captured. The interpreter has no
graphs: there each step runs launch by launch.

It must not know what is launched.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch.utils.weak import WeakIdKeyDictionary

from kernels.cuda.launch import INTERPRETED


class Graphs:
    """Of one step over any KV memory. pool: device memory that the graphs of a backend share, for they run in turn."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool
        self._of_memory = WeakIdKeyDictionary()  # tensor → its graph, or None before there is one

    def run(self, memory: torch.Tensor, launches: Callable[[], None]) -> None:
        """Start `launches`, which must do the same each time, over `memory`."""
        if INTERPRETED:
            launches()
        elif memory not in self._of_memory:
            launches()
            self._of_memory[memory] = None
        else:
            graph: torch.cuda.CUDAGraph | None = self._of_memory[memory]
            if graph is None:
                self._of_memory[memory] = graph = self._captured(launches)
            graph.replay()

    def _captured(self, launches: Callable[[], None]) -> torch.cuda.CUDAGraph:
        """Nothing of it has run yet."""
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            launches()
        return graph


def new_graph_pool() -> Any:
    """A handle of torch's."""
    return None if INTERPRETED else torch.cuda.graph_pool_handle()
