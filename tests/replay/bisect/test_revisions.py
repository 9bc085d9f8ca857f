"""`reprise bisect --good --bad`: the git revision that brought a difference, judged by a command or by the verbs."""

import json
import shutil
import subprocess
from dataclasses import asdict
from pathlib import Path

import pytest

from engine.clock import SystemClock
from engine.config import EngineConfig
from engine.core.contents import RequestContents
from engine.core.sampling_params import SamplingParams
from engine.core.scheduler import Core
from engine.execution.build import build_runner
from engine.loop import EngineLoop
from engine.protocol import Arrive
from engine.text.model_source import DEFAULT_MODEL
from recorder.header import Header
from recorder.writer import Recorder
from replay.__main__ import main
from replay.bisect.revisions import Judgement, bisect_revisions, judge_by_command, judge_by_replay
from replay.refusal import CannotCompare
from tests.replay.recorded_runs import SALT, PlannedInbox, mixed_load, record_run

SOURCES = Path(__file__).parent.parent.parent.parent
PACKAGES = ("engine", "recorder", "replay", "kernels")


class Repository:
    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir()
        self.git("init", "--quiet", "--initial-branch", "main")

    def git(self, *arguments: str) -> str:
        who = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")
        done = subprocess.run(["git", *who, *arguments], cwd=self.path, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def commit(self, subject: str) -> str:
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--message", subject)
        return self.git("rev-parse", "HEAD")


@pytest.fixture
def numbers(tmp_path: Path) -> tuple[Repository, list[str]]:
    """Eight revisions whose file counts up: 1 … 8."""
    repository = Repository(tmp_path / "numbers")
    revisions = []
    for number in range(1, 9):
        (repository.path / "number").write_text(f"{number}\n")
        revisions.append(repository.commit(f"number {number}"))
    return repository, revisions


def test_a_command_judges_each_revision_as_git_bisect_run_has_it(
    numbers: tuple[Repository, list[str]], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    repository, revisions = numbers
    command = 'test "$(cat number)" -lt 6'
    arguments = ["bisect", str(tmp_path / "no-recording"), "--good", revisions[0], "--bad", "main"]
    code = main([*arguments, "--repo", str(repository.path), "--command", command, "--json"])
    assert code == 1
    values = json.loads(capsys.readouterr().out)
    assert values["first_bad"] == revisions[5]
    assert values["subject"] == "number 6"
    assert len(values["tested"]) <= 2 + 3, "both ends, and three halvings of seven"
    assert {item["judgement"] for item in values["tested"]} == {"good", "bad"}


def test_revisions_that_cannot_be_judged_are_skipped(numbers: tuple[Repository, list[str]]) -> None:
    repository, revisions = numbers
    judge = judge_by_command("n=$(cat number); test $n = 4 && exit 125; test $n -lt 6")
    verdict = bisect_revisions(repository.path, revisions[0], "main", judge)
    assert verdict.first_bad == revisions[5]
    around = judge_by_command("n=$(cat number); test $n -gt 3 && test $n -lt 7 && exit 125; test $n -lt 6")
    undecided = bisect_revisions(repository.path, revisions[0], "main", around)
    assert undecided.exit_code == 2
    assert undecided.refusal is not None
    assert "only revisions that cannot be judged" in undecided.refusal.reason


def test_ends_that_are_not_what_they_are_said_to_be_are_refused(numbers: tuple[Repository, list[str]]) -> None:
    repository, revisions = numbers
    with pytest.raises(CannotCompare, match="is bad, not good"):
        bisect_revisions(repository.path, revisions[0], "main", judge_by_command("false"))
    with pytest.raises(CannotCompare, match="is good, not bad"):
        bisect_revisions(repository.path, revisions[0], "main", judge_by_command("true"))
    with pytest.raises(CannotCompare, match="git worktree failed"):
        bisect_revisions(repository.path, revisions[0], "no-such-revision", judge_by_command("true"))


def test_the_repository_is_left_as_it_was(numbers: tuple[Repository, list[str]]) -> None:
    repository, revisions = numbers
    (repository.path / "number").write_text("uncommitted\n")
    bisect_revisions(repository.path, revisions[0], "main", judge_by_command('test "$(cat number)" -lt 3'))
    assert (repository.path / "number").read_text() == "uncommitted\n"
    assert repository.git("rev-parse", "--abbrev-ref", "HEAD") == "main"
    assert len(repository.git("worktree", "list").splitlines()) == 1
    assert repository.git("for-each-ref", "refs/bisect") == ""


def _sources(path: Path) -> Repository:
    repository = Repository(path)
    for package in PACKAGES:
        ignored = shutil.ignore_patterns("__pycache__", "*.so")
        shutil.copytree(SOURCES / package, path / package, ignore=ignored)
    return repository


# Appended to a module, so that the tests do not depend on how it is written.
OTHER_DECISIONS = """

_handle = Core.handle


def _handle_otherwise(self, event, now_ns):
    decisions = _handle(self, event, now_ns)
    is_plan = lambda it: type(it).__name__ == "StepPlanned"
    return [it._replace(num_running=99) if is_plan(it) else it for it in decisions]


Core.handle = _handle_otherwise
"""
OTHER_NUMBERS = """

def add_watched(hidden, added, name, name_of_sum, watch):
    watch(name, added)
    hidden += added * (3.0 if name == "o" else 1.0)
    watch(name_of_sum, hidden)
"""


def _append(repository: Repository, file: str, text: str) -> None:
    with (repository.path / file).open("a", encoding="utf-8") as source:
        source.write(text)


def test_a_change_of_the_scheduler_is_found_by_checking_with_each_revision(tmp_path: Path) -> None:
    recording = record_run(tmp_path / "run", mixed_load(24), record_content=False)
    repository = _sources(tmp_path / "sources")
    revisions = [repository.commit("as recorded")]
    for number in range(4):
        if number == 2:
            _append(repository, "engine/core/scheduler.py", OTHER_DECISIONS)
        (repository.path / "note").write_text(str(number))
        revisions.append(repository.commit(f"change {number}"))
    judge = judge_by_replay(recording, executes=False)
    verdict = bisect_revisions(repository.path, revisions[0], "main", judge, builds=False)
    assert verdict.first_bad == revisions[3]
    assert verdict.subject == "change 2"
    assert all(judgement is not Judgement.SKIP for _, judgement, _ in verdict.tested), verdict.as_text()
    assert "check: DIVERGED (structural)" in verdict.as_text()


@pytest.mark.slow
def test_a_change_of_a_kernel_is_found_with_the_layer_and_operation(tmp_path: Path) -> None:
    """With the real model: each revision executes the recording, and the two on both sides of the change trace it."""
    recording = _real_recording(tmp_path / "run")
    repository = _sources(tmp_path / "sources")
    revisions = [repository.commit("as recorded")]
    for number in range(3):
        if number == 1:
            _append(repository, "kernels/reference_layer.py", OTHER_NUMBERS)
        (repository.path / "note").write_text(str(number))
        revisions.append(repository.commit(f"change {number}"))
    verdict = bisect_revisions(
        repository.path, revisions[0], "main", judge_by_replay(recording, executes=True), recording
    )
    assert verdict.first_bad == revisions[2], verdict.as_text()
    assert verdict.parting is not None, verdict.as_text()
    place = verdict.parting.place
    assert (place.step, place.position, place.layer, place.operation) == (0, 0, 0, "attention_residual")


def _real_recording(folder: Path) -> Path:
    config = EngineConfig(
        DEFAULT_MODEL, backend="reference", num_kv_blocks=16, max_model_len=64, max_num_seqs=2, record_content=True
    )
    clock = SystemClock()
    built = build_runner(config, SALT, clock)
    header = Header(salt=SALT, limits=built.limits.to_dict(), config=asdict(config), environment=built.info)
    recorder = Recorder(folder, header, clock, record_content=True, max_segment_bytes=1 << 26, sync_interval_ms=1000)
    loop = EngineLoop(Core(built.limits), built.runner, clock, recorder, lambda entry, outputs: None)
    sampling = SamplingParams(temperature=0.0, ignore_eos=True)
    arrivals = [
        (0, Arrive(number, f"req-{number}", "", 0, 0, 4, sampling, RequestContents(tuple(range(1000 + number, 1010)))))
        for number in range(2)
    ]
    recorder.close(loop.serve(PlannedInbox([*arrivals])))
    return folder
