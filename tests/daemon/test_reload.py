"""New options while serving: the policy and the keys change at once, a mistake changes nothing."""

import asyncio
import hashlib
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import uvloop

from daemon.config_sources import Configured, InvalidOption
from daemon.reload import reload
from engine import log
from engine.core.events import PolicyChanged
from recorder.reader import Recording
from tests.daemon.served import Served, completion, serving


def tell(story: Callable[[Served], Coroutine[Any, Any, None]], record_dir: Path, **options: Any) -> list[PolicyChanged]:
    """The changes of policy that were recorded meanwhile."""

    async def told() -> None:
        async with serving(record_dir, **options) as served:
            await story(served)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(told())
    events = [entry.event for entry in Recording.open(record_dir).entries()]
    return [event for event in events if isinstance(event, PolicyChanged)]


def test_another_policy_and_its_parameters_are_in_force_at_once_and_recorded(tmp_path: Path) -> None:
    async def story(served: Served) -> None:
        options = served.service.config
        wanted = replace(options, scheduling_policy="fair", tenant_weights=(("chat", 3),))
        await reload(served.service, lambda: Configured(wanted))
        assert served.service.engine.policy == "fair"
        await reload(served.service, lambda: Configured(wanted))  # nothing has changed: what it has counted stays
        await reload(served.service, lambda: Configured(replace(wanted, priority_aging=3.0)))

    changes = tell(story, tmp_path / "run")
    assert [change.policy for change in changes] == ["fair", "fair"]
    assert dict(changes[0].parameters) == {"tenant_weights": (("chat", 3),)}
    assert dict(changes[1].parameters) == {"priority_aging_ns": 3_000_000_000}


def test_keys_are_exchanged(tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"

    def write(key: str) -> None:
        path.write_text(f'[tenants.a]\nsha256 = ["{hashlib.sha256(key.encode()).hexdigest()}"]\n')

    async def story(served: Served) -> None:
        async def statuses() -> list[int]:
            headers = [{"Authorization": f"Bearer {key}"} for key in ("old", "new")]
            return [(await served.post("/v1/completions", completion(), headers=each))[0] for each in headers]

        assert await statuses() == [200, 401]
        write("new")
        assert (await reload(served.service, lambda: Configured(served.service.config))).changed == ("api-key-file",)
        assert (await reload(served.service, lambda: Configured(served.service.config))).changed == ()
        assert await statuses() == [401, 200]
        path.write_text("[tenants")
        await reload(served.service, lambda: Configured(served.service.config))
        assert await statuses() == [401, 200]

    write("old")
    assert tell(story, tmp_path / "run", api_key_file=str(path)) == []


def test_options_that_cannot_be_used_change_nothing(tmp_path: Path) -> None:
    def fail() -> Configured:
        raise InvalidOption("scheduling-policy in x.toml: 'lifo' cannot be used")

    async def story(served: Served) -> None:
        await reload(served.service, fail)
        await reload(
            served.service, lambda: Configured(replace(served.service.config, scheduling_policy="no_module:Policy"))
        )
        assert served.service.engine.policy == "fcfs"

    assert tell(story, tmp_path / "run") == []


def test_queue_bounds_patience_and_the_level_of_the_log_change_at_once_the_rest_is_named(tmp_path: Path) -> None:
    async def story(served: Served) -> None:
        service = served.service
        changes: dict[str, Any] = {
            "max_num_queued_reqs": 7,
            "queue_timeout": 3.0,
            "log_level": "error",
            "max_num_seqs": 5,
        }
        wanted = Configured(replace(service.config, **changes), {"queue_timeout": "file x"})
        outcome = await reload(service, lambda: wanted)
        assert outcome.changed == ("max-num-queued-reqs", "queue-timeout", "log-level")
        assert outcome.waiting == ("max-num-seqs",)
        assert (service.config.queue_timeout, service.config.max_num_seqs) == (3.0, 64)
        assert (await reload(service, lambda: wanted)).changed == ()
        async with served.session.get("/config") as response:
            options = (await response.json())["options"]
        assert options["queue-timeout"] == {"value": 3.0, "source": "file x", "in_flight": True}
        assert (options["max-num-seqs"]["value"], options["max-num-seqs"]["next_start"]) == (64, 5)

    try:
        (change,) = tell(story, tmp_path / "run")
    finally:
        log.set_level("info")
    assert (change.policy, dict(change.parameters)) == ("fcfs", {"max_num_queued_reqs": 7})
