"""The page's files: vendored ones are what was published, ours inline nothing, none is long."""

import hashlib
import json
import re
from pathlib import Path

from replay.viewer.page_files import FOLDER, page_files

OURS = {name: path for name, path in page_files().items() if not name.startswith("vendor/")}
MAX_LINES = 200


def test_vendored_files_have_the_hashes_their_list_gives() -> None:
    listed: dict[str, str] = {}
    for package in json.loads((FOLDER / "vendor" / "vendor.json").read_text("utf-8"))["packages"]:
        assert package["name"]
        assert package["version"]
        assert package["licence"] in ("MIT", "Apache-2.0")
        for each in (*package["files"], package["licence_file"]):
            listed[each["file"]] = each["sha256"]
    found = {path.name: _sha256(path) for path in (FOLDER / "vendor").iterdir() if path.name != "vendor.json"}
    assert found == listed


def test_no_script_or_style_is_inline() -> None:
    text = (FOLDER / "index.html").read_text("utf-8")
    assert re.findall(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=", text) == []


def test_recorded_text_never_becomes_markup() -> None:
    for name, path in OURS.items():
        if name.endswith(".js"):
            text = re.sub(r"//.*", "", path.read_text("utf-8"))
            assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\b|new Function", text), (
                name
            )


def test_modules_name_what_they_import_and_stay_short() -> None:
    for name, path in OURS.items():
        if name.endswith(".js"):
            lines = path.read_text("utf-8").splitlines()
            assert lines[0].startswith("// "), f"{name} does not say what it is for"
            assert len(lines) <= MAX_LINES, name
            for line in lines:
                if line.startswith("import "):
                    assert re.search(r'from "\.{1,2}/[\w./-]+\.js";$', line), f"{name}: {line}"


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
