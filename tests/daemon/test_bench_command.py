"""`reprise bench` as it is typed, against servers on real sockets."""

import io
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from aiohttp import web

from daemon.__main__ import main as reprise
from daemon.bench.__main__ import main
from daemon.bench.bandwidth import BandwidthProbe
from daemon.bench.progress import ProgressBar
from engine.clock import ManualClock, SystemClock
from tests.daemon.bench_server import BenchServer, Exchange, tokens_of, whole_answer


def bench(*arguments: str | int | Path) -> int:
    return main([*map(str, arguments)])


def test_a_measurement_is_a_table_a_json_and_a_file_of_answers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result, answers = tmp_path / "result.json", tmp_path / "answers.jsonl"
    with BenchServer() as server:
        assert bench("W2", "--url", f"{server.url}/v1/", "--requests", 5, "--json", result, "--save", answers) == 0
        url = server.url
    table = capsys.readouterr().out
    assert "W2: closed loop, 16 clients, 5 requests; 1 round" in table
    assert f"A: {url}  a-model" in table
    assert len(server.warmups) == 1
    assert {(body["model"], body["ignore_eos"]) for body in server.bodies} == {("a-model", True)}
    num_tokens = sum(body["max_tokens"] for body in server.bodies)
    values = json.loads(result.read_text("utf-8"))
    (one,) = values["rounds"]
    assert one["figures"]["num_output_tokens"] == num_tokens
    assert one["output_tokens_counted_by"] == {"usage": 5}
    assert one["bandwidth_before"]["all_gb_s"] > 0
    assert values["figures"]["A"]["output_tokens_per_s"]["median"] == one["figures"]["output_tokens_per_s"]
    assert (values["workload"], values["seed"], values["endpoints"]["A"]["url"]) == ("W2", 1, url)
    lines = [json.loads(line) for line in answers.read_text("utf-8").splitlines()]
    assert [(line["side"], line["drive"], line["index"]) for line in lines] == [("A", "1", i) for i in range(5)]
    assert sum(line["usage"]["num_output_tokens"] for line in lines) == num_tokens


def test_the_verb_of_reprise_is_the_same_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert reprise(["bench", "W1", "--url", "nowhere"]) == 2
    assert "reprise bench: 'nowhere' is no address of a server" in capsys.readouterr().err


def test_two_servers_are_driven_in_turn_and_asked_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    log: list[str] = []
    with BenchServer(name="A", log=log) as first, BenchServer(name="B", log=log) as second:
        code = bench(
            "W2",
            "--url",
            first.url,
            "--against",
            second.url,
            "--requests",
            3,
            "--rounds",
            2,
            "--json",
            "-",
            "--warmup",
            0,
        )
    assert code == 0
    assert "".join(log) == "AAABBBAAABBB"
    prompts = [[body["prompt"] for body in server.bodies] for server in (first, second)]
    assert sorted(prompts[0]) == sorted(prompts[1])
    assert len(set(prompts[0])) == 6  # other words in each round
    values = json.loads(capsys.readouterr().out)
    assert [(one["side"], one["round"]) for one in values["rounds"]] == [("A", 1), ("B", 1), ("A", 2), ("B", 2)]
    rates = [one["figures"]["output_tokens_per_s"] for one in values["rounds"]]
    ratio = values["ratios"]["output_tokens_per_s"]
    assert sorted([rates[0] / rates[1], rates[2] / rates[3]]) == [ratio["min"], ratio["max"]]
    assert "wall_s" not in values["ratios"]


def test_a_server_against_itself_is_never_asked_the_same_twice() -> None:
    with BenchServer() as server:
        bench("W2", "--url", server.url, "--against", server.url, "--requests", 3, "--rounds", 1)
    assert len({body["prompt"] for body in server.bodies}) == 6
    assert len({body["prompt"] for body in server.warmups}) == 2


def test_no_line_of_a_report_is_wider_than_120_columns(capsys: pytest.CaptureFixture[str]) -> None:
    async def refuse(exchange: Exchange) -> web.StreamResponse:
        if exchange.number % 2:
            return await whole_answer(exchange)
        return web.Response(status=500, text="x" * 1000)

    with BenchServer(refuse, models=("m" * 200,)) as first, BenchServer() as second:
        bench("W3", "--url", first.url, "--against", second.url, "--concurrency", 4, "--requests", 6, "--rounds", 2)
        bench("drift", "--url", first.url, "--requests", 4)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 40
    assert max(map(len, lines)) == 120


