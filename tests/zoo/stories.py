"""The one-page story of a bug: what was seen, the commands that found it, what they printed, and the patch."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from replay.shrink.command import as_lines
from tests.zoo.bug import Bug
from tests.zoo.examine import Ran

STORIES = Path(__file__).parent / "stories"
_FIRST_LINES, _LAST_LINES, _WIDTH = 12, 8, 120


def write_story(bug: Bug, values: dict[str, Any], mended: Ran, folder: Path = STORIES) -> None:
    folder.mkdir(exist_ok=True)
    (folder / f"{bug.name}.md").write_text("\n".join(_lines(bug, values, mended)) + "\n", "utf-8")


def _lines(bug: Bug, values: dict[str, Any], mended: Ran) -> Iterator[str]:
    seen_in = f" Of the kind of {bug.seen_in}." if bug.seen_in else ""
    yield f"# {bug.name.replace('-', ' ').capitalize()}"
    yield f"\n**Seen.** {bug.seen}"
    yield (
        f"\n**How often.** In {values['shown']} of {values['seeds']} seeds of the same load "
        f"(`tests/zoo/loads.py`); the recording here is `{values['recording']}`."
    )
    yield "\n**Found.**"
    yield from _shown(values["find"]["command"], values["find"]["text"].splitlines())
    if values["promise"]:
        yield f"\nThe entries alone say (`invariant-broken`): {values['promise']}."
    yield f"\n**Repeated.** {values['repeated']} of {values['repeats']} times ({bug.proof})."
    yield "\n**Made small.**"
    yield from _shown(values["shrink"], list(as_lines(values["shrunk"])))
    yield f"\n**Understood.** {bug.why}"
    yield f"\n**The mistake.** {bug.kind[0].upper()}{bug.kind[1:]}.{seen_in}\n\n```diff"
    for mutation in bug.patch:
        yield f"# {mutation.file}"
        yield from [f"-{line}" for line in mutation.old.rstrip("\n").split("\n")]
        yield from [f"+{line}" for line in mutation.new.rstrip("\n").split("\n") if mutation.new]
    yield "```\n\n**Mended.** The small recording on a build without it:"
    yield from _shown(mended.command, mended.text.splitlines())
    yield f"\n**Kept.** A test of a few lines and a fixture of {values['fixture_bytes']:,} bytes, without contents:"
    yield from _shown(values["export"]["command"], values["export"]["text"].splitlines())
    red = f"{values['red']} of {values['test_runs']} times"
    yield f"\nWith the mistake it failed {red}, mended {values['red_mended']} times:"
    for build, name in (("with the mistake", "red_last"), ("mended", "mended_last")):
        last = values[name]
        yield from _shown(f"{last['command']}          ({build})", _told(last["text"]))


def _told(text: str) -> list[str]:
    """Without what differs from run to run: folders and times."""
    lines = [re.sub(r"\S*/exported/", "exported/", line) for line in text.splitlines()]
    return [re.sub(r" in [\d.]+s.*", "", line) for line in lines if line.strip() and not line.startswith("===")]


def _shown(command: str, lines: Sequence[str]) -> Iterator[str]:
    yield f"\n```\n$ {command}"
    shown = [line[:_WIDTH].rstrip() for line in lines]
    if len(shown) > _FIRST_LINES + _LAST_LINES:
        shown[_FIRST_LINES:-_LAST_LINES] = [f"… {len(lines) - _FIRST_LINES - _LAST_LINES} lines"]
    yield from shown
    yield "```"
