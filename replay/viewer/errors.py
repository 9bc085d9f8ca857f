"""What can be wrong with a question to the viewer, as its JSON body and status. It must not know aiohttp."""

from typing import Any

from engine.core.errors import EngineError


class BadQuestion(EngineError):
    """A parameter cannot be used, or names what is not in the recording.

    field    the parameter; "" when it is none of them
    status   400 for what cannot be meant, 404 for what is not there
    """

    def __init__(self, message: str, field: str = "", status: int = 400) -> None:
        super().__init__(message)
        self.field = field
        self.status = status

    def body(self) -> dict[str, Any]:
        return error_body(str(self), self.field)


def error_body(message: str, field: str = "") -> dict[str, Any]:
    return {"error": {"message": message, "field": field}}