def test_failed_requests_are_counted_and_named(capsys: pytest.CaptureFixture[str]) -> None:
    async def refuse_some(exchange: Exchange) -> web.StreamResponse:
        if exchange.number in (1, 2):
            return web.Response(status=429, text="slow down")
        return await whole_answer(exchange)

    with BenchServer(refuse_some) as server:
        assert bench("W2", "--url", server.url, "--requests", 4, "--concurrency", 1) == 0
    out = capsys.readouterr().out
    assert "A: 2 × HTTP 429: slow down" in out
    assert ["requests", "that", "failed", "2"] in [line.split() for line in out.splitlines()]


def test_a_server_without_a_whole_answer_ends_the_command_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    async def refuse(exchange: Exchange) -> web.Response:
        return web.Response(status=500, text="no")

    with BenchServer(refuse) as server:
        assert bench("W1", "--url", server.url, "--requests", 2) == 1
    assert "A: 2 × HTTP 500: no" in capsys.readouterr().out


def test_answers_that_depend_on_nothing_else_do_not_drift(capsys: pytest.CaptureFixture[str]) -> None:
    with BenchServer() as server:
        assert bench("drift", "--url", server.url, "--requests", 6, "--concurrency", 3) == 0
    out = capsys.readouterr().out
    assert "again against first  0 of 6 answers differ" in out
    assert "alone against first  0 of 6 answers differ" in out
    prompts = [body["prompt"] for body in server.bodies]
    assert sorted(prompts[:6]) == sorted(prompts[6:12]) == sorted(prompts[12:])
    assert server.num_live_at_arrival[12:] == [1] * 6


@pytest.mark.parametrize("with_ids", [True, False])
def test_an_answer_that_depends_on_its_company_is_found(with_ids: bool, tmp_path: Path) -> None:
    async def sway(exchange: Exchange) -> web.StreamResponse:
        """From its fourth token on, the answer tells whether it was asked for among the first six."""
        if not with_ids:
            exchange.body["return_token_ids"] = False
        await exchange.begin()
        salt = "company" if exchange.number < 12 else "alone"
        for position in range(exchange.body["max_tokens"]):
            token = 7 if position < 3 else len(salt)
            await exchange.token(f" w{token}", [token] if exchange.body["return_token_ids"] else None)
        await exchange.end(exchange.body["max_tokens"])
        return exchange.response

    with BenchServer(sway) as server:
        result = tmp_path / "drift.json"
        assert bench("drift", "--url", server.url, "--requests", 6, "--json", result) == 1
    again, alone = json.loads(result.read_text("utf-8"))["comparisons"]
    assert (again["num_differing"], alone["num_differing"], alone["num_compared"]) == (0, 6, 6)
    expected = {"position": 3, "unit": "token"} if with_ids else {"position": len(" w7 w7 w7 w"), "unit": "character"}
    assert alone["differences"] == [{"index": index, **expected} for index in range(6)]


def test_drift_is_not_denied_where_answers_failed(capsys: pytest.CaptureFixture[str]) -> None:
    async def fail_once(exchange: Exchange) -> web.StreamResponse:
        return await tokens_of(exchange, "") if exchange.number != 5 else exchange.response

    with BenchServer(fail_once) as server:
        assert bench("drift", "--url", server.url, "--requests", 4) == 1
    assert "0 of 3 answers differ; 1 not compared, as they failed" in capsys.readouterr().out


def test_the_key_and_further_fields_go_along_and_a_null_takes_one_away() -> None:
    extra = json.dumps({"top_k": 5, "stream_options": None, "temperature": 0.5})
    with BenchServer(api_key="k1", models=("one", "two")) as server:
        arguments = ["W1", "--url", server.url, "--api-key", "k1", "--model", "two", "--requests", "1", "--warmup", "0"]
        assert bench(*arguments, "--extra", extra, "--no-ignore-eos", "--prompt", "chat") == 0
    (body,) = server.bodies
    assert (body["model"], body["top_k"], body["temperature"]) == ("two", 5, 0.5)
    assert not {"stream_options", "ignore_eos", "prompt"} & body.keys()
    assert [message["role"] for message in body["messages"]] == ["user"]


