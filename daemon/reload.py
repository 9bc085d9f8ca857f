"""SIGHUP: the options are read again, and what can change while serving does: the scheduling policy with its
parameters, and the API keys. What cannot waits for the next start and is named. It must not know where options stand.
"""

from collections.abc import Callable
from dataclasses import fields

import structlog

from daemon.api_keys import ApiKeys
from daemon.config import DaemonConfig, flag_name
from daemon.errors import ApiError
from daemon.service import Service
from engine.core.errors import EngineError
from engine.core.policies.change import POLICY_PARAMETERS

_RELOADED = frozenset(("scheduling_policy", "api_key", "api_key_file", "priority_aging", *POLICY_PARAMETERS))

log = structlog.get_logger(__name__)


async def reload(service: Service, read_again: Callable[[], DaemonConfig]) -> None:
    """Take over what has changed. Whatever is wrong with it is logged, and all stays as it was."""
    try:
        config = read_again()
        keys = ApiKeys.configured(config.api_key, config.api_key_file)
        await _change_policy(service, config)
    except (EngineError, ApiError) as error:
        log.error("the options cannot be reloaded, all stays as it was", reason=str(error))
        return
    service.api_keys = keys
    waiting = [option for option in fields(DaemonConfig) if _waits(option.name, service.config, config)]
    if waiting:
        log.warning("changed, and in force from the next start on", options=[flag_name(option) for option in waiting])
    service.reloaded = config
    log.info("reloaded", scheduling_policy=config.scheduling_policy)


async def _change_policy(service: Service, config: DaemonConfig) -> None:
    """Only where something differs: another policy begins to count anew."""
    before, after = (each.engine_config("").given_limits() for each in (service.reloaded, config))
    parameters = tuple([(name, after[name]) for name in POLICY_PARAMETERS if after[name] != before[name]])
    if parameters or before["scheduling_policy"] != after["scheduling_policy"]:
        await service.engine.change_policy(config.scheduling_policy, parameters)


def _waits(name: str, before: DaemonConfig, after: DaemonConfig) -> bool:
    return name not in _RELOADED and bool(getattr(before, name) != getattr(after, name))
