"""What a step will take: a model of its execution time, fitted from the phase times that the events report.

Two linear fits, so that each forgets by its own samples only: hours of decoding do not wear out what is known of
prefill. A step's time is taken to be

    fixed + decode rows × a + context they attend × b        from steps that only decode
          + prefill tokens × c + pairs they attend × d       from what a step with prefill took beyond that

with no weight below zero. It is part of the core's state: the same events give the same model. All arithmetic is in
whole numbers of any size (no floats, no library functions), so it is the same on every machine. A sample far from the
prediction (a stall on a shared core) counts as if it were OUTLIER_FACTOR away at most, so that one moves the model
little, and a machine that has changed for good moves it within a few dozen steps. It must not know who runs.

Source: least squares with exponential forgetting; the normal equations are kept and followed by one Gauss-Seidel sweep
per sample, each weight held at zero or above (coordinate descent for non-negative least squares: Franc et al., 2005).
"""

from collections.abc import Sequence
from typing import NamedTuple

FORGETTING_BITS = 6  # a sample's weight falls by 1/64 with each later one of its fit
MIN_SAMPLES = 8  # before so many, predictions are not to be relied on and no sample is taken for an outlier
OUTLIER_FACTOR = 2
DECODES_PER_SAMPLE = 4  # steps that only decode come in long equal runs: every fourth tells as much at a quarter's cost
MAX_STEP_NS = 600_000_000_000  # no longer time is believed or predicted

_WEIGHT_BITS = 10  # weights are in 1/1024 ns per unit of their feature
_SCALE_BITS = 16  # sums are kept times 65,536: what the shifts of forgetting cut off is nothing
_CONTEXT_BITS = 6  # contexts are counted in units of 64 tokens, pairs in units of 64 pairs


class StepShape(NamedTuple):
    """What the time of a step depends on.

    num_decodes      rows of one token
    decode_context   tokens that these attend, in all
    prefill_tokens   tokens of the longer rows
    prefill_pairs    (token, token it attends) in the longer rows
    """

    num_decodes: int
    decode_context: int
    prefill_tokens: int
    prefill_pairs: int


def shape_of(rows: Sequence[tuple[int, int, int]]) -> StepShape:
    """The shape of a planned step. `rows` are (request, start, count), as in StepPlanned."""
    prefills = [row for row in rows if row[2] > 1]
    context = sum([row[1] for row in rows])
    if not prefills:
        return StepShape(len(rows), context + len(rows), 0, 0)
    num_decodes = len(rows) - len(prefills)
    context -= sum([start for _request, start, _count in prefills])
    return StepShape(
        num_decodes,
        context + num_decodes,
        sum([count for _request, _start, count in prefills]),
        sum([num_pairs(start, count) for _request, start, count in prefills]),
    )


def num_pairs(start: int, count: int) -> int:
    """How many (token, attended token) pairs a row of `count` tokens from `start` on has: causal attention."""
    return count * start + count * (count + 1) // 2


