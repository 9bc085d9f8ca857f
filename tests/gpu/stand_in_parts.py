"""Parts that do what parts do on a bad day, for `test_run.py`. A Stage is made, and nothing of it is used."""

import os
import signal
import subprocess
import time

from tests.gpu.stage import Outcome, Stage


def holds(stage: Stage) -> Outcome:
    return Outcome(True, ["all is well"], {"answer": 42})


def does_not_hold(stage: Stage) -> Outcome:
    return Outcome(False, ["one bit differs", "this one"], {})


def raises(stage: Stage) -> Outcome:
    raise ValueError("a kernel that cannot be compiled")


def dies(stage: Stage) -> Outcome:
    os.kill(os.getpid(), signal.SIGSEGV)
    return holds(stage)


def dies_after_a_figure(stage: Stage) -> Outcome:
    stage.keep(Outcome(True, ["half of it", "and a line"], {"half": 1}))
    return dies(stage)


def hangs_with_a_child(stage: Stage) -> Outcome:
    subprocess.Popen(["sleep", "60"])
    time.sleep(60)
    return holds(stage)
