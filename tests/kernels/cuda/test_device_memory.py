"""What is set aside of a device's memory: as many launches as a step really has, and a share that leaves it useful."""

from kernels.cuda.device_memory import LAUNCHES_A_LAYER, LAUNCHES_BESIDE, reserved_bytes
from kernels.decoder import DecoderShape
from kernels.device_backend import KVBudget
from tests.bench.step_work import Load, step_work

OF_8B = DecoderShape(32, 4096, 14336, 32, 8, 128, 128_256, 1e-5)
SMALL = DecoderShape(30, 576, 1536, 9, 3, 64, 49_152, 1e-5)


def test_no_step_has_more_launches_than_are_reckoned_for_its_graph() -> None:
    for shape, format in ((OF_8B, "Q4_K"), (SMALL, "Q4_1")):
        launches = step_work(shape, format, "Q8_0", Load(64, 1, 1024)).launches
        assert len(launches) <= shape.num_layers * LAUNCHES_A_LAYER + LAUNCHES_BESIDE


def test_graphs_and_what_travels_leave_most_of_the_smallest_device() -> None:
    assert 1 << 30 < reserved_bytes(OF_8B, 12 << 20) < 3 << 30


def test_a_budget_is_what_is_left_of_the_share_and_never_negative() -> None:
    assert KVBudget(total=100, in_use=30, reserved=10, limit=90).kv_bytes == 50
    assert KVBudget(total=100, in_use=85, reserved=10, limit=90).kv_bytes == 0
