"""`make gpu-versions`: every triton that we claim compiles the kernels without spills, and interprets them rightly.

The installed version (torch's own of today), the oldest claimed one and the newest seen. These two are fetched once
into folders of their own beside the virtual environment's packages, the oldest with a numpy that its interpreter can
bear, and put before them by PYTHONPATH.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import triton

from tests.kernels.cuda.compiling import Compiled, table

ROOT = Path(__file__).parents[3]
FOLDER = Path(sys.prefix) / "gpu-versions"
OLDEST, NEWEST = "3.6.0", "3.9.0"
NEEDS = {
    OLDEST: (f"triton=={OLDEST}", "numpy<2.4"),  # with numpy 2.4 its interpreter crashes
    NEWEST: (f"triton=={NEWEST}",),
}
INTERPRETED = "tests/kernels/cuda/interpreted"


def main() -> int:
    """1 where a version spills a register or fails a test in its interpreter."""
    failed = 0
    for version in dict.fromkeys((OLDEST, triton.__version__, NEWEST)):
        environment = {**os.environ, **_path(version)}
        compiled = subprocess.run(_compile(), cwd=ROOT, env=environment, capture_output=True, text=True)
        if not compiled.stdout:
            print(compiled.stderr)
            return 1
        print(f"\ntriton {version}: registers / KiB of shared memory")
        print(table([Compiled(**fields) for fields in json.loads(compiled.stdout)]), flush=True)
        interpreted = subprocess.run(_interpret(version), cwd=ROOT, env={**environment, "TRITON_INTERPRET": "1"})
        failed |= compiled.returncode or interpreted.returncode
    return 1 if failed else 0


def _compile() -> list[str]:
    return [sys.executable, "-m", "tests.kernels.cuda.compiling", "--json", *sys.argv[1:]]


def _interpret(version: str) -> list[str]:
    """The oldest triton turns arrays of one number into numbers, which numpy deprecates."""
    bears = ["-W", "ignore:Conversion of an array:DeprecationWarning"] if version == OLDEST else []
    return [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--tb=short", *bears, INTERPRETED]


def _path(version: str) -> dict[str, str]:
    """The environment in which `version` is the triton that is imported, fetched if it must be."""
    if version == triton.__version__:
        return {}
    folder = FOLDER / version
    if not folder.exists():
        install = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
        subprocess.run([*install, "--target", str(folder), *NEEDS[version]], check=True)
    return {"PYTHONPATH": str(folder)}


if __name__ == "__main__":
    sys.exit(main())