class StepTimeModel:
    """`observe_step` each step; `predict_ns` the next; `prefill_tokens_within` turns a time into a chunk."""

    def __init__(self) -> None:
        self._decode = _Fit(3)
        self._prefill = _Fit(2)
        self._num_decode_steps = 0

    @property
    def knows_prefill(self) -> bool:
        """False until a step with prefill was observed: there is nothing to size a chunk by."""
        return self._prefill.num_samples > 0

    @property
    def is_reliable(self) -> bool:
        return min(self._decode.num_samples, self._prefill.num_samples) >= MIN_SAMPLES

    def observe_step(self, rows: Sequence[tuple[int, int, int]], num_tokens: int, step_ns: int) -> None:
        """A step of these rows, which have so many tokens in all, took so long.

        A time of 0 (an executor that tells none) is no sample.
        """
        if step_ns <= 0:
            return
        if num_tokens == len(rows):
            self._num_decode_steps += 1
            if self._num_decode_steps % DECODES_PER_SAMPLE:
                return
        self.observe(shape_of(rows), step_ns)

    def observe(self, shape: StepShape, step_ns: int) -> None:
        step_ns = min(step_ns, MAX_STEP_NS)
        if shape.prefill_tokens == 0:
            self._decode.observe((1, shape.num_decodes, shape.decode_context >> _CONTEXT_BITS), step_ns, 0)
        else:
            features = (shape.prefill_tokens, shape.prefill_pairs >> _CONTEXT_BITS)
            self._prefill.observe(features, step_ns, self.decode_ns(shape.num_decodes, shape.decode_context))

    def predict_ns(self, shape: StepShape) -> int:
        """0 where nothing is known yet."""
        predicted = self.decode_ns(shape.num_decodes, shape.decode_context)
        if shape.prefill_tokens:
            predicted += self._prefill.value((shape.prefill_tokens, shape.prefill_pairs >> _CONTEXT_BITS))
        return min(predicted, MAX_STEP_NS)

    def decode_ns(self, num_decodes: int, decode_context: int) -> int:
        """What a step takes without any prefill, its fixed part included."""
        return self._decode.value((1, num_decodes, decode_context >> _CONTEXT_BITS))

    def prefill_ns(self, start: int, count: int) -> int:
        """What `count` tokens of a prefill that has come to `start` take beyond the rest of their steps; 0: unknown."""
        return min(self._prefill.value((count, num_pairs(start, count) >> _CONTEXT_BITS)), MAX_STEP_NS)

    def prefill_tokens_within(self, time_ns: int, start: int, max_tokens: int) -> int:
        """How many tokens of a prefill that has come to `start` take `time_ns` beyond the rest of the step, at most.

        `max_tokens` when nothing is known of prefill.
        """
        per_token, per_pairs = self._prefill.weights
        if per_token + per_pairs == 0:
            return max_tokens
        time = max(0, time_ns) << _WEIGHT_BITS
        tokens = max_tokens
        for _ in range(3):  # the cost of a token grows with those before it: from above towards the fixed point
            mean_pairs = start + tokens // 2
            tokens = min(max_tokens, time // max(1, per_token + (per_pairs * mean_pairs >> _CONTEXT_BITS)))
        return tokens


class _Fit:
    """Non-negative weights of a linear form, following its samples."""

    def __init__(self, num_features: int) -> None:
        self.weights = [0] * num_features
        self.num_samples = 0
        self._products = [[0] * num_features for _ in range(num_features)]
        self._targets = [0] * num_features

    def value(self, features: Sequence[int]) -> int:
        """ns"""
        return sum([weight * feature for weight, feature in zip(self.weights, features, strict=True)]) >> _WEIGHT_BITS

    def observe(self, features: Sequence[int], step_ns: int, other_ns: int) -> None:
        """A step took `step_ns`, of which `other_ns` are not this fit's to explain."""
        if self.num_samples >= MIN_SAMPLES:
            predicted = self.value(features) + other_ns
            step_ns = min(max(step_ns, predicted // OUTLIER_FACTOR), predicted * OUTLIER_FACTOR)
        self.num_samples += 1
        target = max(0, step_ns - other_ns) << _SCALE_BITS
        for i, feature in enumerate(features):
            products = self._products[i]
            for j, other in enumerate(features):
                products[j] += (feature * other << _SCALE_BITS) - (products[j] >> FORGETTING_BITS)
            self._targets[i] += feature * target - (self._targets[i] >> FORGETTING_BITS)
        self._descend()

    def _descend(self) -> None:
        """Each weight in turn becomes the best one beside the others."""
        weights = self.weights
        for i, products in enumerate(self._products):
            if products[i] == 0:
                continue
            rest = (self._targets[i] << _WEIGHT_BITS) - sum(
                [product * weight for product, weight in zip(products, weights, strict=True)]
            )
            weights[i] = max(0, weights[i] + rest // products[i])
