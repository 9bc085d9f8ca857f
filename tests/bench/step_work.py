"""What one step asks of a GPU, launch by launch, taken from the code that would run it.

The step runs on torch's "meta" device, where tensors have shapes and no memory, with the one function through which
every kernel is started replaced by one that writes down what it is given. So a model of 70 billion weights is looked at
in a second, and a launch more or less in the code is one more or less here. It must not know a device.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from kernels.cuda import attention_plan
from kernels.cuda.attention_plan import SPLIT_KEYS, TILE_ROWS, WIDE_ROWS, AttentionShape
from kernels.cuda.decoder_weights import DecoderWeights, Tables
from kernels.cuda.device_bench import fixed_planes
from kernels.cuda.planes import LAYOUTS
from kernels.cuda.step import Step, StepInputs, StepResult
from kernels.cuda.tiles import Plan, Shape, Tile, candidates
from kernels.cuda.weights import Part, Weight
from kernels.cuda.workspace import Workspace
from kernels.decoder import DecoderShape
from tests.kernels.cuda.shaped_layers import shaped_layer

_META = torch.device("meta")
_BLOCK_SIZE = 16
_POSITIONS = 8192
_MULTIPROCESSORS = 132  # of an H100 or H200
_MULTIPLIED_A_CYCLE = 1024  # of a multiprocessor, at half of its tensor cores' rate
_CONVERTED_A_CYCLE = 128 / 6  # six instructions each
_SPREAD_ROWS = 64  # beyond, totals of splits are more to write than the weight is to read


class Load(NamedTuple):
    """A step's rows: so many sequences, each with so many new rows and a context that includes them."""

    num_sequences: int
    rows_each: int
    context: int

    @property
    def num_rows(self) -> int:
        return self.num_sequences * self.rows_each


class Launch(NamedTuple):
    """
    programs       of the grid
    bytes_moved    to and from memory, each once
    flops          of the tensor cores, padding included
    dequantised    weights taken from 8 or 4 bits to bfloat16, once for each tile of rows
    """

    kernel: str
    programs: int
    bytes_moved: int
    flops: int = 0
    dequantised: int = 0


class StepWork(NamedTuple):
    """weight_bytes and kv_bytes_a_token are device memory."""

    launches: list[Launch]
    weight_bytes: int
    kv_bytes_a_token: int


def step_work(shape: DecoderShape, format: str, head_format: str, load: Load) -> StepWork:
    """Of a step in which every sequence's last row is drawn from; the head is the embedding."""
    weights = _weights(shape, format, head_format, load)
    launches: list[Launch] = []
    step = _step(shape, weights, load)
    with _written_down([], load):
        step()  # makes what is made once
    with _written_down(launches, load), _TorchKernels(launches):
        step()
    matrices = [weights.head, *(m for layer in weights.layers for m in (layer.qkv, layer.o, layer.gate_up, layer.down))]
    kv_bytes_a_token = shape.num_layers * 2 * shape.num_kv_heads * shape.head_dim * 2
    return StepWork(launches, sum(matrix.num_bytes for matrix in matrices), kv_bytes_a_token)


