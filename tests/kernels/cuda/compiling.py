"""Builds every registered variant of every kernel for a GPU that is not here, and reads what the assembler made of it.

    python -m tests.kernels.cuda.compiling            the table of registers, shared memory and spills
    python -m tests.kernels.cuda.compiling --json     the same for a program
    python -m tests.kernels.cuda.compiling --more     MORE_VARIANTS too: every tile there is, which takes minutes

A kernel is compiled as `launch` starts it: pointers aligned, integers unspecialised, no fusion of multiply and add.
"""

import importlib
import json
import os
import pkgutil
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

import kernels.cuda
from kernels.cuda.launch import FUSE_MULTIPLY_ADD, POINTER_ALIGNMENT, Variant

ARCHITECTURES = (80, 90, 100)
NUM_PROCESSES = 2
_WARP = 32
_LOOSE = r"\b(?:(?:add|sub|mul|div|sqrt|rcp)(?!\.rn)\.[a-z.]*f(?:32|64)|fma\.[a-z.]+f(?:32|64))\b"
_PRODUCTS = ("mma.sync", "wgmma", "tcgen05.mma")  # of sm_80, sm_90 and sm_100; the last two have the first as well


@dataclass(frozen=True, slots=True)
class Compiled:
    """What one variant takes on one architecture.

    registers   of each thread, at most 255
    shared      bytes of each program
    spilled     bytes of stack or local memory of each thread: registers that did not fit
    products    which of the tensor cores' instructions it is made of: their bits must not be taken for equal
    layouts     of their tiles: the instruction's shape, and how warps are spread, in the compiler's words
    atomics     instructions that add numbers into memory in no fixed order; counting in integers is none
    loose       arithmetic on floats that is not rounded as IEEE 754 says, or that the assembler may fuse
    """

    variant: str
    architecture: int
    registers: int
    shared: int
    spilled: int
    products: str
    layouts: str
    atomics: int
    loose: str


def variants(*, more: bool = False) -> dict[str, Variant]:
    """Those of every file's VARIANTS by name, and of its MORE_VARIANTS."""
    found: dict[str, Variant] = {}
    for module in pkgutil.iter_modules(kernels.cuda.__path__, "kernels.cuda."):
        for tuple_name in ("VARIANTS", "MORE_VARIANTS")[: 1 + more]:
            for variant in getattr(importlib.import_module(module.name), tuple_name, ()):
                assert variant.name not in found, f"two variants are called {variant.name!r}"
                found[variant.name] = variant
    return found


def compile_all(*, more: bool = False) -> list[Compiled]:
    """Every variant for every architecture that it is for, in processes of their own."""
    work = [
        (name, architecture, more)
        for name, variant in variants(more=more).items()
        for architecture in ARCHITECTURES
        if architecture >= variant.minimum
    ]
    with ProcessPoolExecutor(NUM_PROCESSES, mp_context=get_context("spawn")) as pool:
        return list(pool.map(_compile, work, chunksize=4))


def _compile(work: tuple[str, int, bool]) -> Compiled:
    name, architecture, more = work
    variant = variants(more=more)[name]
    kernel = variant.kernel
    signature = {p: variant.signature.get(p, "constexpr") for p in kernel.arg_names}
    aligned = [["tt.divisibility", POINTER_ALIGNMENT]]
    attributes = {(i,): aligned for i, p in enumerate(kernel.arg_names) if signature[p].startswith("*")}
    source = ASTSource(kernel, signature, dict(variant.constants), attributes)
    options = {
        "num_warps": variant.num_warps,
        "num_stages": variant.num_stages,
        "enable_fp_fusion": FUSE_MULTIPLY_ADD,
        "maxnreg": variant.max_registers,
    }
    built = triton.compile(source, target=GPUTarget("cuda", architecture, _WARP), options=options)
    usage = _resource_usage(built.asm["cubin"])
    text = built.asm["ptx"]
    return Compiled(
        name,
        architecture,
        registers=usage["REG"],
        shared=built.metadata.shared,
        spilled=usage["STACK"] + usage["LOCAL"],
        products=" ".join(product for product in _PRODUCTS if product in text),
        layouts=" ".join(sorted(set(re.findall(r"nvidia_mma<\{[^}]*\}>", built.asm["ttgir"])))),
        atomics=len(re.findall(r"^\s*(?:@\S+ )?(?:atom|red)\.\S*f(?:16|32|64)", text, re.MULTILINE)),
        loose=" ".join(sorted(set(re.findall(_LOOSE, text)))),
    )


def _resource_usage(binary: bytes) -> dict[str, int]:
    """Of the one kernel in `binary`, in cuobjdump's words: REG, STACK, LOCAL, SHARED."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(binary)
        file.flush()
        tool = triton.knobs.nvidia.cuobjdump.path
        command = [tool, "--dump-resource-usage", file.name]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return {name: int(figure) for name, figure in re.findall(r"\b(REG|STACK|LOCAL|SHARED):(\d+)", said)}


def table(results: list[Compiled]) -> str:
    """One line a variant: registers / KiB of shared memory, for each architecture."""
    by_name: dict[str, dict[int, Compiled]] = {}
    for result in results:
        by_name.setdefault(result.variant, {})[result.architecture] = result
    lines = [f"| kernel | {' | '.join(f'sm_{a}' for a in ARCHITECTURES)} |", "|---" * (len(ARCHITECTURES) + 1) + "|"]
    for name, of_variant in by_name.items():
        cells = [_cell(of_variant.get(architecture)) for architecture in ARCHITECTURES]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(result: Compiled | None) -> str:
    if result is None:
        return "-"
    spilled = f" SPILLS {result.spilled} B" if result.spilled else ""
    return f"{result.registers} / {result.shared / 1024:.1f}{spilled}"


def main() -> int:
    """1 where anything spills."""
    with tempfile.TemporaryDirectory() as cache:
        os.environ["TRITON_CACHE_DIR"] = str(Path(cache))
        results = compile_all(more="--more" in sys.argv)
    print(json.dumps([asdict(result) for result in results]) if "--json" in sys.argv else table(results))
    return 1 if any(result.spilled for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
