"""What a backend has to say to an operator, said in the log."""

from engine.log import Logger
from kernels.backend import Backend
from kernels.device_backend import DeviceBackend

log = Logger(__name__)


def tell(backend: Backend) -> None:
    """Each notice once."""
    while isinstance(backend, DeviceBackend) and backend.notices:
        log.warning(backend.notices.pop(0))
