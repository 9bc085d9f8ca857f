"""The start-up self-test holds on this machine, and would notice a backend that is not invariant."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from kernels.backend import Floats, KVMemory, LinearProbe, StepBatch, StepOutput
from kernels.reference import ReferenceBackend
from kernels.selftest import hashed_rows, run_self_test
from tests.model_fixtures import NUM_THREADS


def test_the_reference_backend_passes_over_many_values(default_backend: ReferenceBackend) -> None:
    report = run_self_test(default_backend, NUM_THREADS)
    assert report.holds, report.failures
    assert report.num_compared > 1_000_000
    assert torch.get_num_threads() == NUM_THREADS  # restored


def test_a_linear_layer_that_minds_the_number_of_rows_is_found(
    default_backend: ReferenceBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As plain F.linear does: another kernel for one row."""
    weight = default_backend.layers[0].qkv

    def untiled(rows: Floats) -> Floats:
        result: Floats = torch.nn.functional.linear(torch.from_numpy(rows), weight).numpy()
        return result

    monkeypatch.setattr(default_backend, "linear_probes", lambda: [LinearProbe("qkv", weight.shape[1], untiled)])
    report = run_self_test(default_backend, NUM_THREADS)
    assert not report.holds
    assert any(failure.startswith("qkv: row 0 alone:") for failure in report.failures)


def nudge_last_bit(output: StepOutput) -> StepOutput:
    output.logits.view(np.int32)[0, 0] ^= 1
    return output


@pytest.mark.parametrize(
    ("is_wrong", "claim"),
    [
        (lambda batch: len(batch.query_starts) > 2, "a sequence in two chunks, in company"),
        (lambda batch: torch.get_num_threads() == 1, "a sequence on one thread"),
    ],
)
def test_one_bit_in_one_value_withdraws_the_claim(
    default_backend: ReferenceBackend,
    monkeypatch: pytest.MonkeyPatch,
    is_wrong: Callable[[StepBatch], bool],
    claim: str,
) -> None:
    forward = default_backend.forward

    def contaminated(batch: StepBatch, keys: KVMemory, values: KVMemory) -> StepOutput:
        output = forward(batch, keys, values)
        return nudge_last_bit(output) if is_wrong(batch) else output

    monkeypatch.setattr(default_backend, "forward", contaminated)
    (failure,) = run_self_test(default_backend, NUM_THREADS).failures
    assert failure.startswith(f"{claim}: ")


def test_hashed_rows_are_fixed_and_spread_over_their_interval() -> None:
    rows = hashed_rows(64, 1000)
    assert np.array_equal(rows, hashed_rows(64, 1000))
    assert rows.min() >= -1.0
    assert rows.max() < 1.0
    assert abs(float(rows.mean())) < 0.01
    assert len(np.unique(rows)) > 60_000
