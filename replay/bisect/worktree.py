"""A git revision made ready to run: checked out aside, its native library built when its sources are others.

The user's checkout, branches and index stay as they are. It must not know what is looked for.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from replay.refusal import CannotCompare

_DIGEST = (
    "import runpy, sys; print(runpy.run_path('kernels/cpu/build_library.py', run_name='library')['source_digest']())"
)
_ROOT = Path(__file__).parent.parent.parent


class Worktree:
    """One checkout in a temporary folder that goes from revision to revision."""

    def __init__(self, path: Path, libraries: Path) -> None:
        self.path = path
        self._libraries = libraries  # source digest → folder of built libraries

    def git(self, *arguments: str, check: bool = True) -> str:
        """Its output. Raises CannotCompare with git's own words."""
        result = subprocess.run(["git", *arguments], cwd=self.path, capture_output=True, text=True, check=False)
        if check and result.returncode:
            raise CannotCompare(f"git {arguments[0]} failed: {(result.stderr or result.stdout).strip()}")
        return result.stdout + result.stderr

    def check_out(self, revision: str) -> None:
        self.git("checkout", "--quiet", "--detach", "--force", revision)

    def run(self, command: Sequence[str] | str) -> subprocess.CompletedProcess[str]:
        """With the revision's packages before all others; a text goes through the shell."""
        environment = {**os.environ, "PYTHONPATH": str(self.path), "PYTHONDONTWRITEBYTECODE": "1"}
        return subprocess.run(
            command,
            cwd=self.path,
            env=environment,
            shell=isinstance(command, str),
            capture_output=True,
            text=True,
            check=False,
        )

    def replay(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """The revision's own `reprise` verbs."""
        return self.run([sys.executable, "-m", "replay", *arguments])

    def build(self) -> str:
        """Have the revision's native library at hand; what went wrong, "" when nothing did."""
        kernels = self.path / "kernels" / "cpu"
        if not (kernels / "build_library.py").is_file():
            return ""
        digest = self.run([sys.executable, "-c", _DIGEST]).stdout.strip() or "unknown"
        for library in kernels.glob("*.so"):
            library.unlink()
        kept = self._libraries / digest
        if not kept.is_dir():
            if digest == self._digest_here():
                kept.mkdir()
                _copy_libraries(_ROOT / "kernels" / "cpu", kept)
            else:
                built = self.run([sys.executable, str(kernels / "build_library.py")])
                if built.returncode:
                    return (built.stderr or built.stdout).strip()
                kept.mkdir()
                _copy_libraries(kernels, kept)
        _copy_libraries(kept, kernels)
        return ""

    def _digest_here(self) -> str:
        result = subprocess.run([sys.executable, "-c", _DIGEST], cwd=_ROOT, capture_output=True, text=True, check=False)
        return result.stdout.strip()


@contextmanager
def worktree_of(repository: Path, revision: str) -> Iterator[Worktree]:
    """A worktree at `revision`, removed at the end. Raises CannotCompare where git refuses."""
    with tempfile.TemporaryDirectory(prefix="reprise-bisect-") as folder:
        path, libraries = Path(folder) / "tree", Path(folder) / "libraries"
        libraries.mkdir()
        at_home = Worktree(repository, libraries)
        at_home.git("worktree", "add", "--quiet", "--detach", str(path), revision)
        try:
            yield Worktree(path, libraries)
        finally:
            at_home.git("worktree", "remove", "--force", str(path), check=False)


def _copy_libraries(source: Path, target: Path) -> None:
    for library in source.glob("*.so"):
        shutil.copy2(library, target / library.name)
