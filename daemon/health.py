"""Is the daemon alive? One answer, for the probe, the service manager's watchdog and its status line."""

from daemon.service import Service
from daemon.supervisor import EngineState


def unhealthy_reason(service: Service) -> str:
    """Why it should be replaced: no engine can be had, or work waits and nothing moves; "" while all goes on."""
    if service.engine.supervisor.state is EngineState.FAILED:
        return "the engine cannot be kept alive"
    stalled_seconds = service.engine.progress.stalled_seconds
    if stalled_seconds > service.config.stall_timeout:
        return f"work waits and no step has ended for {stalled_seconds:.0f} s"
    return ""
