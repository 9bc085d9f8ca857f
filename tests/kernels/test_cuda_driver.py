"""What the driver answers is told as it is: devices with their figures, or what is missing and what to do.

There is no driver where most tests run; a library of a few lines in C answers as one would.
"""

import shutil
import subprocess
from pathlib import Path

import pytest

from kernels.cuda_driver import Device, ask_driver

FAKE = """
#include <stddef.h>
#include <string.h>
int cuInit(unsigned flags) { return INIT; }
int cuDriverGetVersion(int *version) { *version = 12080; return 0; }
int cuDeviceGetCount(int *count) { *count = COUNT; return 0; }
int cuDeviceGet(int *device, int number) { *device = number; return 0; }
int cuDeviceGetName(char *name, int length, int device) { strncpy(name, "NVIDIA H200", length); return 0; }
int cuDeviceTotalMem_v2(size_t *bytes, int device) { *bytes = 150754820096ull; return 0; }
int cuDeviceGetAttribute(int *value, int which, int device) {
  *value = which == 75 ? MAJOR : which == 76 ? 0 : which == 16 ? 132 : -1;
  return 0;
}
"""


def fake_driver(folder: Path, *, init: int = 0, count: int = 1, major: int = 9) -> str:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler: nothing can answer in a driver's place")
    source, library = folder / "driver.c", folder / "libdriver.so"
    source.write_text(FAKE, "utf-8")
    figures = [f"-DINIT={init}", f"-DCOUNT={count}", f"-DMAJOR={major}"]
    subprocess.run([compiler, "-shared", "-fPIC", *figures, "-o", library, source], check=True, timeout=60)
    return str(library)


def test_without_a_driver_there_is_no_device_and_the_remedy_is_named() -> None:
    report = ask_driver("libcuda-that-is-not-there.so.1")
    assert report.devices == ()
    assert report.missing.startswith("no NVIDIA driver (libcuda-that-is-not-there.so.1 is not there): install one")


def test_a_device_is_told_with_its_figures(tmp_path: Path) -> None:
    report = ask_driver(fake_driver(tmp_path))
    assert report.devices == (Device("NVIDIA H200", (9, 0), 150_754_820_096, 132),)
    assert (report.cuda_version, report.missing) == ("12.8", "")


def test_a_driver_that_does_not_start_or_shows_nothing_or_too_little_is_named(tmp_path: Path) -> None:
    told = {}
    for name, figures in {"init": {"init": 100}, "count": {"count": 0}, "old": {"major": 7}}.items():
        (tmp_path / name).mkdir()
        told[name] = ask_driver(fake_driver(tmp_path / name, **figures)).missing
    assert "answers 100 to cuInit" in told["init"]
    assert "shows no device" in told["count"]
    assert "compute capability 7.0: the kernels need 8.0 or higher" in told["old"]
