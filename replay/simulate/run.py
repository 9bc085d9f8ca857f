"""One simulation from its parts to its figures."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from engine.clock import SystemClock
from engine.core.limits import Limits
from engine.own_policy import is_own_policy, load_own_policy, policy_factory
from replay.simulate.arrivals import Arrival
from replay.simulate.executor import CountingExecutor
from replay.simulate.injected import SimulatedDeath
from replay.simulate.outcome import Outcome
from replay.simulate.recording import SimulatedRecording, simulated_header
from replay.simulate.simulation import Simulation
from replay.simulate.step_cost import StepCost


def run_simulation(
    limits: Limits,
    arrivals: Sequence[Arrival],
    cost: StepCost,
    *,
    record_dir: Path | None = None,
    trace: str = "",
    inject: Sequence[str] = (),
) -> dict[str, Any]:
    """Simulate, record if asked to, and return the figures of `outcome.py` and how fast it went.

    inject   faults, as `engine/injection.py` reads them
    """
    name = limits.scheduling_policy
    own = load_own_policy(name) if is_own_policy(name) else None
    executor, outcome = CountingExecutor(limits.block_size, cost), Outcome(limits)
    simulation = Simulation(limits, arrivals, executor, [outcome.read], policy_factory(own), inject)
    recording: SimulatedRecording | None = None
    if record_dir is not None:
        header = simulated_header(limits, cost, trace)
        recording = SimulatedRecording(record_dir, header, simulation.clock, simulation.core)
        simulation.readers.append(recording.read)
        if simulation.faults is not None:
            simulation.faults.stop_recording = recording.fill_disk
    clock = SystemClock()
    began_ns = clock.now_ns()
    try:
        with suppress(SimulatedDeath):
            simulation.run()
    finally:
        if recording is not None:
            recording.close()
    wall_s = (clock.now_ns() - began_ns) / 1e9
    values = outcome.values(arrivals, executor.num_tokens, executor.num_recomputed)
    speed = {"wall_seconds": wall_s, "times_real_time": values["virtual_seconds"] / wall_s}
    return {"policy": name, "phases": limits.scheduling_phases, "step_cost_ns": cost.as_flags(), **values, **speed}
