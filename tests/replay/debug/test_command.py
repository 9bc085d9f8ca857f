"""`reprise debug` on the command line: scripts, exit codes, words for what cannot be; and the interactive line."""

import io
import json
from pathlib import Path

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from engine.core.decisions import StepPlanned
from recorder.reader import Recording
from replay.__main__ import main
from replay.debug.command import commands_of
from replay.debug.commands import COMMANDS
from replay.debug.expressions import NAMES, Names
from replay.debug.prompt import Completions, converse
from replay.debug.session import Session
from replay.time_machine.time_machine import TimeMachine
from tests.replay.recorded_runs import changed_decision, rewrite


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPRISE_CACHE", str(tmp_path_factory.getbasetemp() / "debug-cache"))


@pytest.fixture(scope="module")
def session(recording: Path, tmp_path_factory: pytest.TempPathFactory) -> Session:
    machine = TimeMachine(recording, tmp_path_factory.mktemp("index"))
    return Session(machine, machine.at_step(40))


def debug(*arguments: object) -> int:
    return main(["debug", *map(str, arguments)])


def test_a_script_is_answered_line_by_line(recording: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert debug(recording, "--from", "30", "--command", "next; back 2", "--command", "why req-7") == 0
    out = capsys.readouterr().out.splitlines()
    assert [line for line in out if line.startswith("> ")] == ["> next", "> back 2", "> why req-7"]
    assert out[1].startswith("step 31, sequence ")
    assert out[3].startswith("step 29, sequence ")
    assert "req-7" in out[5]


def test_commands_come_from_stdin_too(
    recording: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "sys.stdin", io.StringIO("# a comment; with a semicolon\ngoto 10; running\n\nquit\ngoto 99999\n")
    )
    assert debug(recording, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert [answer["command"] for answer in told["answers"]] == ["goto 10", "running", "quit"]
    assert (told["result"], told["answers"][0]["step"]) == ("answered", 10)


def test_semicolons_in_quotes_part_nothing() -> None:
    assert list(commands_of(["until ';' in kinds; n", '; b "a;b" '])) == ["until ';' in kinds", "n", 'b "a;b"']


@pytest.mark.parametrize(
    ("command", "code", "told"),
    [
        ("until False", 1, "does not stop before the recording's end"),
        ("goto 99999", 2, "step 99999 is not in the recording"),
        ("goto soon", 2, "'soon' is not a step"),
        ("goto 7:1", 2, "none of number 7"),
        ("back 1000", 2, "there are no 1000 steps before this place"),
        ("until step >", 2, "is no Python expression"),
        ("until steps > 3", 2, "NameError"),
        ("continue", 2, "nothing would make it stop"),
        ("watch cat", 2, "'cat' cannot be watched"),
        ("watch block 4000; next", 2, "there is no block 4000"),
        ("block 4000", 2, "there is no block 4000"),
        ("why nobody", 2, "no request 'nobody' is in this recording"),
        ("delete 3", 2, "there is no break or watch 3"),
        ("frobnicate", 2, "there is no command 'frobnicate'"),
    ],
)
def test_what_cannot_be_is_said_with_the_remedy(
    command: str, code: int, told: str, recording: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert debug(recording, "--command", f"goto 20; {command}; goto 1") == code
    captured = capsys.readouterr()
    assert told in captured.err
    assert "remedy: " in captured.err
    assert "> goto 1\n" not in captured.out  # a script ends there


def test_a_failed_command_is_told_in_json_too(recording: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert debug(recording, "--json", "--command", "goto 5; until False") == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["result"], told["exit_code"], len(told["answers"])) == ("not_met", 1, 1)
    assert told["reason"]
    assert told["remedy"]


def test_decisions_that_are_not_the_recorded_ones_end_the_way(
    recording: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entries = list(Recording.open(recording).entries())
    changed, sequence, _index = changed_decision(
        entries, StepPlanned, lambda plan: plan._replace(num_waiting=plan.num_waiting + 1), occurrence=30
    )
    path = rewrite(recording, tmp_path / "changed", lambda _: changed)
    assert debug(path, "--command", "goto 29; next; goto 31") == 1
    assert f"at sequence {sequence} the core decides otherwise than recorded" in capsys.readouterr().err


def test_a_broken_invariant_stops_the_way(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    session.ask("goto 20")
    session.ask("break invariant")
    checked: list[int] = []

    def lose_a_block(core: object) -> None:
        checked.append(1)
        assert len(checked) < 9, "a block is lost or in two places"

    monkeypatch.setattr("engine.core.scheduler.Core.check_invariants", lose_a_block)
    here = session.state.sequence
    answer = session.ask("continue")
    assert answer.values["stopped_by"] == "invariant broken: a block is lost or in two places"
    assert answer.values["sequence"] > here
    session.ask("delete 1")


def test_a_break_stops_where_its_condition_begins_to_hold(session: Session) -> None:
    session.ask("goto start")
    number = session.ask("break num_running >= 3").values["number"]
    session.ask("continue")
    first = session.state.sequence
    assert len(session.state.running) == 3
    session.ask("continue")
    session.ask("reverse-continue")
    assert session.state.sequence == first
    session.ask(f"delete {number}")


def test_every_documented_name_can_be_used(session: Session) -> None:
    session.ask("goto 40")
    names = Names(session.state)
    assert {name: names[name] for name in NAMES}.keys() == NAMES.keys()
    assert session.ask(
        "until request('req-1').status is None and request('nobody').tenant is None and references(0) == len(owners(0))"
    )


def test_every_command_has_its_help(session: Session) -> None:
    for name, command in COMMANDS.items():
        assert session.ask(f"help {name}").values == {name: command.meaning}
        assert command.usage.startswith(name)


def test_the_prompt_answers_and_stays_after_an_error(session: Session, capsys: pytest.CaptureFixture[str]) -> None:
    session.ask("goto 10")
    with create_pipe_input() as source:
        source.send_text("next\nfrobnicate\nback\nquit\n")
        assert converse(session, source, DummyOutput()) == 0
    session.is_over = False
    out = capsys.readouterr().out
    assert "there is no command 'frobnicate'" in out
    assert (out.count("step 11, "), session.state.step) == (1, 10)


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("rever", ["reverse-until", "reverse-continue"]),
        ("watch ", ["request", "block", "tenant"]),
        ("why req-1", ["req-1", "req-10", "req-11"]),
        ("watch request req-3", ["req-3", "req-30"]),
        ("until num_run", ["num_running"]),
        ("break inv", ["invariant"]),
        ("help wa", ["watch", "waiting"]),
        ("goto s", ["seq", "start"]),
    ],
)
def test_commands_and_names_are_completed(typed: str, offered: list[str], session: Session) -> None:
    found = [each.text for each in Completions(session).get_completions(Document(typed), CompleteEvent())]
    assert found
    assert set(offered) <= set(found)
    assert all(each.startswith(typed.split(" ")[-1]) for each in found)
