"""A long recording for a benchmark: the engine's own core on virtual time, its own recorder, sealed but for the end."""

from collections.abc import Sequence
from pathlib import Path

from engine.core.limits import Limits
from recorder.reader import Recording
from recorder.sealing import seal
from replay.simulate.arrivals import Arrival
from replay.simulate.executor import CountingExecutor
from replay.simulate.recording import SimulatedRecording, simulated_header
from replay.simulate.simulation import Simulation
from replay.simulate.step_cost import StepCost


def record_arrivals(
    folder: Path, limits: Limits, arrivals: Sequence[Arrival], cost: StepCost, trace: str, max_segment_bytes: int
) -> Path:
    """`folder`, with all segments but the last sealed. `trace` is what the header calls the load."""
    simulation = Simulation(limits, arrivals, CountingExecutor(limits.block_size, cost), [])
    header = simulated_header(limits, StepCost(), trace)
    recording = SimulatedRecording(folder, header, simulation.clock, simulation.core, max_segment_bytes)
    simulation.readers.append(recording.read)
    try:
        simulation.run()
    finally:
        recording.close()
    for segment in Recording.open(folder).segments[:-1]:
        seal(segment.path)
    return folder
