"""The page as one file: its modules and styles inside, answers from the recording beside them, and no network.

Modules go in as they are, each behind a data: URL that an import map names; only what they import is written otherwise
(`./tiles.js` → `page/tiles.js`). The policy in the file allows these scripts and styles, by their hashes, and no
connection at all. Answers are embedded as far as they fit; what is left out is said, in the file too.
"""

import base64
import hashlib
import json
import posixpath
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from engine.clock import SystemClock
from replay.refusal import CannotCompare
from replay.viewer.embedding import MAX_ANSWER_BYTES, Embedded, embed
from replay.viewer.page_files import INDEX, page_files
from replay.viewer.viewed import Viewed

DATA_ELEMENT = "reprise-data"
_FROM = re.compile(r"""(\bfrom\s*|\bimport\s*)(["'])(\.{1,2}/[^"']+)\2""")
_STYLE = re.compile(r"""<link[^>]*rel="stylesheet"[^>]*href="([^"]+)"[^>]*>""")
_SCRIPT = re.compile(r"""<script[^>]*src="([^"]+)"[^>]*></script>""")


class Written(NamedTuple):
    path: Path
    num_bytes: int
    left_out: tuple[str, ...]


def write_page(
    recording: Path, target: Path, folder: Path | None = None, max_answer_bytes: int = MAX_ANSWER_BYTES
) -> Written:
    """`folder`: where the index is kept. Raises RecordingError, OSError, and CannotCompare when there is no page."""
    viewed = Viewed.open(recording, SystemClock(), folder, Path(recording.resolve().name))
    viewed.index.update()
    viewed.state.state = "ready"
    try:
        embedded = embed(viewed, max_answer_bytes, folder)
    finally:
        viewed.states.close()
    files = {
        name: path.read_text("utf-8") for name, path in page_files().items() if path.suffix not in (".png", ".txt")
    }
    if INDEX not in files:
        raise CannotCompare("this installation has no page", "install it again: replay/viewer/page belongs to it")
    text = one_page(files, embedded)
    target.write_text(text, "utf-8")
    return Written(target, len(text.encode()), embedded.left_out)


def one_page(files: Mapping[str, str], embedded: Embedded) -> str:
    """`files`: name → text of the page's."""
    styles = [_inline_safe(files[posixpath.normpath(name)], "style") for name in _STYLE.findall(files[INDEX])]
    entries = [posixpath.normpath(name) for name in _SCRIPT.findall(files[INDEX])]
    scripts = [_import_map(files), "".join(f'import "page/{name}";' for name in entries)]
    values = {"answers": embedded.answers, "packs": embedded.packs, "left_out": embedded.left_out}
    data = json.dumps(values, allow_nan=False)
    body = _SCRIPT.sub("", _STYLE.sub("", files[INDEX]))
    parts = [
        f'<meta http-equiv="Content-Security-Policy" content="{_policy(scripts, styles)}">',
        *(f"<style>{style}</style>" for style in styles),
        f'<script type="application/json" id="{DATA_ELEMENT}">{_as_script(data)}</script>',
        f'<script type="importmap">{scripts[0]}</script>',
        f'<script type="module">{scripts[1]}</script>',
    ]
    head, charset, rest = body.partition('<meta charset="utf-8">')
    if not charset:
        raise CannotCompare("the page has no <meta charset>, behind which its parts go", "install it again")
    return head + charset + "\n" + "\n".join(parts) + rest


def _import_map(files: Mapping[str, str]) -> str:
    modules = {name: text for name, text in files.items() if name.endswith((".js", ".mjs"))}
    urls = {f"page/{name}": _data_url(_renamed(name, text)) for name, text in modules.items()}
    return _as_script(json.dumps({"imports": urls}))


def _renamed(name: str, text: str) -> str:
    """Imports relative to the module's own place become names in the import map."""

    def rename(found: re.Match[str]) -> str:
        before, quote, relative = found.groups()
        return f"{before}{quote}page/{posixpath.normpath(posixpath.join(posixpath.dirname(name), relative))}{quote}"

    return _FROM.sub(rename, text)


def _data_url(script: str) -> str:
    return "data:text/javascript;base64," + base64.b64encode(script.encode()).decode()


def _policy(scripts: list[str], styles: list[str]) -> str:
    script_hashes, style_hashes = (" ".join(map(_hash, texts)) for texts in (scripts, styles))
    return (
        f"default-src 'none'; script-src {script_hashes} data:; style-src {style_hashes}; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _as_script(text: str) -> str:
    """JSON that no text in it can end: a `<` is written as an escape."""
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _inline_safe(text: str, element: str) -> str:
    assert f"</{element}" not in text.lower(), "a file of ours would end its own element"
    return text
