"""An operator's own policy: found by name, in charge of the core, and replayed only from the recorded source."""

from pathlib import Path

import pytest

from engine.core.errors import UnknownPolicy
from engine.core.limits import Limits
from engine.core.scheduler import Core
from engine.own_policy import POLICY_DIGEST, PolicyNotLoaded, load_own_policy, policy_factory
from recorder.header import Header
from replay.check import check
from replay.verdict import Outcome
from tests.engine.own_policies import Lifo
from tests.replay import recorded_runs
from tests.replay.recorded_runs import LIMITS, entries_of, mixed_load, record_run

NAME = "tests.engine.own_policies:Lifo"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("no_such_module:Lifo", "no_such_module cannot be imported"),
        ("tests.engine.own_policies:Fifo", "has no class Fifo"),
        ("tests.engine.own_policies:NoPolicy", "has no class NoPolicy derived from"),
    ],
)
def test_what_is_no_policy_is_refused_with_what_to_do(name: str, said: str) -> None:
    with pytest.raises(PolicyNotLoaded, match=said):
        load_own_policy(name)


def test_the_factory_knows_the_own_policy_beside_ours() -> None:
    make = policy_factory(load_own_policy(NAME))
    assert type(make(Limits(scheduling_policy=NAME))) is Lifo
    assert make(Limits(scheduling_policy="fair")).name == "fair"
    with pytest.raises(UnknownPolicy):
        make(Limits(scheduling_policy="other:Class"))
    with pytest.raises(UnknownPolicy):
        Core(Limits(scheduling_policy=NAME))


@pytest.fixture
def recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of a run under the own policy, with its digest in the header as the engine process writes it."""
    return record_under(tmp_path / "run", monkeypatch, load_own_policy(NAME).sha256)


def record_under(path: Path, monkeypatch: pytest.MonkeyPatch, digest: str) -> Path:
    limits = Limits(**{**LIMITS.to_dict(), "scheduling_policy": NAME})
    make = policy_factory(load_own_policy(NAME))

    def make_header(limits: Limits) -> Header:
        return Header(salt=recorded_runs.SALT, limits=limits.to_dict(), environment={POLICY_DIGEST: digest})

    monkeypatch.setattr(recorded_runs, "make_header", make_header)
    return record_run(path, mixed_load(24), limits=limits, make_core=lambda limits: Core(limits, make))


def test_a_recording_under_an_own_policy_is_checked_with_that_policy(recording: Path, tmp_path: Path) -> None:
    verdict = check(recording)
    assert verdict.outcome is Outcome.EQUAL, verdict.as_text()
    under_fcfs = record_run(tmp_path / "fcfs", mixed_load(24))
    assert [entry.decisions for entry in entries_of(recording)] != [entry.decisions for entry in entries_of(under_fcfs)]


def test_another_source_is_refused_in_advance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    verdict = check(record_under(tmp_path / "run", monkeypatch, "0" * 64))
    assert verdict.outcome is Outcome.CANNOT_COMPARE
    assert verdict.figures["entries"] == 0
    assert "of source 0000000000000000, here its source is" in str(verdict.refusal)


def test_a_policy_that_is_not_here_is_refused_in_advance(recording: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("tests.engine.own_policies.Lifo")
    verdict = check(recording)
    assert verdict.outcome is Outcome.CANNOT_COMPARE
    assert "has no class Lifo" in str(verdict.refusal)
