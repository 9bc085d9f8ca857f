"""Steps run one after the other on the device: brought there, launched, what they leave waited for and drawn from.

One copy goes each way per step whose draws are told in advance, and one more to the device where they are not greedy; a
row whose logits must be read whole takes another. Nothing waits for the device but who asks for a result. It must not
know how weights were made.
"""

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import torch

from kernels.backend import Floats, KVPair, StepBatch, StepOutput
from kernels.cuda.decoder_weights import DecoderWeights
from kernels.cuda.draw_answers import answer
from kernels.cuda.draws import Asked, DeviceDraws
from kernels.cuda.launch import INTERPRETED
from kernels.cuda.prepared import Preparations, Prepared
from kernels.cuda.scores import score
from kernels.cuda.step import Step
from kernels.cuda.step_arrays import FIRST_OF_DRAWS
from kernels.cuda.watch import NOBODY, Watch
from kernels.cuda.watching import TapWatch
from kernels.decoder import DecoderShape
from kernels.device_backend import LargestStep
from kernels.sampling import Draw, DrawRow
from kernels.scoring import Integers, RowScores
from kernels.trace import Tap


class DeviceSteps:
    """Of one model. Raises torch.OutOfMemoryError, as its methods do."""

    def __init__(
        self, weights: DecoderWeights, shape: DecoderShape, preparations: Preparations, device: torch.device
    ) -> None:
        self._weights = weights
        self._shape = shape
        self._preparations = preparations
        self._device = device
        self._draws = DeviceDraws(shape.vocab_size, device)
        self._last: tuple[Prepared, int] | None = None
        self._asked: Asked | None = None
        self._expected: Sequence[DrawRow] = ()
        if not INTERPRETED:
            self._draws.warm()

    def make_room(self, largest: LargestStep) -> None:
        """For what all steps share."""
        self._preparations.make_room(largest)
        self._draws.make_room(largest.num_logits)

    def expect_draws(self, rows: Sequence[DrawRow]) -> None:
        """Those of the step to come: what they need is computed behind it, and comes to the host with its results."""
        self._expected = rows

    def launch(self, batch: StepBatch, memory: KVPair) -> Callable[[], StepOutput]:
        """Begin a step; the result waits for the device."""
        prepared = self._prepare(batch, memory)
        prepared.run(self._step(prepared, memory, NOBODY))
        return self._leave(prepared, len(batch.logit_rows))

    def run_traced(
        self, batch: StepBatch, memory: KVPair, tap: Tap, show_slots: Callable[[int, KVPair], None]
    ) -> StepOutput:
        """show_slots: as `TapWatch` asks for it."""
        prepared = self._prepare(batch, memory)
        of_rows = prepared.inputs.slots[: len(batch.token_ids)]
        self._step(prepared, memory, TapWatch(tap, of_rows, batch.logit_rows, show_slots)).run()
        return self._leave(prepared, len(batch.logit_rows))()

    def _prepare(self, batch: StepBatch, memory: KVPair) -> Prepared:
        """Inputs on their way to the device, fresh blocks cleared."""
        keys = memory[0]
        prepared = self._preparations.for_batch(batch, keys.shape[3], keys.shape[1] - 1)
        prepared.upload()
        if len(batch.fresh_blocks):
            for each in memory:
                each.index_fill_(1, prepared.arriving.device["fresh_blocks"][: len(batch.fresh_blocks)], 0)
        return prepared

    def _step(self, prepared: Prepared, memory: KVPair, watch: Watch) -> Step:
        return Step(self._weights, self._shape, prepared.inputs, memory, prepared.work, prepared.result, watch)

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

    def draw(self, rows: Sequence[DrawRow], read_back: Counter[str]) -> list[Draw]:
        """Rows that were not expected are asked about now, which takes another copy. read_back is counted up."""
        assert self._last is not None, "no step has run"
        prepared, num_logits = self._last
        assert len(rows) == num_logits, f"{num_logits} rows of logits, {len(rows)} to draw"
        asked = self._asked
        if asked is None or asked.rows is not rows:
            asked = self._ask(rows)
            self._synchronize()
        return answer(asked, prepared.leaving.host, self._logits, read_back)

    def _logits(self, places: list[int]) -> Floats:
        """Rows of the last step's logits, on the host."""
        assert self._last is not None, "no step has run"
        logits = self._last[0].result.logits
        if places != list(range(len(places))):
            chosen: Floats = logits[torch.tensor(places, device=self._device)].cpu().numpy()
            return chosen
        first: Floats = logits[: len(places)].cpu().numpy()
        return first

    def score(self, rows: Integers, token_ids: Integers, num_top: int) -> RowScores:
        """As `Backend.score`."""
        assert self._last is not None, "no step has run"
        return score(self._weights, self._shape.norm_epsilon, self._last[0].work, rows, token_ids, num_top)
