"""Installs the native library along with the project; everything else stands in pyproject.toml.

The library is a plain shared object that ctypes loads, so no extension module is built: the command only compiles it to
where the package will be found, which is the checkout itself for an editable install. Without a compiler the
installation still succeeds: the daemon then runs on the reference backend and says so.
"""

import importlib.util
from pathlib import Path
from types import ModuleType

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

PACKAGE = Path("kernels") / "cpu"


class BuildLibrary(build_ext):
    def run(self) -> None:
        recipe = _recipe()
        root = Path(__file__).parent if self.inplace or self.editable_mode else Path(self.build_lib)
        try:
            self.built = recipe.build(root / PACKAGE)
        except recipe.BuildFailed as error:
            self.built = []
            self.warn(f"the CPU backend is not built, the slow reference backend will be used instead: {error}")

    def get_outputs(self) -> list[str]:
        return [str(path) for path in getattr(self, "built", [])]

    def get_output_mapping(self) -> dict[str, str]:
        return {}


def _recipe() -> ModuleType:
    """kernels/cpu/build_library.py by path: the package itself cannot be imported yet, torch is not there."""
    path = Path(__file__).parent / PACKAGE / "build_library.py"
    spec = importlib.util.spec_from_file_location("build_library", path)
    assert spec is not None
    assert spec.loader is not None
    recipe = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(recipe)
    return recipe


setup(
    cmdclass={"build_ext": BuildLibrary},
    ext_modules=[Extension("kernels.cpu.libreprise_cpu", sources=[])],  # makes setuptools run the command
)
