"""A core frozen at any moment, and thawed, is equal field by field and decides equally to the end."""

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import msgpack
import pytest

from engine.core.events import RequestArrived
from engine.core.keyframes.classes import KeyframeError
from engine.core.keyframes.comparing import state_differences
from engine.core.keyframes.freezing import State, freeze
from engine.core.keyframes.thawing import thaw
from engine.core.limits import Limits
from engine.core.phases.registry import PHASES_NAMES
from engine.core.policies.interface import Policy
from engine.core.policies.registry import POLICY_NAMES, make_policy
from engine.core.request import Request, Status
from engine.core.sampling_params import SamplingParams
from engine.core.scheduler import Core
from engine.core.vocabulary import Entry
from tests.simulation import simulate as simulation
from tests.simulation.checks import Run
from tests.simulation.load import random_limits

NUM_KEYFRAMES = 5  # of a run, at random entries
MAX_FOLLOWING = 150


def through_a_file(state: State) -> State:
    read: State = msgpack.unpackb(msgpack.packb(state), use_list=False, strict_map_key=False)
    return read


def played(run: Run, seed: int) -> Iterator[tuple[State, list[Entry]]]:
    """A state and the entries that followed it, at random places of a run."""
    core = Core(run.limits)
    places = set(random.Random(seed).sample(range(len(run.entries)), min(NUM_KEYFRAMES, len(run.entries))))
    for place, entry in enumerate(run.entries):
        core.handle(entry.event, entry.now_ns)  # type: ignore[arg-type]  # no notices stand in a simulation
        if place in places:
            yield freeze(core), run.entries[place + 1 : place + 1 + MAX_FOLLOWING]


@pytest.mark.parametrize("phases", PHASES_NAMES)
@pytest.mark.parametrize("policy", POLICY_NAMES)
def test_a_thawed_core_is_equal_and_decides_equally(policy: str, phases: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def limits_of(rng: random.Random) -> Limits:
        return replace(random_limits(rng), scheduling_policy=policy, scheduling_phases=phases)

    monkeypatch.setattr(simulation, "random_limits", limits_of)
    for seed in range(3):
        run = simulation.simulate(seed)
        for state, following in played(run, seed):
            core = thaw(run.limits, make_policy, through_a_file(state))
            assert freeze(core) == state, list(state_differences(state, freeze(core)))
            for entry in following:
                assert tuple(core.handle(entry.event, entry.now_ns)) == entry.decisions  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(300))
def test_a_thawed_core_is_equal_wherever_a_long_run_has_come_to(seed: int) -> None:
    run = simulation.simulate_counts(seed)
    for state, following in played(run, seed):
        core = thaw(run.limits, make_policy, through_a_file(state))
        assert freeze(core) == state
        for entry in following:
            assert tuple(core.handle(entry.event, entry.now_ns)) == entry.decisions  # type: ignore[arg-type]


def test_the_seeds_reach_what_a_state_may_hold() -> None:
    """With a policy changed in flight, deadlines, swapped and preempted requests, cached blocks: each at a keyframe."""
    found: set[str] = set()
    for seed in range(20):
        run = simulation.simulate(seed)
        for state, following in played(run, seed):
            core = thaw(run.limits, make_policy, state)
            assert freeze(core) == state
            found |= set(held_in(core, run))
            for entry in following[:20]:
                core.handle(entry.event, entry.now_ns)  # type: ignore[arg-type]
    assert found == {"changed policy", "deadline", "swapped", "preempted", "cached", "under way", "protected"}


def held_in(core: Core, run: Run) -> Iterator[str]:
    if core.limits != run.limits:
        yield "changed policy"
    if core.next_timer_ns:
        yield "deadline"
    if core.step_under_way is not None:
        yield "under way"
    if vars(core.pool)["_evictable"]:
        yield "cached"
    for request in core.requests.values():
        if request.host_blocks:
            yield "swapped"
        if request.status is Status.PREEMPTED:
            yield "preempted"
        if request.is_protected:
            yield "protected"


def loaded_core(policy: str = "fair") -> Core:
    core = Core(replace(Limits(), scheduling_policy=policy, num_kv_blocks=64))
    for number in range(6):
        digests = tuple([bytes([number, place]) * 8 for place in range(9)])
        core.handle(arrived(number, digests), number)
    return core


def arrived(number: int, digests: tuple[bytes, ...] = ()) -> RequestArrived:
    return RequestArrived(number, f"r{number}", f"t{number % 2}", 0, 0, 150, 40, digests, SamplingParams(seed=number))


def test_who_is_one_object_stays_one() -> None:
    core = loaded_core()
    thawed = thaw(core.limits, make_policy, through_a_file(freeze(core)))
    assert thawed.planner.running
    assert all(thawed.requests[request.number] is request for request in thawed.planner.running)
    assert thawed.planner.pool is thawed.pool


