"""The recorded model, made ready to run again. Everything that imports torch is imported here, when it is needed."""

from collections.abc import Callable
from dataclasses import fields
from typing import Any, NamedTuple

from engine.config import EngineConfig
from engine.execution.interface import Runner
from engine.text.model_source import resolve_model
from recorder.header import Header
from replay.refusal import CannotCompare


class OpenedRunner(NamedTuple):
    """A runner with an empty KV store, and what its numbers depend on.

    environment   as the recording's header would hold it
    """

    runner: Runner
    numerics_class: str
    environment: dict[str, Any]


OpenRunner = Callable[[Header, str | None], OpenedRunner]  # header, and a model that overrides the recorded name


def recorded_config(header: Header) -> EngineConfig:
    """The engine's options as recorded; options of a newer version are left out."""
    known = {item.name for item in fields(EngineConfig)}
    values = {name: value for name, value in header.config.items() if name in known}
    if "model" not in values:
        raise CannotCompare("the recording's header names no model", "give it with --model")
    return EngineConfig(**values)


def open_recorded_model(header: Header, model: str | None) -> OpenedRunner:
    """The runner that the recorded engine was served by, built anew.

    Raises CannotCompare when the weights are not the recorded ones, ModelError when they cannot be loaded.
    """
    config = recorded_config(header)
    source = resolve_model(model or config.model)
    recorded_sha256 = header.environment.get("model_sha256")
    if recorded_sha256 != source.sha256:
        raise CannotCompare(
            f"the weights at {source.path} have sha256 {source.sha256}, recorded was {recorded_sha256}",
            "give the recorded model with --model",
        )
    raise CannotCompare("no runner for models is built into this version")
