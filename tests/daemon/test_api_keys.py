"""Keys stand for tenants: who is let in, as whom, and what a key file that cannot be used is told."""

import asyncio
import hashlib
from pathlib import Path

import pytest
import uvloop

from daemon.api_keys import ApiKeys, Caller, InvalidKeyFile
from engine.core.events import RequestArrived
from recorder.reader import Recording
from tests.daemon.served import Served, completion, serving


def sha256(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def key_file(folder: Path, text: str) -> str:
    path = folder / "keys.toml"
    path.write_text(text)
    return str(path)


TWO_TENANTS = f"""
[tenants.chat]
sha256 = ["{sha256("old")}", "{sha256("new")}"]
priority = 3

[tenants.batch]
sha256 = ["{sha256("bulk")}"]
"""


def test_a_key_stands_for_its_tenant_and_class(tmp_path: Path) -> None:
    keys = ApiKeys.configured("one", key_file(tmp_path, TWO_TENANTS))
    assert keys.are_required
    assert keys.caller_of("old") == keys.caller_of("new") == Caller("chat", 3)
    assert keys.caller_of("bulk") == Caller("batch", 0)
    assert keys.caller_of("one") == Caller("default", 0, is_admin=True)
    assert keys.caller_of("") is keys.caller_of("chat") is keys.caller_of(sha256("old")) is None


def test_without_keys_everybody_is_the_default_tenant() -> None:
    keys = ApiKeys.configured("", "")
    assert not keys.are_required
    assert keys.caller_of("anything") == Caller("default", 0, is_admin=True)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("tenants = 3", r"must hold tables \[tenants.NAME\]"),
        ("[other]\nx = 1", r"must hold tables \[tenants.NAME\]"),
        ("[tenants.a]\nsha256 = []", "tenant a: sha256 must list 64 hexadecimal digits"),
        ('[tenants.a]\nsha256 = ["secret"]', "tenant a: sha256 must list 64 hexadecimal digits"),
        (f'[tenants."a b"]\nsha256 = ["{"0" * 64}"]', "a name is 1 to 64 letters"),
        (f'[tenants.a]\nsha256 = ["{"0" * 64}"]\npriority = 10', "priority must be a whole number from 0 to 9"),
        (f'[tenants.a]\nsha256 = ["{"0" * 64}"]\nweight = 2', "nothing else .there is weight"),
        (f'[tenants.a]\nsha256 = ["{"0" * 64}"]\nadmin = 1', "admin must be true or false"),
        (f'[tenants.a]\nsha256 = ["{"0" * 64}"]\ntokens_per_minute = -1', "tokens_per_minute must be a whole number"),
        (f'[tenants.a]\nsha256 = ["{"0" * 64}"]\n[tenants.b]\nsha256 = ["{"0" * 64}"]', "gives one key twice"),
        ("[tenants", "is not TOML"),
    ],
)
def test_a_file_that_cannot_be_used_says_where_and_what_to_do(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(InvalidKeyFile, match=told) as caught:
        ApiKeys.configured("", key_file(tmp_path, text))
    assert "secret" not in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidKeyFile, match=r"nowhere.toml cannot be read: No such file"):
        ApiKeys.configured("", str(tmp_path / "nowhere.toml"))


def test_the_engine_is_told_the_tenant_and_the_class_of_the_key(tmp_path: Path) -> None:
    async def ask(served: Served) -> None:
        for key, body in (("new", {}), ("bulk", {}), ("new", {"priority": 7})):
            headers = {"Authorization": f"Bearer {key}"}
            status, _ = await served.post("/v1/completions", completion(**body), headers=headers)
            assert status == 200
        status, answer = await served.post("/v1/completions", completion(), headers={"Authorization": "Bearer nobody"})
        assert (status, answer["error"]["code"]) == (401, "invalid_api_key")

    record_dir = tmp_path / "run"

    async def told() -> None:
        async with serving(record_dir, api_key_file=key_file(tmp_path, TWO_TENANTS)) as served:
            await ask(served)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(told())
    events = [entry.event for entry in Recording.open(record_dir).entries()]
    arrived = [(event.tenant, event.priority) for event in events if isinstance(event, RequestArrived)]
    assert arrived == [("chat", 3), ("batch", 0), ("chat", 7)]


def test_only_an_administrator_sees_the_configuration_and_no_secret_is_in_it(tmp_path: Path) -> None:
    file = key_file(tmp_path, TWO_TENANTS + f'[tenants.ops]\nsha256 = ["{sha256("CaNaRy-ops")}"]\nadmin = true\n')

    async def told() -> None:
        async with serving(api_key="CaNaRy-key", api_key_file=file) as served:
            for key, wanted in (("", 401), ("new", 403), ("CaNaRy-ops", 200), ("CaNaRy-key", 200)):
                headers = {"Authorization": f"Bearer {key}"}
                async with served.session.get("/config", headers=headers) as response:
                    text = await response.text()
                    assert response.status == wanted
                    assert "CaNaRy" not in text
                    assert sha256("CaNaRy-ops") not in text

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(told())
