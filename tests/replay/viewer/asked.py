"""Questions to the viewer without HTTP."""

from typing import Any

from replay.viewer.answers import answers
from replay.viewer.framing import Array, unframed
from replay.viewer.parameters import Parameters
from replay.viewer.viewed import Viewed


def ask(viewed: Viewed, route: str, **parameters: Any) -> Any:
    return answers()[route](viewed, Parameters({name.rstrip("_"): str(value) for name, value in parameters.items()}))


def ask_binary(viewed: Viewed, route: str, **parameters: Any) -> tuple[dict[str, Any], dict[str, Array]]:
    return unframed(ask(viewed, route, **parameters))


def ask_step(viewed: Viewed, step: int) -> Any:
    return ask(viewed, "step/{life}/{step}", life=1, step=step)


def ask_request(viewed: Viewed, number: int, **parameters: Any) -> Any:
    return ask(viewed, "request/{life}/{number}", life=1, number=number, **parameters)
