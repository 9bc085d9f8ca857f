"""`--html`: one file with everything in it, that says what is not, and lets nothing out or in."""

import base64
import gzip
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

from engine.clock import SystemClock
from replay.__main__ import main
from replay.viewer.embedding import Embedded
from replay.viewer.framing import unframed
from replay.viewer.packing import unpacked
from replay.viewer.single_file import one_page, write_page
from replay.viewer.viewed import Viewed
from tests.replay.recorded_runs import mixed_load, record_run
from tests.replay.viewer.asked import ask, ask_binary, ask_request, ask_step

PAGE = {
    "index.html": '<!doctype html><meta charset="utf-8"><link rel="stylesheet" href="style.css">'
    '<script type="module" src="main.js"></script><p>here</p>',
    "style.css": "p { color: red }",
    "main.js": 'import { a } from "./ui/a.js";\nexport { a };',
    "ui/a.js": 'import "../b.js"; import c from "./c.js"; export const a = c;',
    "ui/c.js": "export default 1;",
    "b.js": "export * from './ui/c.js';",
}


def data_of(text: str) -> dict[str, Any]:
    (data,) = re.findall(r'<script type="application/json" id="reprise-data">(.*?)</script>', text, re.DOTALL)
    values: dict[str, Any] = json.loads(data)
    return values


def inspectors_in(data: dict[str, Any]) -> dict[str, Any]:
    return {path: answer for pack in data["packs"] for path, answer in unpacked(pack).items()}


def as_json(values: Any) -> Any:
    return json.loads(json.dumps(values))


def test_a_pages_modules_find_each_other_without_a_server() -> None:
    text = one_page(PAGE, Embedded())
    (mapped,) = re.findall(r'<script type="importmap">(.*?)</script>', text)
    urls = json.loads(mapped)["imports"]
    assert set(urls) == {"page/main.js", "page/ui/a.js", "page/ui/c.js", "page/b.js"}
    sources = {name: base64.b64decode(url.partition(",")[2]).decode() for name, url in urls.items()}
    assert sources["page/main.js"].startswith('import { a } from "page/ui/a.js"')
    assert sources["page/ui/a.js"] == 'import "page/b.js"; import c from "page/ui/c.js"; export const a = c;'
    assert sources["page/b.js"] == "export * from 'page/ui/c.js';"
    assert 'import "page/main.js";' in text
    assert "<style>p { color: red }</style>" in text
    assert not re.search(r"""\b(src|href)=["'](?!data:|#)""", text)


def test_its_policy_allows_exactly_the_scripts_in_it_and_no_connection() -> None:
    text = one_page(PAGE, Embedded())
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    scripts = re.findall(r'<script type="(?:importmap|module)">(.*?)</script>', text)
    styles = re.findall(r"<style>(.*?)</style>", text)
    hashes = {f"sha256-{base64.b64encode(hashlib.sha256(it.encode()).digest()).decode()}" for it in (*scripts, *styles)}
    assert set(re.findall(r"'(sha256-[^']*)'", policy)) == hashes
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    assert "connect-src" not in policy


def test_no_text_in_a_recording_ends_the_script_that_holds_it() -> None:
    embedded = Embedded()
    embedded.add("request/1/0", {}, {"request_id": "</script><script>alert(1)</script><!--\u2028"})
    text = one_page(PAGE, embedded)
    assert "alert(1)</script>" not in text
    assert data_of(text)["answers"]["api/request/1/0"][0]["json"]["request_id"].startswith("</script><script>alert")


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record_run(tmp_path_factory.mktemp("where it lies") / "small", mixed_load(6))


def test_a_small_recording_is_in_its_file_whole_and_with_the_same_answers(small: Path, tmp_path: Path) -> None:
    viewed = Viewed.open(small, SystemClock(), tmp_path / "index", Path("small"))
    viewed.state.state = "ready"
    written = write_page(small, tmp_path / "page.html", tmp_path / "index")
    text = (tmp_path / "page.html").read_text("utf-8")
    assert written.num_bytes == len(text.encode())
    data = data_of(text)
    assert len(written.left_out) == 1
    assert data["left_out"] == list(written.left_out)
    answers = data["answers"]
    inspectors = inspectors_in(data)
    with viewed.database() as database:
        (num_steps,) = database.execute("SELECT count(*) FROM steps").fetchone()
    assert len(inspectors) == 2 * num_steps + 6
    for step in range(num_steps):
        assert inspectors[f"api/step/1/{step}"] == as_json(ask_step(viewed, step))
        header, arrays = unframed(inspectors[f"api/blocks/1/{step}"])
        expected, expected_arrays = ask_binary(viewed, "blocks/{life}/{step}", life=1, step=step)
        assert header == expected
        assert {name: each.tolist() for name, each in arrays.items()} == {
            name: each.tolist() for name, each in expected_arrays.items()
        }
    for number in range(6):
        assert inspectors[f"api/request/1/{number}"] == as_json(ask_request(viewed, number))
    assert answers["api/marks"] == [{"query": {"life": 1}, "json": ask(viewed, "marks")}]
    tiles = {
        tuple(it["query"].values()): unframed(gzip.decompress(base64.b64decode(it["gzip"])))
        for it in answers["api/timeline"]
    }
    assert len(tiles) == 8
    assert len(tiles[1, "time", "none"][0]["rows"]) == 6
    assert not answers["api/recording"][0]["json"]["contents"]["readable"]
    viewed.states.close()
    assert small.parent.name not in text  # where it lay is nobody's business


def test_what_does_not_fit_is_left_out_and_that_is_said(
    viewed: Viewed, run: Path, index_folder: Path, tmp_path: Path
) -> None:
    written = write_page(run, tmp_path / "page.html", index_folder, max_answer_bytes=90_000)
    inspectors = inspectors_in(data_of((tmp_path / "page.html").read_text("utf-8")))
    num_steps = sum(name.startswith("api/step/") for name in inspectors)
    with viewed.database() as database:
        (all_steps,) = database.execute("SELECT count(*) FROM steps").fetchone()
    assert num_steps < all_steps
    assert any(f"{all_steps - num_steps:,} of {all_steps:,} steps" in line for line in written.left_out)


def test_the_verb_writes_it_and_refuses_what_is_no_recording(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REPRISE_CACHE", str(tmp_path / "cache"))
    assert main(["view", str(small), "--html", str(tmp_path / "page.html"), "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert values["num_bytes"] == (tmp_path / "page.html").stat().st_size
    assert main(["view", str(tmp_path), "--html", str(tmp_path / "other.html")]) == 2
    assert "holds no recording" in capsys.readouterr().err
    assert main(["view", str(small), "--port", "70000"]) == 2
    assert "--port" in capsys.readouterr().err
