"""Compiles the CPU backend's library, once for each instruction set: the same sources, other flags.

    python kernels/cpu/build_library.py        beside this file, for an editable checkout

setup.py calls `build` when the project is installed. One library for each set, instead of several code paths in one,
keeps inline functions of the standard library from being compiled for a processor that the machine does not have.
It must stay importable by path, before the project is installed: standard library only.
"""

import hashlib
import os
import platform
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

SOURCES = Path(__file__).parent / "src"

# Fastest first. -march=native is not used: what is built on one machine must start on another.
INSTRUCTION_SETS: dict[str, tuple[str, ...]] = {
    "avx512": ("-mavx2", "-mfma", "-mf16c", "-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mavx512vnni"),
    "avx2": ("-mavx2", "-mfma", "-mf16c"),
    "portable": (),
}

# -ffp-contract=off: a product and a sum are fused only where the source says fma, else bits would follow the compiler.
FLAGS = (
    "-std=c++17",
    "-O3",
    "-fPIC",
    "-fvisibility=hidden",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-pthread",
    "-Wall",
    "-Wextra",
    "-Wno-maybe-uninitialized",  # gcc 12 takes its own _mm512_undefined_epi32 for a mistake
)


class BuildFailed(Exception):
    """The compiler is missing or refused; the text says which and what it printed."""


def build(target: Path) -> list[Path]:
    """Compile the libraries for this kind of processor into folder `target`. Raises BuildFailed."""
    compiler = _compiler()
    target.mkdir(parents=True, exist_ok=True)
    names = [name for name, flags in INSTRUCTION_SETS.items() if not flags or _is_x86_64()]
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        return list(pool.map(lambda name: _build_one(compiler, name, target), names))


def library_name(instruction_set: str) -> str:
    return f"libreprise_cpu_{instruction_set}.so"


def source_digest() -> str:
    """Digest of the sources and flags; the library carries it, so that a stale one is noticed."""
    digest = hashlib.sha256(" ".join(FLAGS).encode())
    for path in sorted(SOURCES.iterdir()):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def _build_one(compiler: str, name: str, target: Path) -> Path:
    library = target / library_name(name)
    fresh = library.with_suffix(f".{os.getpid()}.new")
    command = [
        compiler,
        *FLAGS,
        *INSTRUCTION_SETS[name],
        f'-DREPRISE_SOURCE_DIGEST="{source_digest()}"',
        "-shared",
        *(str(path) for path in sorted(SOURCES.glob("*.cpp"))),
        "-o",
        str(fresh),
    ]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        fresh.unlink(missing_ok=True)
        raise BuildFailed(f"{compiler} failed on the {name} library:\n{result.stderr.strip()}")
    fresh.replace(library)  # a process that has the old one loaded keeps it
    return library


def _compiler() -> str:
    """$CXX, or the first of c++, g++ and clang++ there is."""
    candidates = [os.environ["CXX"]] if os.environ.get("CXX") else ["c++", "g++", "clang++"]
    for candidate in candidates:
        found = shutil.which(candidate)
        if found:
            return found
    raise BuildFailed(f"no C++ compiler ({', '.join(candidates)}) is at hand: install g++ or clang, or set CXX")


def _is_x86_64() -> bool:
    return platform.machine().lower() in ("x86_64", "amd64")


if __name__ == "__main__":
    try:
        for built in build(Path(__file__).parent):
            print(built)
    except BuildFailed as error:
        sys.exit(str(error))
