"""A tenant's bounds: so many requests at once, so many tokens a minute; more get 429 and are told when to come back."""

import asyncio
import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
import uvloop

from daemon.api_keys import Caller
from daemon.call import Call
from daemon.errors import ApiError
from daemon.tenant_limits import TenantLimits
from engine.clock import ManualClock
from tests.daemon.served import Served, completion, serving

SECOND = 10**9


@dataclass
class Ending:
    """As much of a call as the accounts look at."""

    has_ended: bool = False
    num_tokens: int = 0

    def end(self, num_tokens: int) -> None:
        self.has_ended, self.num_tokens = True, num_tokens


@dataclass
class Tenant:
    caller: Caller
    clock: ManualClock = field(default_factory=ManualClock)

    def __post_init__(self) -> None:
        self._limits = TenantLimits(self.clock)

    def enter(self, num_tokens: int) -> Ending:
        call = Ending()
        self._limits.enter(self.caller, cast(Call, call), num_tokens)
        return call

    def refused(self, num_tokens: int) -> ApiError:
        with pytest.raises(ApiError) as raised:
            self.enter(num_tokens)
        assert raised.value.status == 429
        return raised.value


def test_as_many_requests_as_allowed_run_at_once() -> None:
    tenant = Tenant(Caller("a", max_concurrent_requests=2))
    first, _ = tenant.enter(10**9), tenant.enter(10**9)
    assert tenant.refused(1).retry_after_seconds == 1
    first.end(5)
    tenant.enter(1)
    assert tenant.refused(1).code == "too_many_requests"


def test_tokens_come_back_at_the_rate_and_what_was_not_used_at_once() -> None:
    tenant = Tenant(Caller("a", tokens_per_minute=600))
    call = tenant.enter(500)
    error = tenant.refused(200)
    assert (error.code, error.retry_after_seconds) == ("token_rate_exceeded", 10)
    tenant.clock.advance(10 * SECOND - 1)
    assert tenant.refused(200).retry_after_seconds == 1
    tenant.clock.advance(1)
    tenant.enter(200).end(200)
    call.end(100)  # 400 were not used
    tenant.enter(400)
    tenant.refused(1)


def test_the_bucket_holds_a_minute_and_no_more() -> None:
    tenant = Tenant(Caller("a", tokens_per_minute=600))
    tenant.clock.advance(3600 * SECOND)
    tenant.enter(600)
    assert tenant.refused(1).retry_after_seconds == 1


def test_a_request_larger_than_the_bucket_goes_when_that_is_full_and_is_paid_for() -> None:
    tenant = Tenant(Caller("a", tokens_per_minute=600))
    tenant.enter(1200)
    assert tenant.refused(600).retry_after_seconds == 120
    tenant.clock.advance(120 * SECOND)
    tenant.enter(600)


def test_another_rate_after_a_reload_begins_full_and_still_counts_what_runs() -> None:
    tenant = Tenant(Caller("a", max_concurrent_requests=1, tokens_per_minute=600))
    call = tenant.enter(600)
    tenant.caller = tenant.caller._replace(tokens_per_minute=60)
    assert tenant.refused(1).code == "too_many_requests"
    call.end(600)
    tenant.enter(60)


def test_a_key_without_bounds_has_none() -> None:
    tenant = Tenant(Caller("a"))
    for _ in range(100):
        tenant.enter(10**9)


def test_the_server_answers_429_with_the_time_to_wait_and_other_tenants_go_on(tmp_path: Path) -> None:
    digest = {name: hashlib.sha256(name.encode()).hexdigest() for name in ("few", "many")}
    file = tmp_path / "keys.toml"
    file.write_text(
        f'[tenants.few]\nsha256 = ["{digest["few"]}"]\ntokens_per_minute = 60\n'
        f'[tenants.many]\nsha256 = ["{digest["many"]}"]\n'
    )

    async def ask(served: Served, key: str, **fields: Any) -> tuple[int, str | None]:
        headers = {"Authorization": f"Bearer {key}"}
        async with served.session.post("/v1/completions", json=completion(**fields), headers=headers) as response:
            return response.status, response.headers.get("Retry-After")

    async def told() -> None:
        async with serving(api_key_file=str(file)) as served:
            assert (await ask(served, "few", max_tokens=57))[0] == 200
            status, retry_after = await ask(served, "few", max_tokens=57)
            assert status == 429
            assert 1 <= int(retry_after or 0) <= 60
            assert (await ask(served, "many", max_tokens=57))[0] == 200

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(told())
