"""What every part of the run on a GPU stands on: the model, the backend, a folder, and sizes.

A dry run has a tiny model, tiny sizes and triton's interpreter: it proves the parts themselves, and no number of it
means anything. The model of a real one is the file or folder that REPRISE_GPU_MODEL names, or the default model where
it lies in the cache. Nothing is fetched: else one of its shape with random weights is made (`made_models.py`), and
every part that uses it says so.
"""

import json
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from engine.clock import SystemClock
from engine.text.embedded_models import EMBEDDED_MODELS
from engine.text.model_cache import is_intact, models_folder
from engine.text.model_source import DEFAULT_MODEL, ModelSource, resolve_model
from engine.text.text_model import TextModel, load_text_model
from kernels.decoder import DecoderParameters, DecoderShape

if TYPE_CHECKING:  # a part that needs no device loads neither torch nor triton
    import torch

    from kernels.cuda.backend import CudaBackend

MODEL_VARIABLE = "REPRISE_GPU_MODEL"
TINY = DecoderShape(1, 64, 64, 4, 2, 16, 60, 1e-5)


class Outcome(NamedTuple):
    """
    holds     what the part is there to show is so
    said      lines for people, the first of them for the table
    figures   for programs
    """

    holds: bool
    said: list[str]
    figures: dict[str, Any]


@dataclass(frozen=True)
class Stage:
    """
    folder     for whatever a part writes
    is_quick   a run of four minutes: fewer sizes
    answer     where an Outcome is kept; None: nowhere
    """

    is_dry: bool
    folder: Path
    is_quick: bool = False
    answer: Path | None = None

    @cached_property
    def device(self) -> "torch.device":
        from kernels.cuda.launch import INTERPRETED, device

        assert self.is_dry == INTERPRETED, "a dry run needs TRITON_INTERPRET=1, a real one must not have it"
        if self.is_dry:
            from tests.interpreter_speed import replace_once

            replace_once()
        return device()

    @cached_property
    def source(self) -> ModelSource | None:
        """None where no model is at hand."""
        if named := os.environ.get(MODEL_VARIABLE):
            return resolve_model(named)
        default = EMBEDDED_MODELS[DEFAULT_MODEL]
        return resolve_model(DEFAULT_MODEL) if is_intact(models_folder() / default.file_name, default) else None

    @property
    def model_name(self) -> str:
        if self.is_dry:
            return "a tiny model"
        return self.source.name if self.source else f"random weights of {DEFAULT_MODEL}'s shape"

    @cached_property
    def parameters(self) -> DecoderParameters:
        if self.is_dry:
            from tests.kernels.tiny_models import random_parameters

            return random_parameters("Q8_0", TINY)
        if self.source is None:
            from tests.gpu.made_models import made_parameters

            return made_parameters()
        from engine.execution.weights.load import load_model

        return load_model(self.source).parameters

    @cached_property
    def text_model(self) -> TextModel:
        if self.is_dry or self.source is None:
            from tests.gpu.made_models import made_text_model

            return made_text_model(self.parameters.shape.vocab_size)
        return load_text_model(self.source, encodes=False)

    def backend(self, dtype: str = "auto", max_positions: int = 4096) -> "CudaBackend":
        """Loaded."""
        assert self.device
        from kernels.cuda.backend import CudaBackend

        backend = CudaBackend(dtype)
        backend.load(self.parameters, 64 if self.is_dry else max_positions)
        return backend

    def size(self, real: int, dry: int, quick: int | None = None) -> int:
        if self.is_dry:
            return dry
        return real if quick is None or not self.is_quick else quick

    def keep(self, outcome: Outcome) -> None:
        """What is known so far: it stays should the part be ended before it is through."""
        if self.answer:
            written = self.answer.with_suffix(".new")
            written.write_text(json.dumps(outcome._asdict()), "utf-8")
            written.replace(self.answer)


def now_ns() -> int:
    return SystemClock().now_ns()
