"""A backend is chosen once, and its numerics class names what decides the bits."""

import os
import subprocess
import sys

import pytest

from kernels.cuda_driver import ask_driver
from kernels.dispatch import UnknownBackend, automatic, choose_backend, numerics_class
from kernels.numeric_environment import numeric_environment
from kernels.reference import ReferenceBackend
from tests.kernels.test_reference import SHAPE

WEIGHTS = "ab" * 32


def test_an_unknown_name_lists_what_there_is() -> None:
    with pytest.raises(UnknownBackend, match=r"backend 'gpu' is not known: choose auto or one of .*reference"):
        choose_backend("gpu", 1, "auto", SHAPE)


def test_the_reference_backend_can_be_asked_for() -> None:
    assert isinstance(choose_backend("reference", 1, "auto", SHAPE).backend, ReferenceBackend)


def test_without_a_device_cuda_says_what_is_missing_and_auto_does_not_ask_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    if not ask_driver().missing:
        pytest.skip("there is a device here")
    with pytest.raises(UnknownBackend, match=r"backend cuda cannot be used: no NVIDIA driver .*: install one"):
        choose_backend("cuda", 1, "auto", SHAPE)
    assert automatic() == ("cpu", "reference")


def test_cuda_knows_its_own_dtypes() -> None:
    with pytest.raises(UnknownBackend, match=r"backend cuda has no dtype 'float32': set one of auto, bfloat16, float8"):
        choose_backend("cuda", 1, "float32", SHAPE)


def test_a_numerics_class_begins_readably_and_is_the_same_for_the_same() -> None:
    name = numerics_class(ReferenceBackend(1), WEIGHTS)
    assert name.startswith("reference-float32-")
    assert name == numerics_class(ReferenceBackend(2), WEIGHTS)  # threads change no bit


def test_other_weights_or_another_source_are_another_class(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = ReferenceBackend(1)
    name = numerics_class(backend, WEIGHTS)
    assert numerics_class(backend, "cd" * 32) != name
    changed = backend.numerics() | {"sources": "edited"}
    monkeypatch.setattr(backend, "numerics", lambda: changed)
    assert numerics_class(backend, WEIGHTS) != name


def test_the_numeric_environment_was_set_before_torch() -> None:
    assert numeric_environment() == "MKL_CBWR=AVX2,STRICT"


def test_choosing_the_reference_backend_sets_it_and_nothing_before_imports_torch() -> None:
    program = """
import sys
from kernels.backend import DecoderShape
from kernels.dispatch import choose_backend
assert "torch" not in sys.modules
backend = choose_backend("reference", 1, "auto", DecoderShape(1, 8, 8, 1, 1, 8, 8, 1e-5)).backend
print(backend.numerics()["numeric_environment"])
"""
    environment = {name: value for name, value in os.environ.items() if name != "MKL_CBWR"}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == "MKL_CBWR=AVX2,STRICT"
