"""SIGHUP: the options are read again, and what can change while serving does: the scheduling policy with its parameters
and the queue's bounds (recorded, as PolicyChanged), the API keys, TLS, origins, patience in seconds, the log's level.
What cannot waits for the next start and is named. It must not know where options stand.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace

import structlog

from daemon.api_keys import ApiKeys
from daemon.config import DaemonConfig, flag_name
from daemon.config_sources import Configured
from daemon.errors import ApiError
from daemon.service import Service
from daemon.tls import read_tls, warn_of_expiry
from engine import log as engine_log
from engine.core.errors import EngineError
from engine.core.policies.change import CHANGEABLE

_OF_THE_DAEMON = (
    "api_key",
    "api_key_file",
    "tls_cert",
    "tls_key",
    "cors_origins",
    "queue_timeout",
    "drain_timeout",
    "stall_timeout",
    "keep_alive_interval",
    "log_level",
)
IN_FLIGHT = frozenset((*_OF_THE_DAEMON, "scheduling_policy", "priority_aging", *CHANGEABLE))

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Reloaded:
    """What a reload came to: options as flags are written.

    reason    why nothing has changed; "" where the options could be used
    changed   in force now; the files of keys and of TLS also where only their contents are others
    waiting   in force from the next start on
    """

    reason: str = ""
    changed: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()


async def reload(service: Service, read_again: Callable[[], Configured]) -> Reloaded:
    """Take over what has changed. Whatever is wrong with it is logged, and all stays as it was."""
    try:
        configured = read_again()
        keys = ApiKeys.configured(configured.config.api_key, configured.config.api_key_file)
        tls = read_tls(configured.config.tls_cert, configured.config.tls_key)
        await _change_policy(service, configured.config)
    except (EngineError, ApiError) as error:
        service.reloads["refused"] += 1
        log.error("the options cannot be reloaded, all stays as it was", reason=str(error))
        return Reloaded(str(error))
    before, after = service.config, configured.config
    differing = [each.name for each in fields(DaemonConfig) if getattr(before, each.name) != getattr(after, each.name)]
    changed = {name: getattr(after, name) for name in differing if name in IN_FLIGHT}
    told = {*changed, *(["api_key_file"] if keys != service.api_keys and "api_key" not in changed else [])}
    told |= {"tls_cert", "tls_key"} if tls != service.tls else set()
    service.reloads["done"] += 1
    service.api_keys, service.tls = keys, tls
    warn_of_expiry(tls, service.clock.wall_ns())
    service.config, service.configured = replace(before, **changed), configured
    engine_log.set_level(after.log_level)
    outcome = Reloaded("", _flags(told), _flags(name for name in differing if name not in IN_FLIGHT))
    if outcome.waiting:
        log.warning("changed, and in force from the next start on", options=list(outcome.waiting))
    log.info("reloaded", changed=list(outcome.changed), scheduling_policy=after.scheduling_policy)
    return outcome


async def _change_policy(service: Service, config: DaemonConfig) -> None:
    """Only where something differs: another policy begins to count anew."""
    before, after = (each.engine_config("").given_limits() for each in (service.config, config))
    parameters = tuple([(name, after[name]) for name in CHANGEABLE if after[name] != before[name]])
    if parameters or before["scheduling_policy"] != after["scheduling_policy"]:
        await service.engine.change_policy(config.scheduling_policy, parameters)


def _flags(names: Iterable[str]) -> tuple[str, ...]:
    chosen = frozenset(names)
    return tuple([flag_name(option) for option in fields(DaemonConfig) if option.name in chosen])
