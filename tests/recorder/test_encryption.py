"""Contents at rest: a key per tenant, erased by deleting it; nothing readable without, no record usable elsewhere."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from engine.clock import ManualClock
from engine.core.contents import RequestContents, TokenOutput
from engine.core.events import RequestArrived
from engine.core.sampling_params import SamplingParams
from engine.core.vocabulary import Entry
from recorder.errors import RecordingError
from recorder.keys import KeyRing, KeyUnusable, open_ring
from recorder.reader import Recording
from tests.recorder.samples import recorder, step_entry

MASTER = bytes(range(32))
CANARY = "END-canary-7731"


def ring(folder: Path, master: bytes = MASTER, clock: ManualClock | None = None) -> KeyRing:
    return KeyRing(folder / "keys", master, clock or ManualClock())


def write(folder: Path, keys: KeyRing) -> Path:
    """A run of two tenants whose rows share every step."""
    writer = recorder(folder / "run", record_content=True, keys=keys)
    for request, tenant in enumerate(("ada", "bob")):
        arrived = RequestArrived(request, f"r{request}", tenant, 0, 0, 3, 9, (), SamplingParams())
        writer.record(Entry(request, 0, arrived, ()))
        writer.record_contents(request, RequestContents((request, 70_000, 3), stop_strings=(CANARY,)))
    for step in range(5):
        writer.record_tokens(step, (TokenOutput(0, 100 + step, -0.5), TokenOutput(1, 200 + step, -0.5)))
        writer.record(step_entry(step + 2))
    writer.close("done")
    return folder / "run"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("REPRISE_VAULT_KEY", MASTER.hex())
    return tmp_path


def test_contents_come_back_with_the_key_and_are_nowhere_plain(folder: Path) -> None:
    run = write(folder, ring(folder))
    contents = Recording.open(run).contents()
    assert contents.prompts[1] == RequestContents((1, 70_000, 3), stop_strings=(CANARY,))
    assert (contents.outputs(0), contents.outputs(1)) == (list(range(100, 105)), list(range(200, 205)))
    assert sorted(contents.tokens[2]) == [(0, 102), (1, 202)]
    assert (contents.num_unreadable, contents.notices) == (0, [])
    for path in folder.rglob("*"):
        if path.is_file():
            assert CANARY.encode() not in path.read_bytes()
            assert MASTER not in path.read_bytes()
            assert path.stat().st_mode & 0o077 == 0


def test_deleting_a_tenants_key_erases_exactly_its_contents(folder: Path) -> None:
    run = write(folder, ring(folder))
    assert ring(folder).erase("ada") == 1
    contents = Recording.open(run).contents()
    assert list(contents.prompts) == [1]
    assert (contents.outputs(0), contents.outputs(1)) == ([], list(range(200, 205)))
    assert contents.num_unreadable == 6
    assert "6 records of contents cannot be read" in contents.notices[0]
    assert "it was erased" in contents.notices[0]
    assert ring(folder).erase("ada") == 0


def test_an_engine_under_way_takes_a_new_key_once_the_old_one_is_gone_or_old(folder: Path) -> None:
    clock = ManualClock(10**18)
    keys = ring(folder, clock=clock)
    first = keys.current("ada")
    assert keys.current("ada") == first
    assert keys.current("bob").key != first.key
    ring(folder).erase("ada")
    second = keys.current("ada")
    assert second.key_id != first.key_id
    clock.advance(31 * 86_400 * 10**9)
    third = keys.current("ada")
    assert third.key_id != second.key_id
    assert keys.find(second.key_id) == second, "what was written under it stays readable"
    clock.advance(1)
    assert keys.rotate("ada") == keys.current("ada") != third


def test_another_master_key_opens_nothing_until_the_keys_are_rewrapped(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = write(folder, ring(folder))
    other = b"\7" * 32
    monkeypatch.setenv("REPRISE_VAULT_KEY", other.hex())
    contents = Recording.open(run).contents()
    assert contents.prompts == {}
    assert contents.num_unreadable == 12
    assert "another master key" in contents.notices[0]
    assert ring(folder).rewrap(other) == 2
    assert Recording.open(run).contents().num_unreadable == 0


def test_a_changed_record_is_found_and_one_of_another_vault_is_not_accepted(folder: Path) -> None:
    from recorder.encryption import NotAuthentic, decrypter, encrypted

    keys = ring(folder)
    _kind, key_id, nonce, ciphertext = encrypted(keys, "ada", b"body", b"s" * 16, 3)
    assert decrypter(keys, b"s" * 16, 3)(key_id, nonce, ciphertext) == b"body"
    for salt, number, changed in (
        (b"s" * 16, 3, ciphertext[:-1] + bytes([ciphertext[-1] ^ 1])),
        (b"s" * 16, 4, ciphertext),
        (b"t" * 16, 3, ciphertext),
        (b"s" * 16, 3, b""),
    ):
        with pytest.raises(NotAuthentic):
            decrypter(keys, salt, number)(key_id, nonce, changed)


def test_the_master_key_comes_from_file_environment_credential_or_is_made(tmp_path: Path) -> None:
    clock, key_file, credentials = ManualClock(), tmp_path / "key", tmp_path / "credentials"
    key_file.write_bytes(MASTER)
    credentials.mkdir()
    (credentials / "reprise-vault-key").write_text(MASTER.hex() + "\n")
    made = open_ring(tmp_path / "made", clock, {}).current("ada")
    assert (tmp_path / "made" / "master").stat().st_mode & 0o777 == 0o600
    assert open_ring(tmp_path / "made", clock, {}).current("ada") == made
    for place in (
        open_ring(tmp_path / "given", clock, {}, str(key_file)),
        open_ring(tmp_path / "given", clock, {"REPRISE_VAULT_KEY": "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="}),
        open_ring(tmp_path / "given", clock, {"CREDENTIALS_DIRECTORY": str(credentials)}),
        open_ring(tmp_path / "elsewhere", clock, {"REPRISE_VAULT_KEYS": str(tmp_path / "given")}, str(key_file)),
    ):
        assert place.current("ada").key_id == open_ring(tmp_path / "given", clock, {}, str(key_file)).all()[0].key_id
    assert not (tmp_path / "given" / "master").exists()


def test_a_key_that_is_none_is_refused_without_being_shown(tmp_path: Path) -> None:
    with pytest.raises(KeyUnusable, match="REPRISE_VAULT_KEY holds no key") as refused:
        open_ring(tmp_path, ManualClock(), {"REPRISE_VAULT_KEY": "hunter2"})
    assert "hunter2" not in str(refused.value)
    (tmp_path / "0011223344556677.key").write_text("{}")
    keys = KeyRing(tmp_path, MASTER, ManualClock())
    with pytest.raises(RecordingError, match="no key file of ours"):
        keys.find(bytes.fromhex("0011223344556677"))
    assert "key=" not in repr(keys.current("ada"))


def test_reading_contents_leaves_an_audit_line(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run = write(folder, ring(folder))
    list(Recording.open(run).entries())
    assert capfd.readouterr().err == ""
    Recording.open(run).contents()
    line: dict[str, Any] = json.loads(capfd.readouterr().err)
    assert (line["event"], line["recording"], line["num_requests"]) == ("contents read", str(run), 2)
    assert (line["uid"], line["pid"]) == (os.getuid(), os.getpid())
