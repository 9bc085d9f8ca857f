"""What can keep a measurement from being made; errors of single requests are results and are kept with them."""

from engine.core.errors import EngineError


class BenchError(EngineError):
    """The measurement cannot be made. `exit_code` is what the command ends with."""

    exit_code = 1


class UnusableOption(BenchError):
    """An option, or two of them together, cannot be used; the message says what to give instead."""

    exit_code = 2


class NoServer(BenchError):
    """Nothing that speaks the API answers at the address."""
