"""A GPU looked at: what the driver says of it, which libraries are here to use it, and how fast it really is.

For `reprise doctor --gpu` and the tests on a device. torch and triton are imported only after the driver has shown a
device. It must not know models.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from kernels.cuda_driver import DriverReport, ask_driver
from kernels.dispatch import automatic

if TYPE_CHECKING:
    import torch

_COPY_BYTES = 2 << 30  # far more than any cache
_MATRIX = 8192
_REPEATS = 20


@dataclass(frozen=True, slots=True)
class GpuReport:
    """
    versions             of the packages that use a GPU: "" where one is not installed
    torch_cuda           the CUDA version that torch was built for; "" for a build without
    auto_tries           the backends that `--backend auto` would try, in this order
    missing              what stands in the way of the cuda backend, with the remedy; "" where nothing does
    bytes_per_second     of memory, read and written, by a large copy; 0 where nothing was measured
    flops_per_second     of a large matrix product of bfloat16 by the library; 0 where nothing was measured
    """

    driver: DriverReport
    versions: dict[str, str]
    torch_cuda: str
    auto_tries: tuple[str, ...]
    missing: str
    bytes_per_second: float = 0.0
    flops_per_second: float = 0.0

    def lines(self) -> list[str]:
        """For people: a line a figure."""
        lines = [f"{'driver supports CUDA':24} {self.driver.cuda_version or 'no driver'}"]
        for number, device in enumerate(self.driver.devices):
            capability = ".".join(map(str, device.capability))
            figures = f"{device.memory_bytes / 2**30:.0f} GiB, {device.num_multiprocessors} multiprocessors"
            lines.append(f"{f'device {number}':24} {device.name}, compute capability {capability}, {figures}")
        lines += [f"{name:24} {installed or 'not installed'}" for name, installed in self.versions.items()]
        if self.torch_cuda:
            lines.append(f"{'torch is built for CUDA':24} {self.torch_cuda}")
        if self.bytes_per_second:
            lines.append(f"{'memory':24} {self.bytes_per_second / 1e9:.0f} GB/s, read and written by a copy")
            lines.append(f"{'matrix product':24} {self.flops_per_second / 1e12:.0f} TFLOP/s, bfloat16 by the library")
        lines.append(f"{'auto tries':24} {', then '.join(self.auto_tries)}")
        if self.missing:
            lines.append(f"{'missing':24} {self.missing}")
        return lines


def look_at_gpu(now_ns: Callable[[], int], library: str = "libcuda.so.1") -> GpuReport:
    """now_ns: a monotonic clock. Measuring takes about a second, and 4 GiB of the device's memory."""
    driver = ask_driver(library)
    versions = {name: _version(name) for name in ("torch", "triton")}
    report = GpuReport(driver, versions, "", automatic(), driver.missing)
    if driver.missing:
        return report
    absent = [name for name, installed in versions.items() if not installed]
    if absent:
        return replace(report, missing=f"{' and '.join(absent)}: install reprise[gpu]")
    import torch

    report = replace(report, torch_cuda=torch.version.cuda or "")
    if not torch.cuda.is_available():
        build = f"its build for CUDA {driver.cuda_version} or lower"
        return replace(report, missing=f"torch {versions['torch']} sees no device: install {build}")
    device = torch.device("cuda")
    bytes_per_second, flops_per_second = measured_bandwidth(device, now_ns), measured_matmul(device, now_ns)
    return replace(report, bytes_per_second=bytes_per_second, flops_per_second=flops_per_second)


def measured_bandwidth(device: "torch.device", now_ns: Callable[[], int], num_bytes: int = _COPY_BYTES) -> float:
    """Bytes read and written in a second by a copy of `num_bytes`."""
    import torch

    source = torch.ones(num_bytes // 4, device=device)
    target = torch.empty_like(source)
    return 2 * num_bytes / seconds_of(lambda: target.copy_(source), device, now_ns)


def measured_matmul(device: "torch.device", now_ns: Callable[[], int], size: int = _MATRIX) -> float:
    """Multiplications and additions in a second, in a product of two matrices of `size` x `size` bfloat16."""
    import torch

    left, right = (torch.ones(size, size, device=device, dtype=torch.bfloat16) for _ in range(2))
    product = torch.empty_like(left)
    return 2 * size**3 / seconds_of(lambda: torch.mm(left, right, out=product), device, now_ns)


def seconds_of(
    call: Callable[[], object], device: "torch.device", now_ns: Callable[[], int], repeats: int = _REPEATS
) -> float:
    """What one of `repeats` calls takes, one after the other, after three that are not counted."""
    for _ in range(3):
        call()
    _wait(device)
    started_ns = now_ns()
    for _ in range(repeats):
        call()
    _wait(device)
    return max(now_ns() - started_ns, 1) / 1e9 / repeats


def _wait(device: "torch.device") -> None:
    if device.type == "cuda":
        import torch

        torch.cuda.synchronize(device)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
