"""The recorded model, made ready to run again.

What a model needs is imported when one is opened: torch, too, where the recorded backend is the reference.
"""

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, NamedTuple

from engine.clock import SystemClock
from engine.config import EngineConfig
from engine.core.limits import Limits
from engine.execution.interface import Runner
from engine.text.model_source import ModelSource, resolve_model
from recorder.header import Header
from replay.refusal import CannotCompare


class Overrides(NamedTuple):
    """What the user puts in place of the recorded choices: None keeps them.

    model     name or path where the same weights lie now
    backend   another backend: another numerics class
    """

    model: str | None = None
    backend: str | None = None


class OpenedRunner(NamedTuple):
    """A runner with an empty KV store, and what its numbers depend on.

    environment   as a recording's header would hold it
    """

    runner: Runner
    numerics_class: str
    environment: dict[str, Any]


OpenRunner = Callable[[Header, Overrides], OpenedRunner]


def open_recorded_model(header: Header, overrides: Overrides) -> OpenedRunner:
    """The runner that the recorded engine was served by, built anew with the recording's limits and digest key.

    Raises CannotCompare when the weights are not the recorded ones; ModelError and EngineError when they cannot be
    loaded here.
    """
    config = _recorded_config(header, overrides)
    source = resolve_model(config.model)
    _require_recorded_weights(header, source)
    from engine.execution.build import build_runner

    limits = Limits.from_dict(header.limits)
    built = build_runner(config, header.salt, SystemClock(), source, limits)
    return OpenedRunner(built.runner, str(built.info["numerics_class"]), built.info)


def _recorded_config(header: Header, overrides: Overrides) -> EngineConfig:
    """The engine's options as recorded, with the backend that "auto" chose then; unknown ones are left out."""
    known = {item.name for item in fields(EngineConfig)}
    values = {name: value for name, value in header.config.items() if name in known}
    if overrides.model is not None:
        values["model"] = overrides.model
    if "model" not in values:
        raise CannotCompare("the recording's header names no model", "give it with --model")
    config = EngineConfig(**values)
    return replace(config, backend=overrides.backend or header.environment.get("backend", config.backend))


def _require_recorded_weights(header: Header, source: ModelSource) -> None:
    recorded = header.environment.get("model_sha256")
    if recorded != source.sha256:
        raise CannotCompare(
            f"{source.path} holds other weights than were recorded: sha256 {source.sha256}, recorded {recorded}",
            "give the path of the recorded model with --model",
        )