@pytest.mark.parametrize("seed", range(40))
def test_a_change_anywhere_is_found_and_named(seed: int) -> None:
    draw = random.Random(seed)
    core = loaded_core()
    state = freeze(core)
    request = draw.choice(list(core.requests.values()))
    name = draw.choice(["num_output_tokens", "num_passes_over", "queued_pass", "chain", "priority", "arrival_ns"])
    setattr(request, name, getattr(request, name) + 1)
    (difference,) = state_differences(through_a_file(state), freeze(core))
    assert difference.field == f"request {request.number}.{name}"
    assert difference.got == difference.expected + 1


def test_a_block_that_is_free_twice_is_refused() -> None:
    core = loaded_core()
    vars(core.pool)["_free"].append(vars(core.pool)["_free"][0])
    with pytest.raises(KeyframeError, match="free twice"):
        thaw(core.limits, make_policy, freeze(core))


def changed(node: Any, draw: random.Random) -> Any:
    """The state with one value in it exchanged."""
    if type(node) is tuple and node and draw.random() < 0.97:
        place = draw.randrange(len(node))
        return (*node[:place], changed(node[place], draw), *node[place + 1 :])
    return draw.choice([None, True, -1, 2**40, "x", b"\0" * 7, (), (0, 10**9), (1, 2), (2, (8, b"123")), 1e999, (4,)])


@pytest.mark.parametrize("seed", range(150))
def test_a_hostile_state_is_refused_or_makes_a_core_that_can_be_asked(seed: int) -> None:
    draw = random.Random(seed)
    limits = loaded_core().limits
    state = changed(freeze(loaded_core()), draw)
    try:
        core = thaw(limits, make_policy, state)
    except KeyframeError:
        return
    assert type(core) is Core


@pytest.mark.parametrize(
    "state",
    [
        (),
        (2, 0, (), None),
        (1, 0, (("os.system", ()),), (1, 0)),
        (1, 0, (("Core", ("limits",)), ("Path", ("x",))), (1, 0, (1, 1, "/"))),
        (1, 0, (("Core", ("_handlers",)),), (1, 0, (4, (0,), (0,)))),
        (1, 0, (("Core", ("requests",)),), (1, 0, (3, 5, (3, b"12345")))),
    ],
    ids=["empty", "newer layout", "no class", "a foreign class", "a field that is left out", "a torn column"],
)
def test_what_is_no_state_is_refused_with_a_reason(state: State) -> None:
    with pytest.raises(KeyframeError, match=r"keyframe|core|column"):
        thaw(Limits(), make_policy, state)


def test_a_field_that_came_later_has_the_value_of_a_new_core() -> None:
    core = loaded_core()
    version, num_steps, classes, node = freeze(core)
    number = [name for name, _fields in classes].index("StarvationGuard")
    older = [(name, fields[1:] if name == "StarvationGuard" else fields) for name, fields in classes]
    state = (version, num_steps, tuple(older), without_first_field(node, number))
    thawed = thaw(core.limits, make_policy, state)
    assert thawed.planner.guard.max_passes_over == core.limits.max_passes_over
    assert list(state_differences(state, freeze(thawed))) == []


def without_first_field(node: Any, number: int) -> Any:
    if type(node) is not tuple:
        return node
    if node[:2] == (1, number):
        node = (*node[:2], *node[3:])
    return tuple([without_first_field(item, number) for item in node])


class Lottery(Policy):
    """An operator's own policy, with plain state or not."""

    def __init__(self, limits: Limits) -> None:
        super().__init__(limits)
        self.drawn: Any = {}

    def rank(self, request: Request, now_ns: int) -> tuple[int, ...]:
        self.drawn.setdefault(request.tenant, []).append(request.number)
        return (len(self.drawn[request.tenant]),)


def own_policy(limits: Limits) -> Policy:
    return Lottery(limits)


def test_an_own_policy_keeps_its_plain_state() -> None:
    core = Core(Limits(scheduling_policy="mine:Lottery"), own_policy)
    core.handle(arrived(3, tuple([bytes([place]) * 16 for place in range(9)])), 5)
    thawed = thaw(core.limits, own_policy, through_a_file(freeze(core)))
    assert isinstance(thawed.planner.policy, Lottery)
    assert thawed.planner.policy.drawn == {"t1": [3]}


def test_an_own_policy_that_keeps_a_set_has_no_keyframes() -> None:
    core = Core(Limits(scheduling_policy="mine:Lottery"), own_policy)
    policy = core.planner.policy
    assert isinstance(policy, Lottery)
    policy.drawn = {1, 2}
    with pytest.raises(KeyframeError, match="own policy holds a set"):
        freeze(core)
