"""The roofline counts what the code would launch, and never promises more than a device has."""

from dataclasses import replace

import pytest

from kernels.cuda.planes import LAYOUTS
from kernels.cuda.tiles import Shape
from tests.bench.roofline import DEVICES, LOADS, MODELS, estimate, table
from tests.bench.step_work import Load, likely_tile, step_work

SMALL, LLAMA = MODELS[0], MODELS[2]


def test_each_layer_is_as_many_launches() -> None:
    counts = [
        len(step_work(replace(SMALL.shape, num_layers=layers), "Q4_1", "Q8_0", Load(1, 1, 64)).launches)
        for layers in (2, 3, 5)
    ]
    assert counts[2] - counts[1] == 2 * (counts[1] - counts[0]) > 0


def test_a_step_reads_its_weights_and_its_keys() -> None:
    load = Load(num_sequences=2, rows_each=1, context=1024)
    work = step_work(replace(LLAMA.shape, num_layers=1), "BF16", "BF16", load)
    layer = 4096 * (4096 + 2 * 1024) + 4096 * 4096 + 3 * 4096 * 14336
    assert work.weight_bytes == 2 * (layer + 128256 * 4096)
    assert work.kv_bytes_a_token == 2 * 8 * 128 * 2
    moved = sum(launch.bytes_moved for launch in work.launches)
    read = work.weight_bytes + 2 * 1024 * work.kv_bytes_a_token
    assert read < moved < 1.02 * read


def test_padding_rows_are_work_too() -> None:
    one, many = (step_work(SMALL.shape, "Q4_1", "Q8_0", Load(rows, 1, 64)) for rows in (1, 16))
    first, last = (sum(launch.flops for launch in work.launches if "linear" in launch.kernel) for work in (one, many))
    assert first == last > 0


@pytest.mark.parametrize("load", [LOADS["decode, batch 1"], LOADS["prefill of 2048"]])
def test_no_step_is_faster_than_the_memory(load: Load) -> None:
    work = step_work(LLAMA.shape, "BF16", "BF16", load)
    for device in DEVICES:
        figures = estimate(work, load, device)
        assert figures is not None
        assert figures.least < figures.graph <= figures.eager


def test_what_does_not_fit_is_said() -> None:
    llama = LLAMA._replace(shape=replace(LLAMA.shape, num_layers=400))
    assert "does not fit" in table([llama], {"decode": Load(1, 1, 64)}, DEVICES)[-1]


def test_few_rows_are_spread_and_many_are_not() -> None:
    shape = Shape(LAYOUTS["BF16"], 4096, 4096)
    assert likely_tile(shape, 1).spread
    assert not likely_tile(shape, 2048).spread
    assert likely_tile(shape, 1).order == likely_tile(shape, 2048).order
