"""gcc and clang, x86-64 and aarch64: one set of sources, the same bits.

So a recording made on a server replays on a laptop of another kind. What is compared is a program of the library's
sources alone (`step_digests.cpp`): small decoders in every weight format and type of KV memory, with one thread and
two, prefill, decode and draws. aarch64 runs under qemu's user emulation. Whatever compiler is missing is left out.
"""

import platform
import shutil
import subprocess
from pathlib import Path

import pytest

from kernels.cpu.build_library import FLAGS, INSTRUCTION_SETS, SOURCES

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).with_name("step_digests.cpp")
NUM_LINES = 9 * 2 * 2  # weight formats, types of KV memory, numbers of threads

Variant = tuple[str, tuple[str, ...], tuple[str, ...]]  # compiler, its flags, what the program is started with

VARIANTS: dict[str, Variant] = {
    "gcc portable": ("g++", (), ()),
    "clang portable": ("clang++", (), ()),
    "clang avx2": ("clang++", INSTRUCTION_SETS["avx2"], ()),
    "clang avx512": ("clang++", INSTRUCTION_SETS["avx512"], ()),
    "gcc avx2": ("g++", INSTRUCTION_SETS["avx2"], ()),
    "aarch64": ("aarch64-linux-gnu-g++", ("-static",), ("qemu-aarch64",)),
}


def digests(variant: Variant, folder: Path) -> list[str]:
    compiler, flags, runner = variant
    missing = [name for name in (compiler, *runner) if shutil.which(name) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} is not installed")
    program = folder / "step_digests"
    sources = [str(path) for path in sorted(SOURCES.glob("*.cpp")) if path.name != "c_api.cpp"]
    command = [compiler, *FLAGS, *flags, f"-I{SOURCES}", str(PROGRAM), *sources, "-o", str(program)]
    subprocess.run(command, check=True, capture_output=True)
    lines = subprocess.run([*runner, str(program)], check=True, capture_output=True, text=True).stdout.splitlines()
    assert len(lines) == NUM_LINES
    return lines


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Of gcc without any instruction set's flags."""
    return digests(VARIANTS["gcc portable"], tmp_path_factory.mktemp("portable"))


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the variants are those of an x86-64 machine")
@pytest.mark.parametrize("name", [name for name in VARIANTS if name != "gcc portable"])
def test_another_compiler_or_processor_gives_the_same_bits(name: str, expected: list[str], tmp_path: Path) -> None:
    if "avx512" in name and "avx512_vnni" not in Path("/proc/cpuinfo").read_text(encoding="utf-8"):
        pytest.skip("this processor has no AVX-512 VNNI")
    assert digests(VARIANTS[name], tmp_path) == expected


def test_what_differs_by_threads_would_be_seen(expected: list[str]) -> None:
    """Each decoder's digest is the same with one thread and two, and no two decoders' are."""
    by_decoder: dict[str, set[str]] = {}
    for line in expected:
        name, memory, _, digest = line.split()
        by_decoder.setdefault(f"{name} {memory}", set()).add(digest)
    assert {len(of_one) for of_one in by_decoder.values()} == {1}
    assert len(set().union(*by_decoder.values())) == NUM_LINES // 2