def test_tokens_counted_by_chunks_are_said_to_be(capsys: pytest.CaptureFixture[str]) -> None:
    with BenchServer() as server:
        bench("W1", "--url", server.url, "--requests", 1, "--extra", '{"stream_options": null}')
    assert "A: 1 answers came without usage or token ids: a chunk counts as a token" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["W1", "--url", "localhost:8000"], 2, "'localhost:8000' is no address of a server"),
        (["W2", "--concurrency", "4", "--rate", "2"], 2, "--concurrency makes a closed loop"),
        (["W2", "--duration", "4"], 2, "--duration is for an open loop, which W2 is not by itself: add --rate"),
        (["W3", "--requests", "4", "--duration", "4"], 2, "both say when arrivals end"),
        (["W3", "--rate", "0.001", "--duration", "0.1"], 2, "no request comes in this load"),
        (["drift", "--against", "http://h"], 2, "--against does not go with drift"),
        (["W1", "--against-model", "m"], 2, "--against-model is about a second server"),
        (["W1", "--json", "/nowhere/x.json"], 2, "--json /nowhere/x.json: No such file or directory"),
        (["W1", "--save", "/nowhere/x.jsonl"], 2, "--save /nowhere/x.jsonl: No such file or directory"),
        (["W1", "--url", "http://127.0.0.1:1"], 1, "no server answers at http://127.0.0.1:1 (Connection refused)"),
    ],
)
def test_what_cannot_be_measured_is_said(
    arguments: Sequence[str], code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench(*arguments) == code
    printed = capsys.readouterr()
    assert message in printed.err
    assert printed.out == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["W9"], "invalid choice: 'W9'"),
        (["W1", "--requests", "0"], "argument --requests: '0' is no whole number from 1 on"),
        (["W1", "--warmup", "x"], "argument --warmup: 'x' is no whole number from 0 on"),
        (["W1", "--rate", "nan"], "argument --rate: 'nan' is no number above 0"),
        (["W1", "--timeout", "inf"], "argument --timeout: 'inf' is no number above 0"),
        (["W1", "--id-range", "9-5"], "argument --id-range: '9-5' is no range of token ids"),
        (["W1", "--extra", "{"], "argument --extra: '{' is no JSON"),
        (["W1", "--extra", "[1]"], "argument --extra: '[1]' is no JSON object"),
    ],
)
def test_a_value_that_is_none_is_refused_with_its_option(
    arguments: Sequence[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        bench(*arguments)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_a_server_that_does_not_name_one_model_is_asked_for_it(capsys: pytest.CaptureFixture[str]) -> None:
    with (
        BenchServer(models=("one", "two")) as several,
        BenchServer(models=()) as none,
        BenchServer(api_key="k") as locked,
    ):
        assert [bench("W1", "--url", server.url) for server in (several, none, locked)] == [2, 2, 2]
    first, second, third = capsys.readouterr().err.splitlines()
    assert first.endswith("lists 2 models (one, two): name one with --model")
    assert second.endswith("lists none (HTTP 200): name one with --model")
    assert third.endswith("answered HTTP 401: give the server's key with --api-key")


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_bar_is_shown_on_a_terminal_and_wiped(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal, clock = _Terminal(), ManualClock()
    monkeypatch.setattr(sys, "stderr", terminal)
    with ProgressBar("W2 A 1", 4, clock) as bar:
        for _ in range(2):
            clock.advance(1_000_000_000)
            bar.advance()
    assert "2 of 4, 2 s" in terminal.getvalue()
    assert terminal.getvalue().endswith("\r\x1b[K")


def test_nothing_is_shown_where_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    with ProgressBar("W2 A 1", 4, ManualClock()) as bar:
        bar.advance()
    assert stream.getvalue() == ""


def test_memory_is_not_read_faster_by_one_core_than_it_can_be() -> None:
    found = BandwidthProbe(SystemClock()).probe()
    assert 0.1 < found.one_gb_s < 10_000
    assert 0.1 < found.all_gb_s < 10_000


def test_every_option_has_a_help_that_fits(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        bench("--help")
    assert ended.value.code == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 120
    assert "W3     short chats and 8 % prompts of 1,000 tokens (open loop, Poisson, 4.5 requests/s, for 60 s)" in out
