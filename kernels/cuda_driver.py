"""What NVIDIA's driver says of this machine, asked through libcuda alone: no torch, no triton, nothing on the device.

So a machine without a GPU learns that it has none in a millisecond, and `auto` loads nothing for it. It must not know
kernels or models.
"""

import ctypes as c
from dataclasses import dataclass

_NAME_BYTES = 128
_CAPABILITY_MAJOR, _CAPABILITY_MINOR = 75, 76  # CUdevice_attribute
_MULTIPROCESSORS = 16
_LEAST_CAPABILITY = (8, 0)  # bfloat16 matrix products


@dataclass(frozen=True, slots=True)
class Device:
    """
    capability           (major, minor) compute capability
    memory_bytes         all of it, whoever uses it
    num_multiprocessors  streaming multiprocessors
    """

    name: str
    capability: tuple[int, int]
    memory_bytes: int
    num_multiprocessors: int


@dataclass(frozen=True, slots=True)
class DriverReport:
    """
    cuda_version   the highest that the driver supports, as in "12.8"; "" without a driver
    devices        as the driver numbers them (CUDA_VISIBLE_DEVICES is heeded)
    missing        why there is no device to compute on, and the remedy; "" where there is one
    """

    cuda_version: str
    devices: tuple[Device, ...]
    missing: str


def ask_driver(library: str = "libcuda.so.1") -> DriverReport:
    """`library` is the driver's own, as the dynamic linker finds it."""
    try:
        cuda = c.CDLL(library)
    except OSError:
        return DriverReport("", (), f"no NVIDIA driver ({library} is not there): install one on a machine with a GPU")
    status = cuda.cuInit(0)
    if status:
        return DriverReport(_version(cuda), (), f"the NVIDIA driver answers {status} to cuInit: see nvidia-smi")
    devices = tuple([_device(cuda, number) for number in range(_count(cuda))])
    return DriverReport(_version(cuda), devices, _missing(devices))


def _missing(devices: tuple[Device, ...]) -> str:
    if not devices:
        return "the NVIDIA driver shows no device: see nvidia-smi and CUDA_VISIBLE_DEVICES"
    if devices[0].capability < _LEAST_CAPABILITY:
        have, need = (".".join(map(str, pair)) for pair in (devices[0].capability, _LEAST_CAPABILITY))
        return f"{devices[0].name} has compute capability {have}: the kernels need {need} or higher"
    return ""


def _version(cuda: c.CDLL) -> str:
    version = c.c_int()
    cuda.cuDriverGetVersion(c.byref(version))
    return f"{version.value // 1000}.{version.value % 1000 // 10}" if version.value else ""


def _count(cuda: c.CDLL) -> int:
    count = c.c_int()
    cuda.cuDeviceGetCount(c.byref(count))
    return count.value


def _device(cuda: c.CDLL, number: int) -> Device:
    device, memory, name = c.c_int(), c.c_size_t(), c.create_string_buffer(_NAME_BYTES)
    cuda.cuDeviceGet(c.byref(device), number)
    cuda.cuDeviceGetName(name, _NAME_BYTES, device)
    cuda.cuDeviceTotalMem_v2(c.byref(memory), device)
    capability = (_attribute(cuda, device, _CAPABILITY_MAJOR), _attribute(cuda, device, _CAPABILITY_MINOR))
    return Device(name.value.decode(), capability, memory.value, _attribute(cuda, device, _MULTIPROCESSORS))


def _attribute(cuda: c.CDLL, device: c.c_int, which: int) -> int:
    value = c.c_int()
    cuda.cuDeviceGetAttribute(c.byref(value), which, device)
    return value.value