def _weights(shape: DecoderShape, format: str, head_format: str, load: Load) -> DecoderWeights:
    def matrix(num_outputs: int, num_inputs: int, format: str = format, num_rows: int = load.num_rows) -> Weight:
        of = Shape(LAYOUTS[format], num_outputs, num_inputs)
        part = Part(0, of, fixed_planes(of, _META), Plan((likely_tile(of, num_rows),)))
        return Weight(num_outputs, num_inputs, (part,))

    norm = torch.empty(shape.hidden_size, device=_META)
    layer = shaped_layer(shape, norm, matrix)
    head = matrix(shape.vocab_size, shape.hidden_size, head_format, load.num_sequences)
    table = torch.empty(_POSITIONS, shape.head_dim // 2, device=_META)
    tables = Tables(table, table)
    return DecoderWeights(head, (layer,) * shape.num_layers, norm, head, tables, tables)


def likely_tile(shape: Shape, num_rows: int) -> Tile:
    """What `autotune.py` might take if all candidates had equal bits: the one whose busiest multiprocessor has the
    least to multiply or to convert."""

    def cycles(tile: Tile) -> float:
        """Of the busiest multiprocessor, for one input."""
        splits = tile.order.splits if tile.spread else 1
        programs = -(-num_rows // tile.rows) * -(-shape.num_outputs // tile.outputs) * splits
        multiplied = tile.outputs * tile.rows / _MULTIPLIED_A_CYCLE
        converted = tile.outputs / _CONVERTED_A_CYCLE if shape.layout.bits < 16 else 0.0
        return -(-programs // _MULTIPROCESSORS) * max(multiplied, converted) / splits

    return min((tile for tile in candidates(shape) if num_rows <= _SPREAD_ROWS or not tile.spread), key=cycles)


def _step(shape: DecoderShape, weights: DecoderWeights, load: Load) -> Callable[[], None]:
    """The step, ready to be run in memory that there is not."""

    def integers(*sizes: int) -> torch.Tensor:
        return torch.empty(sizes, dtype=torch.int32, device=_META)

    def floats(*sizes: int) -> torch.Tensor:
        return torch.empty(sizes, device=_META)

    logits = load.num_sequences
    blocks = -(-load.context // _BLOCK_SIZE)
    partials = floats(1, shape.num_heads)
    mixed = floats(1, shape.num_heads, shape.head_dim)
    tables = integers(load.num_sequences, blocks)
    plan = attention_plan.Plan(
        _programs(shape, load),
        *(integers(3), integers(1, 8), integers(1, 4), tables, mixed, partials, partials),
        has_wide=load.rows_each > 1,
    )
    rows, places = integers(load.num_rows), torch.empty(load.num_rows, dtype=torch.int64, device=_META)
    inputs = StepInputs(rows, rows, places, places[:logits], plan)
    size = (shape.num_layers, load.num_sequences * blocks + 1, shape.num_kv_heads, _BLOCK_SIZE, shape.head_dim)
    memory = torch.empty(size, dtype=torch.bfloat16, device=_META)
    residual = floats(logits, shape.hidden_size)
    result = StepResult(
        residual=residual,
        delta=residual,
        normed=residual.bfloat16(),
        logits=floats(logits, shape.vocab_size),
        best=integers(logits),
        highest=floats(logits),
        log_sum=floats(logits),
    )
    work = Workspace.of(shape, load.num_rows, _META)
    return Step(weights, shape, inputs, (memory, memory), work, result).run


def _programs(shape: DecoderShape, load: Load) -> int:
    """Pieces of attention's work: each group of queries, kv head and split of keys."""
    rows = WIDE_ROWS if load.rows_each > 1 else TILE_ROWS
    group = AttentionShape(shape.num_heads, shape.num_kv_heads, shape.head_dim, _BLOCK_SIZE).group(rows)
    groups = load.num_sequences * -(-load.rows_each // group)
    return groups * shape.num_kv_heads * -(-load.context // SPLIT_KEYS)


@contextmanager
def _written_down(launches: list[Launch], load: Load) -> Iterator[None]:
    """Kernels are written down instead of started."""

    def write_down(kernel: Any, grid: tuple[int, ...], *arguments: Any, **constants: Any) -> None:
        named = dict(zip(kernel.arg_names, arguments, strict=False))
        programs = 1
        for size in grid:
            programs *= size
        launches.append(_launch(kernel, programs, named, constants, load))

    modules = [module for name, module in sys.modules.items() if name.startswith("kernels.cuda.")]
    patches = [
        patch.object(module, "launch", write_down) for module in modules if callable(getattr(module, "launch", 0))
    ]
    for each in patches:
        each.start()
    try:
        yield
    finally:
        for each in patches:
            each.stop()


def _launch(kernel: Any, programs: int, named: dict[str, Any], constants: dict[str, Any], load: Load) -> Launch:
    name = f"{kernel.fn.__module__.rpartition('.')[2]}.{kernel.fn.__name__}"
    tensors = {argument: value for argument, value in named.items() if isinstance(value, torch.Tensor)}
    if name == "linear._linear":
        tiles = -(-named["num_rows"] // constants["ROWS"])
        weights = constants["NUM_OUTPUTS"] * constants["NUM_INPUTS"]
        flops = 2 * weights * tiles * constants["ROWS"]
        dequantised = weights * tiles if constants["BITS"] < 16 else 0
        return Launch(name, programs, _bytes(tensors), flops, dequantised)
    if name == "attention._attend" and load.rows_each > 1 and not constants["IS_WIDE"]:
        return Launch(name, 1, 0)  # a prefill is in wide tiles; there is nothing for this launch
    if name == "attention._attend":
        keys = load.num_sequences * load.context * constants["NUM_KV_HEADS"] * constants["HEAD_DIM"]
        read = keys * 2 * tensors["keys"].element_size()
        rows = -(-load.rows_each * constants["HEADS_TILE"] // constants["ROWS"]) * constants["ROWS"]
        seen = 1 if load.rows_each == 1 else 2  # a prefill's queries see half of the keys in the mean
        flops = 4 * keys * rows // seen
        return Launch(name, programs, read + _bytes(tensors, "queries", "out"), flops)
    if name == "embedding._gather":
        return Launch(name, programs, 2 * _bytes(tensors, "out"))
    if name == "attention._merge":
        return Launch(name, programs, _bytes(tensors, "out"))
    tables = {"keys", "values", "cos", "sin"}
    return Launch(name, programs, _bytes({k: v for k, v in tensors.items() if k not in tables}))


def _bytes(tensors: dict[str, torch.Tensor], *names: str) -> int:
    return sum(tensor.nbytes for name, tensor in tensors.items() if not names or name in names)


class _TorchKernels(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch has no types here
    """Kernels of torch's own between ours: whatever makes or changes numbers, and is no view."""

    _NONE = ("empty", "view", "slice", "select.int", "split", "as_strided", "alias", "detach", "chunk", "unsqueeze")

    def __init__(self, launches: list[Launch]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._launches = launches

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = str(func).removeprefix("aten.")
        if not name.startswith(self._NONE) and not name.startswith("_to_copy"):
            tensors = result if isinstance(result, list | tuple) else [result]
            moved = sum(2 * tensor.nbytes for tensor in tensors if isinstance(tensor, torch.Tensor))
            self._launches.append(Launch(f"torch {name}", 1, moved))
        return result
