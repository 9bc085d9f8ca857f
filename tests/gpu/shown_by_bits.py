"""Whether bits follow from a row alone on this device: company, chunks, places, graphs, tiles.

The strong test of the CPU's (`kernels/selftest.py`), and beside it what only a GPU must be asked: whether tiles of
other sizes and tensor-core instructions give equal bits, and whether a captured graph gives those of its launches.
"""

from typing import Any

import numpy as np

from kernels.cuda.attention_tuning import WideTiles
from kernels.cuda.autotune import same_bits
from kernels.cuda.device_bench import DeviceBench
from kernels.cuda.tiles import candidates
from kernels.packing import SequenceRows, pack_batch
from kernels.selftest import run_self_test, run_thorough_test
from tests.gpu.stage import Outcome, Stage


def rows_are_their_own(stage: Stage) -> Outcome:
    """For both types of keys and values."""
    said, figures, holds = list[str](), dict[str, Any](), True
    for dtype in ("bfloat16", "float8")[: stage.size(2, 1, 1)]:
        backend = stage.backend(dtype)
        report = (run_self_test if stage.is_dry or stage.is_quick else run_thorough_test)(backend, 1)
        holds &= report.holds
        figures[dtype] = {"compared": report.num_compared, "failures": list(report.failures)}
        said.append(f"{dtype}: {report.num_compared:,} float32 values compared, {len(report.failures)} claims broken")
        said += [f"{dtype}: {failure}" for failure in report.failures]
        figures[dtype]["wide_tiles"] = backend.wide_tiles._asdict()
        said.append(f"{dtype}: attention's wide tiles {_told(backend.wide_tiles)}")
        stage.keep(Outcome(holds, [f"{stage.model_name}: {said[0]}", *said[1:]], figures))
    return Outcome(holds, [f"{stage.model_name}: {said[0]}", *said[1:]], figures)


def _told(tiles: WideTiles) -> str:
    if not tiles.are_equal:
        return "give other bits and are not used"
    return f"give equal bits and are {'faster' if tiles.are_used else 'not faster, so not used'}"


def graphs_give_the_bits_of_launches(stage: Stage) -> Outcome:
    """Each step once launch by launch, then from a graph, over decodes of many sizes; padding is theirs too."""
    backend = stage.backend()
    keys, values = backend.new_kv(stage.size(300, 8), 16)
    sizes = range(1, stage.size(41, 3, 17))
    different = []
    for size in sizes:
        tokens = [[(7 * number + size) % stage.parameters.shape.vocab_size] for number in range(size)]
        batch = pack_batch([SequenceRows(each, 0, (number,), 1) for number, each in enumerate(tokens)], 16)
        results = []
        for _ in range(3):  # the second captures, the third starts what was captured
            results.append(backend.forward(batch, keys, values).logits.copy())
        same = all(np.array_equal(results[0].view(np.int32), other.view(np.int32)) for other in results[1:])
        different += [] if same else [size]
    verdict = f"{len(sizes)} sizes of decodes, {len(different)} whose graph gives other bits {different or ''}"
    return Outcome(not different, [verdict], {"sizes": len(sizes), "different": different})


def tiles_that_give_equal_bits(stage: Stage) -> Outcome:
    """Of every shape of the model's matrices: how many tiles have the first one's bits. It holds if the first's rows
    are their own; fewer members only mean fewer tiles to choose from."""
    backend = stage.backend()
    shapes = dict.fromkeys(part.shape for weight in backend.matrices().values() for part in weight.parts)
    bench = DeviceBench(stage.device)
    said, figures = list[str](), dict[str, dict[str, Any]]()
    num_tiles = num_equal = 0
    for shape in shapes:
        tiles = candidates(shape)[: stage.size(99, 2)]
        _bits, members = same_bits(shape, tiles, bench)
        name = f"{shape.num_outputs}x{shape.num_inputs} of {shape.layout.bits} bits"
        others = [f"{tile.outputs}x{tile.rows}{' spread' * tile.spread}" for tile in tiles if tile not in members]
        said.append(
            f"{name}: {len(members)} of {len(tiles)} tiles give equal bits" + (f"; not {others}" if others else "")
        )
        num_tiles, num_equal = num_tiles + len(tiles), num_equal + len(members)
        figures[name] = {"tiles": len(tiles), "equal": len(members), "others": others}
        if stage.is_dry:
            break
    return Outcome(True, [f"{num_equal} of {num_tiles} tiles give the bits of their weight's first", *said], figures)
