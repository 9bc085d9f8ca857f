"""The step-time model follows what steps take, forgets, and lets no single stall lead it astray."""

import random
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core.step_time import MAX_STEP_NS, StepShape, StepTimeModel, num_pairs, shape_of

MS = 1_000_000


def true_ns(shape: StepShape, slowness: float = 1.0) -> int:
    """A machine as a CPU is: 4 ms a step, 1 ms a decode row, 0.5 ms a prefill token, some for what is attended."""
    return int(
        slowness
        * (
            4 * MS
            + shape.num_decodes * MS
            + shape.decode_context * 400
            + shape.prefill_tokens * MS // 2
            + shape.prefill_pairs * 300
        )
    )


def random_rows(rng: random.Random) -> tuple[tuple[int, int, int], ...]:
    decodes = [(number, rng.randrange(20, 600), 1) for number in range(rng.randrange(0, 17))]
    prefills = [(100, rng.choice([0, 0, 100, 500]), rng.randrange(2, 400))] if rng.random() < 0.3 or not decodes else []
    return (*decodes, *prefills)


def samples(rng: random.Random, count: int, slowness: float = 1.0) -> Iterator[tuple[StepShape, int]]:
    for _ in range(count):
        shape = shape_of(random_rows(rng))
        yield shape, int(true_ns(shape, slowness) * rng.uniform(0.95, 1.05))


def relative_errors(model: StepTimeModel, rng: random.Random, slowness: float = 1.0) -> list[float]:
    shapes = [shape_of(random_rows(rng)) for _ in range(200)]
    return sorted(
        abs(model.predict_ns(shape) - true_ns(shape, slowness)) / true_ns(shape, slowness) for shape in shapes
    )


def trained(rng: random.Random, count: int = 600) -> StepTimeModel:
    model = StepTimeModel()
    for shape, step_ns in samples(rng, count):
        model.observe(shape, step_ns)
    return model


def test_the_shape_of_a_step_tells_decodes_from_prefills() -> None:
    assert shape_of(((1, 9, 1), (2, 4, 1))) == StepShape(2, 15, 0, 0)
    assert shape_of(((1, 9, 1), (2, 0, 3), (3, 10, 2))) == StepShape(1, 10, 5, 6 + 23)
    assert num_pairs(10, 2) == 11 + 12


def test_predictions_come_close_after_some_hundred_noisy_steps() -> None:
    rng = random.Random(1)
    errors = relative_errors(trained(rng), rng)
    assert errors[100] < 0.05
    assert errors[180] < 0.15


def test_stalls_move_the_predictions_little() -> None:
    rng = random.Random(2)
    model = StepTimeModel()
    for index, (shape, step_ns) in enumerate(samples(rng, 800)):
        model.observe(shape, step_ns * 30 if index % 20 == 7 else step_ns)
    errors = relative_errors(model, rng)
    assert errors[100] < 0.15


def test_a_machine_that_has_become_slower_for_good_is_followed() -> None:
    rng = random.Random(3)
    model = trained(rng)
    for shape, step_ns in samples(rng, 1_500, slowness=4):
        model.observe(shape, step_ns)
    assert relative_errors(model, rng, slowness=4)[100] < 0.1


def test_a_chunk_sized_for_a_time_takes_about_that_time() -> None:
    rng = random.Random(4)
    model = trained(rng)
    for start in (0, 300, 700):
        tokens = model.prefill_tokens_within(60 * MS, start, 2_048)
        took = tokens * MS // 2 + num_pairs(start, tokens) * 300
        assert 0.8 * 60 * MS < took < 1.15 * 60 * MS
    assert model.prefill_tokens_within(-5, 0, 2_048) == 0
    assert model.prefill_tokens_within(10**15, 0, 2_048) == 2_048


def test_nothing_is_known_before_the_first_sample_and_no_time_is_no_sample() -> None:
    model = StepTimeModel()
    for _ in range(20):
        model.observe_step(((0, 0, 8),), 8, 0)
    assert not model.knows_prefill
    assert model.predict_ns(StepShape(3, 30, 10, 55)) == 0
    assert model.prefill_tokens_within(MS, 0, 512) == 512


def test_equal_events_give_equal_models() -> None:
    first, second = trained(random.Random(5)), trained(random.Random(5))
    for shape, _ in samples(random.Random(6), 50):
        assert first.predict_ns(shape) == second.predict_ns(shape)


@given(
    st.lists(
        st.tuples(st.integers(0, 300), st.integers(0, 10**6), st.integers(0, 10**5), st.integers(1, 10**15)),
        min_size=1,
        max_size=60,
    )
)
def test_no_sample_whatever_it_says_makes_predictions_negative_or_endless(
    told: list[tuple[int, int, int, int]],
) -> None:
    model = StepTimeModel()
    for num_decodes, context, prefill_tokens, step_ns in told:
        shape = StepShape(num_decodes, context, prefill_tokens, num_pairs(context % 4096, prefill_tokens))
        model.observe(shape, step_ns)
        assert 0 <= model.predict_ns(shape) <= MAX_STEP_NS
        assert 0 <= model.prefill_tokens_within(step_ns, context % 4096, 512) <= 512


@pytest.mark.parametrize("num_rows", [1, 16])
def test_a_constant_load_is_predicted_exactly_enough(num_rows: int) -> None:
    """Rows and fixed part cannot be told apart then, but their sum can."""
    model = StepTimeModel()
    rows = tuple((number, 100, 1) for number in range(num_rows))
    for _ in range(200):
        model.observe_step(rows, num_rows, 20 * MS)
    assert abs(model.predict_ns(shape_of(rows)) - 20 * MS) < MS // 5
