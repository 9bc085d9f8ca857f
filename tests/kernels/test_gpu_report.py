"""A GPU is told of with its figures, and what stands in its way. Without one a stand-in answers for the driver."""

from pathlib import Path

import torch

from engine.clock import SystemClock
from kernels.gpu_report import look_at_gpu, measured_bandwidth, measured_matmul
from tests.kernels.test_cuda_driver import fake_driver

NOW_NS = SystemClock().now_ns


def test_a_device_that_torch_cannot_use_is_told_with_the_remedy(tmp_path: Path) -> None:
    if torch.cuda.is_available():
        return  # then there is a device, and what is measured of it is another test's
    report = look_at_gpu(NOW_NS, fake_driver(tmp_path))
    assert report.missing == f"torch {torch.__version__} sees no device: install its build for CUDA 12.8 or lower"
    lines = "\n".join(report.lines())
    assert "NVIDIA H200, compute capability 9.0, 140 GiB, 132 multiprocessors" in lines
    assert "driver supports CUDA     12.8" in lines


def test_what_is_measured_is_a_rate() -> None:
    device = torch.device("cpu")
    assert measured_bandwidth(device, NOW_NS, 1 << 16) > 0
    assert measured_matmul(device, NOW_NS, 64) > 0
