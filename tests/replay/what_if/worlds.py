"""Recordings whose times follow from a step cost, so that what they would have been is known; and runs of them."""

from pathlib import Path

from engine.core.limits import Limits
from engine.core.scheduler import Core
from engine.core.vocabulary import Entry
from replay.lives import Life, Run
from replay.simulate.arrivals import Fitting, fitted
from replay.simulate.run import run_simulation
from replay.simulate.step_cost import StepCost
from replay.simulate.trace_files import read_trace
from replay.what_if.counterfactual import Counterfactual
from replay.what_if.predicted_steps import PredictedSteps
from replay.what_if.recorded_load import RecordedLoad
from replay.what_if.step_times import StepTimes
from tests.replay.simulate import samples

TIGHT = Limits(num_kv_blocks=40, max_model_len=512, reserve_output="none")


def simulated(folder: Path, limits: Limits = TIGHT, num_requests: int = 60) -> Path:
    """Requests that have to wait for blocks, of ten priority classes."""
    folder.mkdir()
    fitting = Fitting(stretch=0.5, num_classes=10, max_output_tokens=200, max_model_len=limits.max_model_len)
    arrivals = fitted(read_trace(samples.busy_azure(folder, num_requests)), fitting)
    run_simulation(limits, arrivals, StepCost(), record_dir=folder / "run")
    return folder / "run"


def life_of(path: Path) -> tuple[Life, Limits, list[Entry]]:
    life = Run.open(path).lives[0]
    return life, Limits.from_dict(life.header.limits), list(life.comparable_entries(lambda refusal: None))


def served_again(path: Path, num_followed: int = 0, exchange: int = 0) -> list[Entry]:
    """The recorded settings: followed for so many entries, predicted from there."""
    life, limits, entries = life_of(path)
    load = RecordedLoad(limits, entries)
    steps = PredictedSteps(load, StepTimes(load.samples).exchanged(exchange), life.header)
    again: list[Entry] = []
    run = Counterfactual(Core(limits), steps, load.inputs, [again.append])
    assert run.follow(entries[:num_followed]) is None
    run.run(load.last_ns, load.open_ended)
    return again
