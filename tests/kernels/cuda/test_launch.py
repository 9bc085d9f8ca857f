"""How kernels are started: where tensors live, and what triton may not see of the arguments."""

import pytest
import torch

from kernels.cuda.launch import CudaUnavailable, device, launch, power_of_two


def _never(*arguments: object) -> None:
    raise AssertionError("started")


def test_a_machine_without_a_gpu_is_told_what_to_do() -> None:
    if torch.cuda.is_available():
        pytest.skip("a GPU is here")
    with pytest.raises(CudaUnavailable, match="choose another backend"):
        device()


def test_no_programs_are_no_launch() -> None:
    launch({(0, 3): _never}, (0, 3), torch.zeros(4))


def test_a_misaligned_tensor_is_refused() -> None:
    """Triton would compile another kernel for it, whose sums may be laid out otherwise."""
    with pytest.raises(AssertionError, match="misaligned"):
        launch({(1,): _never}, (1,), torch.zeros(8)[1:])


def test_tiles_hold_lengths() -> None:
    assert [power_of_two(length) for length in (1, 2, 3, 64, 65)] == [1, 2, 4, 64, 128]
