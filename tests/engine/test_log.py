"""The engine's log: nothing is loaded for it before there is a line, and no line holds what clients wrote."""

import json
import subprocess
import sys

QUIET = """
import sys
from engine.log import Logger, set_up_at_first_line
log = Logger("engine")
set_up_at_first_line("info")
print("structlog" in sys.modules)
"""
FAILING = """
from engine.log import Logger, set_up_at_first_line
log = Logger("engine")
set_up_at_first_line("info")

def fail_with(prompt):
    try:
        raise ArithmeticError(f"{len(prompt)} characters")
    except ArithmeticError:
        log.exception("step failed", step=7)

log.debug("hidden")
fail_with(" ".join(["a", "secret", "prompt"]))
"""


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)


def test_an_engine_that_logs_nothing_loads_nothing_for_it() -> None:
    assert run(QUIET).stdout.strip() == "False"


def test_a_failed_step_is_logged_as_json_without_local_variables() -> None:
    (line,) = run(FAILING).stderr.splitlines()
    record = json.loads(line)
    assert (record["event"], record["step"], record["level"]) == ("step failed", 7, "error")
    assert "ArithmeticError: 15 characters" in record["exception"]
    assert "secret prompt" not in line
