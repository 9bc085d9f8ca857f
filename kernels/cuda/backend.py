"""The backend for NVIDIA GPUs: Triton kernels, a step's launches in one CUDA graph, one copy each way per step.

Numerics: the residual stream is float32, what enters a matrix product bfloat16, sums float32; keys and values are
bfloat16, or e4m3 where asked for. Everything stays on the device but what a step brings and the few numbers that it
leaves: hidden rows, where the largest logit is, and the likeliest tokens of rows that are drawn from. All logits of a
row come to the host where its draw needs them: `draws.py` says when, and counts them.

With TRITON_INTERPRET=1 the same code runs on any machine, in numpy, a layer in tenths of a second: for tests. The bits
are then others, and so is the numerics class.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from kernels.backend import CannotLoad, KVMemory, KVPair, LinearProbe, StepBatch, StepOutput
from kernels.cuda.attention_tuning import WideTiles, wide_tiles
from kernels.cuda.autotune import NotInvariant
from kernels.cuda.decoder_weights import DecoderWeights, to_device
from kernels.cuda.device_memory import kv_budget
from kernels.cuda.graphs import Capture
from kernels.cuda.interpreter import correct_interpreter
from kernels.cuda.kv_memory import DeviceKV
from kernels.cuda.launch import INTERPRETED, device
from kernels.cuda.numerics import numerics
from kernels.cuda.prepared import Preparations
from kernels.cuda.probes import matrices_of, probes_of
from kernels.cuda.running import DeviceSteps
from kernels.cuda.tuning import tuned
from kernels.cuda.weights import Weight
from kernels.decoder import DecoderParameters, DecoderShape
from kernels.device_backend import KVBudget, LargestStep
from kernels.sampling import Draw, DrawRow
from kernels.scoring import Integers, RowScores
from kernels.trace import Tap, show_slots


class CudaBackend(DeviceKV):
    """See `Backend` and `DeviceBackend` for the interface. Its KV memory are tensors on the device.

    dtype   of keys and values: "auto" (bfloat16), "bfloat16" or "float8" (e4m3, scale 1)
    Raises CudaUnavailable.
    """

    name = "cuda"

    def __init__(self, dtype: str = "auto") -> None:
        super().__init__("bfloat16" if dtype == "auto" else dtype, device())
        self.read_back: Counter[str] = Counter()
        self.notices: list[str] = []
        self._folder: Path | None = None
        if INTERPRETED:
            correct_interpreter()

    def set_num_threads(self, num_threads: int) -> None:
        """The device's threads are not the process's."""

    def keep_choices_in(self, folder: Path) -> None:
        self._folder = folder

    def load(self, parameters: DecoderParameters, max_positions: int) -> None:
        """Raises MemoryError, CannotLoad. `unsupported_reason` must have said nothing."""
        self.load_made(parameters.shape, lambda: to_device(parameters, max_positions, self._device))

    def load_made(self, shape: DecoderShape, made: Callable[[], DecoderWeights]) -> None:
        """The same with weights that never lay in a file: `made` makes them on the device."""
        self.shape = shape
        self.vocab_size = shape.vocab_size
        try:
            weights = made()
            self._weights, self._bits, notice = tuned(weights, self._device, self._folder)
            self.notices += [notice] if notice else []
            self.wide_tiles = self._tuned_attention()
            self._preparations = Preparations(self.shape, self._device, has_wide_tiles=self.wide_tiles.are_used)
        except torch.OutOfMemoryError as error:
            raise MemoryError(f"the model does not fit the GPU's memory: {error}") from error
        except NotInvariant as error:
            raise CannotLoad(str(error)) from error
        self._steps = DeviceSteps(self._weights, self.shape, self._preparations, self._device)

    def _tuned_attention(self) -> WideTiles:
        """The interpreter has nothing to measure: there wide tiles are used."""
        if INTERPRETED:
            return WideTiles(are_used=True, are_equal=True, bits="interpreted")
        shape = self.shape
        windows = (0, shape.window) if shape.window else (0,)
        return wide_tiles(shape.num_heads, shape.num_kv_heads, shape.head_dim, self._kind, windows, self._device)

    def kv_budget(self, utilization: float, largest: LargestStep) -> KVBudget | None:
        try:
            self._steps.make_room(largest)
        except torch.OutOfMemoryError as error:
            raise MemoryError(f"a step of {largest.num_rows} rows does not fit the GPU's memory: {error}") from error
        return kv_budget(self.shape, self._preparations, utilization, largest, self._device)

    def choose_graphs(self, capture: Capture | None, *, in_pieces: bool) -> None:
        """Of steps to come, over what is chosen at load: to compare. It changes no bit."""
        self._preparations.choose_graphs(capture, in_pieces=in_pieces)

    # ── a step ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def expect_draws(self, rows: Sequence[DrawRow]) -> None:
        self._steps.expect_draws(rows)

    def forward(self, batch: StepBatch, keys: KVMemory, values: KVMemory) -> StepOutput:
        return self.launch(batch, keys, values)()

    def launch(self, batch: StepBatch, keys: KVMemory, values: KVMemory) -> Callable[[], StepOutput]:
        """Begin a step; the result waits for the device."""
        assert keys.dtype == values.dtype == self._kind, "the KV memory was made for another dtype"
        return self._steps.launch(batch, (keys, values))

    def forward_traced(self, batch: StepBatch, keys: KVMemory, values: KVMemory, tap: Tap) -> StepOutput:
        def show(layer: int, memory: KVPair) -> None:
            show_slots(self, tap, layer, memory, batch.slot_mapping)

        return self._steps.run_traced(batch, (keys, values), tap, show)

    def draw(self, rows: Sequence[DrawRow]) -> list[Draw]:
        """Rows that were not expected are asked about now, which takes another copy."""
        before = self.read_back.total()
        draws = self._steps.draw(rows, self.read_back)
        if self.read_back.total().bit_length() > before.bit_length():  # told at 1, 2, 4, 8 …
            self.notices.append(
                f"{self.read_back.total()} rows of logits came to the host whole to be drawn from, by reason: "
                f"{dict(self.read_back)}; each costs its step some milliseconds, and changes no token"
            )
        return draws

    def score(self, rows: Integers, token_ids: Integers, num_top: int) -> RowScores:
        return self._steps.score(rows, token_ids, num_top)

    # ── what it is ───────────────────────────────────────────────────────────────────────────────────────────────────

    def numerics(self) -> dict[str, str]:
        bits = {"bits_of_products": self._bits, "bits_of_attention": self.wide_tiles.bits}
        own = {"backend": self.name, "dtype": self.dtype, **bits}
        return {**own, **numerics(self._device, self.matrices())}

    def linear_probes(self) -> list[LinearProbe]:
        return probes_of(self._weights, self._device)

    def matrices(self) -> dict[str, Weight]:
        """Those of the first layer, and the head."""
        return matrices_of(self._weights)

    def layer_matrices(self) -> list[Weight]:
        """All layers', without the head."""
        return self._weights.matrices()[:-1]


def unsupported_reason(shape: DecoderShape) -> str | None:
    """Why the kernels cannot run a decoder of this shape; None: they can."""
    if shape.head_dim % 16:
        return f"heads of {shape.head_dim} dimensions: the CUDA kernels need a multiple of 16"
    if shape.hidden_size % 8 or shape.intermediate_size % 8:
        return f"widths of {shape.hidden_size} and {shape.intermediate_size}: the CUDA kernels need multiples of 8"
    return None
