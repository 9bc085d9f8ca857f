"""`python -m tests.gpu`: every part in a process of its own, one after the other; a table last, and JSON.

A part that fails, hangs or dies does not stop the others. Exit codes: 0 everything shown holds, 1 something does not.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from engine.clock import SystemClock
from tests.gpu.parts import PARTS, QUICK_SECONDS, TOTAL_SECONDS, Part

ROOT = Path(__file__).parents[2]
RESULT = "gpu.json"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tests/gpu/run.sh", description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT") or "."), help=f"folder for {RESULT}")
    parser.add_argument("--dry-run", action="store_true", help="a tiny model in triton's interpreter; needs no GPU")
    parser.add_argument("--quick", action="store_true", help="the most important parts, smaller, in four minutes")
    parser.add_argument("--only", default="", metavar="NAMES", help="parts to run, with commas between")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    parser.add_argument("--few-steps", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.part or given.few_steps:
        return _in_own_process(given)
    chosen = [part for part in PARTS if not given.only or part.name in given.only.split(",")]
    if given.quick:
        chosen = [part._replace(seconds=part.quick) for part in chosen if part.quick]
    given.out.mkdir(parents=True, exist_ok=True)
    total = QUICK_SECONDS if given.quick else TOTAL_SECONDS
    results = run_parts(chosen, given.out, is_dry=given.dry_run, is_quick=given.quick, total_seconds=total)
    if given.dry_run:
        print("A dry run: it proves the parts, and no figure of it means anything.")
    print(table(results))
    return 0 if all(result["holds"] for result in results.values()) else 1


def run_parts(
    parts: Sequence[Part],
    out: Path,
    *,
    is_dry: bool,
    is_quick: bool = False,
    total_seconds: float = TOTAL_SECONDS,
) -> dict[str, dict[str, Any]]:
    """Results by name; after each part all of them so far are in RESULT."""
    clock = SystemClock()
    started_ns = clock.now_ns()
    results: dict[str, dict[str, Any]] = {}
    ahead = [] if is_dry else _compilers()
    for place, part in enumerate(parts):
        began_ns = clock.now_ns()
        left = total_seconds - (began_ns - started_ns) / 1e9
        seconds = min(left, max(part.seconds, left - sum(later.seconds for later in parts[place + 1 :])))
        result = _run(part, out, is_dry, is_quick, seconds) if left > 1 else _nothing("no time was left")
        results[part.name] = {"shows": part.shows, **result, "seconds": round((clock.now_ns() - began_ns) / 1e9, 1)}
        print(f"── {part.name}: {part.shows}", *results[part.name]["said"], sep="\n   ", flush=True)
        whole = {"dry_run": is_dry, "quick": is_quick, "wall_ns": clock.wall_ns(), "parts": results}
        (out / RESULT).write_text(json.dumps(whole, indent=1), "utf-8")
    for process in ahead:
        process.kill()
    return results


def _compilers() -> list[subprocess.Popen[bytes]]:
    """None where what they need is missing: the parts that need it will say so."""
    try:
        from tests.gpu.compiled_ahead import start
    except ImportError:
        return []
    return start(ROOT)


def _run(part: Part, out: Path, is_dry: bool, is_quick: bool, seconds: float) -> dict[str, Any]:
    answer = out / f"{part.name}.part.json"
    answer.unlink(missing_ok=True)
    command = [sys.executable, "-m", "tests.gpu", "--part", part.where, "--out", str(answer)]
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"} if is_dry else dict(os.environ)
    process = subprocess.Popen(
        [*command, *(["--dry-run"] if is_dry else []), *(["--quick"] if is_quick else [])],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # so that what it starts ends with it
    )
    try:
        _, errors = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        _, errors = process.communicate()
        return _cut_short(answer, f"it was ended after {seconds:.0f} s", errors)
    if process.returncode:
        return _cut_short(answer, f"it died with exit code {process.returncode}", errors)
    result: dict[str, Any] = json.loads(answer.read_text("utf-8"))
    answer.unlink()
    return result


def _cut_short(answer: Path, why: str, errors: str) -> dict[str, Any]:
    """It does not hold; what was kept of it until then is told."""
    if not answer.exists():
        return _nothing(why, _last_lines(errors))
    kept: dict[str, Any] = json.loads(answer.read_text("utf-8"))
    answer.unlink()
    return {
        "holds": False,
        "said": [f"{why}; until then: {kept['said'][0]}", *kept["said"][1:]],
        "figures": kept["figures"],
    }


def _nothing(why: str, lines: Sequence[str] = ()) -> dict[str, Any]:
    return {"holds": False, "said": [why, *lines], "figures": {}}


def _last_lines(text: str) -> list[str]:
    return text.splitlines()[-15:]


def _in_own_process(given: argparse.Namespace) -> int:
    from kernels.numeric_environment import fix_numeric_environment

    fix_numeric_environment()
    from tests.gpu.stage import Stage

    with tempfile.TemporaryDirectory() as folder:
        stage = Stage(given.dry_run, Path(folder), given.quick, None if given.few_steps else given.out)
        if given.few_steps:
            from tests.gpu.shown_by_others import few_steps

            few_steps(stage)
            return 0
        module, _, function = given.part.partition(":")
        outcome = getattr(import_module(module), function)(stage)
    stage.keep(outcome)
    return 0


def table(results: dict[str, dict[str, Any]]) -> str:
    """A line a part."""
    lines = [f"{'part':10} {'holds':6} {'s':>6}  what it said"]
    for name, result in results.items():
        holds = "yes" if result["holds"] else "NO"
        lines.append(f"{name:10} {holds:6} {result['seconds']:6.1f}  {result['said'][0]}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
