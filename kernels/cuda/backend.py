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
from functools import partial

import numpy as np
import torch

from kernels.backend import CannotLoad, Floats, KVMemory, KVPair, LinearProbe, StepBatch, StepOutput
from kernels.cuda.autotune import NotInvariant
from kernels.cuda.decoder_weights import MATRICES, to_device
from kernels.cuda.draw_answers import answer
from kernels.cuda.draws import Asked, DeviceDraws
from kernels.cuda.interpreter import correct_interpreter
from kernels.cuda.kv_memory import DeviceKV
from kernels.cuda.launch import INTERPRETED, device
from kernels.cuda.linear import linear
from kernels.cuda.numerics import numerics
from kernels.cuda.prepared import FIRST_OF_DRAWS, Preparations, Prepared
from kernels.cuda.scores import score
from kernels.cuda.step import NOBODY, Watch, run_step
from kernels.cuda.tuning import tuned
from kernels.cuda.watching import TapWatch
from kernels.cuda.weights import Weight
from kernels.decoder import DecoderParameters, DecoderShape
from kernels.sampling import Draw, DrawRow
from kernels.scoring import Integers, RowScores
from kernels.trace import Tap, show_slots


class CudaBackend(DeviceKV):
    """See `Backend` for the interface. Its KV memory are tensors on the device.

    dtype   of keys and values: "auto" (bfloat16), "bfloat16" or "float8" (e4m3, scale 1)
    read_back   why rows of logits came to the host whole for their draw → how many
    Raises CudaUnavailable.
    """

    name = "cuda"

    def __init__(self, dtype: str = "auto") -> None:
        super().__init__("bfloat16" if dtype == "auto" else dtype, device())
        self.read_back: Counter[str] = Counter()
        if INTERPRETED:
            correct_interpreter()

    def set_num_threads(self, num_threads: int) -> None:
        """The device's threads are not the process's."""

    def load(self, parameters: DecoderParameters, max_positions: int) -> None:
        """Raises MemoryError, CannotLoad. `unsupported_reason` must have said nothing."""
        self.shape = parameters.shape
        self.vocab_size = parameters.shape.vocab_size
        try:
            self._weights, self._bits = tuned(to_device(parameters, max_positions, self._device), self._device)
            self._preparations = Preparations(self.shape, self._device)
            self._draws = DeviceDraws(self.vocab_size, self._device)
        except torch.OutOfMemoryError as error:
            raise MemoryError(f"the model does not fit the GPU's memory: {error}") from error
        except NotInvariant as error:
            raise CannotLoad(str(error)) from error
        self._last: tuple[Prepared, int] | None = None
        self._asked: Asked | None = None
        self._expected: Sequence[DrawRow] = ()

    # ── a step ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def expect_draws(self, rows: Sequence[DrawRow]) -> None:
        """Those of the step to come: what they need is computed behind it, and comes to the host with its results."""
        self._expected = rows

    def forward(self, batch: StepBatch, keys: KVMemory, values: KVMemory) -> StepOutput:
        return self.launch(batch, keys, values)()

    def launch(self, batch: StepBatch, keys: KVMemory, values: KVMemory) -> Callable[[], StepOutput]:
        """Begin a step; the result waits for the device."""
        prepared = self._prepare(batch, keys, values)
        prepared.graphs.run(keys, partial(self._launch, prepared, (keys, values), NOBODY))
        return self._leave(prepared, len(batch.logit_rows))

    def forward_traced(self, batch: StepBatch, keys: KVMemory, values: KVMemory, tap: Tap) -> StepOutput:
        prepared = self._prepare(batch, keys, values)

        def show(layer: int, memory: KVPair) -> None:
            show_slots(self, tap, layer, memory, batch.slot_mapping)

        of_rows = prepared.inputs.slots[: len(batch.token_ids)]
        self._launch(prepared, (keys, values), TapWatch(tap, of_rows, batch.logit_rows, show))
        return self._leave(prepared, len(batch.logit_rows))()

    def _prepare(self, batch: StepBatch, keys: torch.Tensor, values: torch.Tensor) -> Prepared:
        """Inputs on their way to the device, fresh blocks cleared."""
        assert keys.dtype == values.dtype == self._kind, "the KV memory was made for another dtype"
        prepared = self._preparations.for_batch(batch, keys.shape[3], keys.shape[1] - 1)
        prepared.arriving.upload()
        if len(batch.fresh_blocks):
            for memory in (keys, values):
                memory.index_fill_(1, prepared.arriving.device["fresh_blocks"][: len(batch.fresh_blocks)], 0)
        return prepared

    def _launch(self, prepared: Prepared, memory: KVPair, watch: Watch) -> None:
        run_step(self._weights, self.shape, prepared.inputs, memory, prepared.work, prepared.result, watch)

    def _leave(self, prepared: Prepared, num_logits: int) -> Callable[[], StepOutput]:
        """What the step leaves and its draws need is on its way to the host, in one copy."""
        self._last = prepared, num_logits
        draws, self._expected = self._expected, ()
        self._ask(draws)

        def wait() -> StepOutput:
            self._synchronize()
            stored = prepared.leaving.host["normed"][:num_logits]  # bfloat16: the upper half of a float32
            hidden: Floats = (stored.astype(np.uint32) << np.uint32(16)).view(np.float32)
            return StepOutput(hidden, lambda: self._logits(list(range(num_logits))))

        return wait

    def _ask(self, draws: Sequence[DrawRow]) -> Asked:
        assert self._last is not None, "no step has run"
        prepared, num_logits = self._last
        assert len(draws) in (0, num_logits), f"{num_logits} rows of logits, {len(draws)} to draw"
        self._asked = self._draws.ask(draws, prepared.result.logits[: len(draws)], prepared.leaving.device)
        prepared.leaving.download(None if self._asked.requests else FIRST_OF_DRAWS)
        return self._asked

    def _synchronize(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.current_stream().synchronize()

    def _logits(self, places: list[int]) -> Floats:
        """Rows of the last step's logits, on the host."""
        assert self._last is not None, "no step has run"
        logits = self._last[0].result.logits
        if places != list(range(len(places))):
            chosen: Floats = logits[torch.tensor(places, device=self._device)].cpu().numpy()
            return chosen
        first: Floats = logits[: len(places)].cpu().numpy()
        return first

    def draw(self, rows: Sequence[DrawRow]) -> list[Draw]:
        """Rows that were not expected are asked about now, which takes another copy."""
        assert self._last is not None, "no step has run"
        prepared, num_logits = self._last
        assert len(rows) == num_logits, f"{num_logits} rows of logits, {len(rows)} to draw"
        asked = self._asked
        if asked is None or asked.rows is not rows:
            asked = self._ask(rows)
            self._synchronize()
        return answer(asked, prepared.leaving.host, self._logits, self.read_back)

    def score(self, rows: Integers, token_ids: Integers, num_top: int) -> RowScores:
        assert self._last is not None, "no step has run"
        return score(self._weights, self.shape.norm_epsilon, self._last[0].work, rows, token_ids, num_top)

    # ── what it is ───────────────────────────────────────────────────────────────────────────────────────────────────

    def numerics(self) -> dict[str, str]:
        own = {"backend": self.name, "dtype": self.dtype, "bits_of_products": self._bits}
        return {**own, **numerics(self._device, self.matrices())}

    def linear_probes(self) -> list[LinearProbe]:
        probes: dict[tuple[int, int], LinearProbe] = {}
        for name, weight in self.matrices().items():
            shape = (weight.num_outputs, weight.num_inputs)
            probes.setdefault(shape, LinearProbe(name, weight.num_inputs, partial(self._apply, weight)))
        return list(probes.values())

    def matrices(self) -> dict[str, Weight]:
        """Those of the first layer, and the head."""
        of_layer = {name: getattr(self._weights.layers[0], name) for name in MATRICES}
        return {**of_layer, "head": self._weights.head}

    def layer_matrices(self) -> list[Weight]:
        """All layers', without the head."""
        return self._weights.matrices()[:-1]

    def _apply(self, weight: Weight, rows: Floats) -> Floats:
        """One matrix product, as a step would compute it."""
        x = torch.from_numpy(np.ascontiguousarray(rows)).to(self._device, torch.bfloat16)
        out = torch.empty(len(rows), weight.num_outputs, device=self._device)
        linear(x, weight, out)
        result: Floats = out.cpu().numpy()
        return result


def unsupported_reason(shape: DecoderShape) -> str | None:
    """Why the kernels cannot run a decoder of this shape; None: they can."""
    if shape.head_dim % 16:
        return f"heads of {shape.head_dim} dimensions: the CUDA kernels need a multiple of 16"
    if shape.hidden_size % 8 or shape.intermediate_size % 8:
        return f"widths of {shape.hidden_size} and {shape.intermediate_size}: the CUDA kernels need multiples of 8"
    return None
