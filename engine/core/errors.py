"""EngineError and its kinds: what others got wrong, with figures and remedy. Our own mistakes are assertions."""


class EngineError(Exception):
    """An error with a message that may be shown to a client or operator as it stands."""


class InvalidLimits(EngineError):
    """The bounds contradict each other, so no core can be built from them."""


class UnknownPolicy(EngineError):
    """No scheduling policy has this name."""

    def __init__(self, name: str, known: list[str]) -> None:
        super().__init__(f"scheduling policy {name!r} is not known: choose one of {', '.join(known)}")


class UnknownPhases(EngineError):
    """No way of mixing prefill and decode has this name."""

    def __init__(self, name: str, known: list[str]) -> None:
        super().__init__(f"scheduling phases {name!r} are not known: choose one of {', '.join(known)}")


class ModelError(EngineError):
    """The model files cannot be served: what is wrong with them, and what to do."""


class NonDeterministicCore(EngineError):
    """A recorded event does not fit the state it meets: the recording and the core disagree."""
