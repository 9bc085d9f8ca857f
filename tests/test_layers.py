"""Who may import whom. The map in the README is only true as long as this passes."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("daemon", "engine", "recorder", "replay", "kernels")

# module or package → what of ours it may import; the longest matching name rules
ALLOWED: dict[str, tuple[str, ...]] = {
    "kernels": ("kernels",),
    "engine.core": ("engine.core",),
    "engine.clock": (),
    "engine.config": ("engine.core",),
    "engine.own_policy": ("engine.core",),
    "engine.injection": ("engine.core", "engine.clock"),
    "engine.injected_faults": ("engine.core", "engine.execution", "engine.injection", "engine.log"),
    "engine.protocol": ("engine.core",),
    "engine.log": ("engine.journal",),
    "engine.journal": (),
    "engine.text": ("engine.text", "engine.core", "engine.log"),
    "engine.execution": (
        "engine.execution",
        "engine.core",
        "engine.text",
        "engine.clock",
        "engine.config",
        "engine.log",
        "kernels",
    ),
    "engine.grammar_desk": ("engine.core", "engine.protocol", "engine.log"),
    "engine.self_audit": ("engine.core", "engine.execution", "engine.log"),
    "engine.loop": (
        "engine.core",
        "engine.execution",
        "engine.clock",
        "engine.protocol",
        "engine.log",
        "engine.self_audit",
        "engine.steps_ahead",
    ),
    "engine.steps_ahead": ("engine.core", "engine.execution", "engine.log", "engine.loop"),
    "engine.process": ("engine", "recorder", "kernels"),  # the composition root
    "recorder": ("recorder", "engine.core", "engine.clock"),
    "replay": (
        "replay",
        "recorder",
        "engine.core",
        "engine.text",
        "engine.config",
        "engine.clock",
        "engine.own_policy",
        "engine.injection",
    ),
    "replay.model_runs": ("replay", "recorder", "engine", "kernels"),
    "daemon": (
        "daemon",
        "recorder",
        "engine.core",
        "engine.protocol",
        "engine.config",
        "engine.clock",
        "engine.log",
        "engine.text",
    ),
    "daemon.viewer": ("daemon", "replay.viewer.access", "replay.viewer.guard"),  # lets in; a process of its own answers
    "daemon.bench": ("daemon.bench", "engine.clock", "engine.core.errors"),  # a client: it knows no server of ours
    "daemon.load": ("daemon.load", "daemon.bench", "replay.simulate", "engine.core.errors"),  # joins the two
    "engine.doctor": ("engine", "kernels"),
    "daemon.__main__": ("daemon", "replay", "engine.core", "engine.text", "engine.doctor"),
}
HEAVY = ("torch", "triton", "transformers")
FREE_OF_HEAVY = ("engine.core", "engine.text", "engine.protocol", "engine.config", "recorder", "daemon", "replay")


def modules() -> Iterator[tuple[str, Path]]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            yield ".".join(part for part in parts if part != "__init__"), path


def imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            pytest.fail(f"{path}: relative import; name the module in full")
    return found


def is_within(name: str, packages: tuple[str, ...]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def rule_for(module: str) -> tuple[str, ...]:
    candidates = [name for name in ALLOWED if is_within(module, (name,))]
    return ALLOWED[max(candidates, key=len)] if candidates else ()


@pytest.mark.parametrize(("module", "path"), list(modules()), ids=lambda value: value if isinstance(value, str) else "")
def test_each_module_imports_only_what_its_layer_may(module: str, path: Path) -> None:
    if module == "engine":
        return
    ours = {name for name in imports(path) if is_within(name, PACKAGES)}
    forbidden = {name for name in ours if not is_within(name, rule_for(module))}
    assert not forbidden, f"{module} may import {rule_for(module)}"


@pytest.mark.parametrize(("module", "path"), list(modules()), ids=lambda value: value if isinstance(value, str) else "")
def test_the_light_parts_never_import_torch(module: str, path: Path) -> None:
    if is_within(module, FREE_OF_HEAVY):
        assert not {name for name in imports(path) if is_within(name, HEAVY)}


def test_the_core_imports_only_plain_parts_of_the_standard_library() -> None:
    plain = {"array", "bisect", "collections", "dataclasses", "enum", "heapq", "typing"}
    for module, path in modules():
        if is_within(module, ("engine.core",)):
            foreign = {name.split(".")[0] for name in imports(path)} - plain - {"engine"}
            assert not foreign, module
