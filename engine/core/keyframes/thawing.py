"""`thaw`: a state → the core that it was taken of. It believes nothing: a state may come from a stranger's file.

Fields that the state lacks, for it was written before they were, have the value that they have in a new core; one that
is not known here is refused. Memory taken is bounded by the bytes of the state, about ninefold.
"""

from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from engine.core.events import RequestArrived
from engine.core.keyframes.classes import KNOWN_CLASSES, LEFT_OUT, KeyframeError, fields_of, is_choice, is_record
from engine.core.keyframes.columns import unpacked
from engine.core.keyframes.freezing import Freezer, State
from engine.core.keyframes.layout import (
    BIG,
    CHOICE,
    DEQUE,
    DICT,
    ITEMS,
    LIST,
    MAX_BIG_BYTES,
    NOTHING,
    OBJECT,
    ORDERED,
    OWN_POLICY,
    RECORD,
    SAME,
    TUPLE,
    VERSION,
)
from engine.core.limits import Limits
from engine.core.phases.registry import PHASES_NAMES, make_phases
from engine.core.policies.interface import PolicyFactory
from engine.core.policies.registry import POLICIES
from engine.core.request import Request
from engine.core.sampling_params import SamplingParams
from engine.core.scheduler import Core
from engine.core.step_time import StepTimeModel

_BLANK = RequestArrived(0, "", "", 0, 0, 1, 1, (), SamplingParams())


def thaw(limits: Limits, make_policy: PolicyFactory, state: State) -> Core:
    """A core as it was when `state` was taken of it.

    limits        those that it began with
    make_policy   as it was given to it
    Raises KeyframeError: the state is damaged, or of another version.
    """
    try:
        version, _num_steps, classes, node = state[:4]
        if version != VERSION:
            raise KeyframeError(f"the keyframe is of layout {version}, this version knows {VERSION}")
        thawed = _Thawer(Core(limits, make_policy), make_policy, classes).core(node)
        thawed.check_invariants()
        return thawed
    except KeyframeError:
        raise
    except Exception as error:  # a stranger's values may be wrong in any way
        raise KeyframeError(f"no core can be made of the keyframe: {type(error).__name__}: {error}") from error


class _Thawer:
    def __init__(self, core: Core, make_policy: PolicyFactory, classes: Sequence[Any]) -> None:
        self._core = core
        self._make_policy = make_policy
        self._classes = [(str(name), tuple(fields)) for name, fields in classes]
        self._new = _new_objects(core)
        self._met: list[Any] = []  # in the order of the walk

    def core(self, node: Any) -> Core:
        if node[0] != OBJECT or self._classes[node[1]][0] != Core.__qualname__:
            raise KeyframeError("the keyframe holds no core")
        self._node(node)
        self._restore_left_out(vars(self._core.pool), vars(self._core.planner))
        return self._core

    def _restore_left_out(self, pool: dict[str, Any], planner: dict[str, Any]) -> None:
        """But for what the new core has by itself."""
        pool["_block_of_digest"] = {digest: block for block, digest in pool["_digest_of_block"].items()}
        planner["_step"] = vars(self._new["Planner"])["_step"]

    def _node(self, node: Any) -> Any:
        kind = type(node)
        if kind is not tuple:
            if kind is float and node - node != 0:  # no order holds with such
                raise KeyframeError(f"the keyframe holds {node}")
            if kind in (type(None), bool, int, float, str, bytes):
                return node
            raise KeyframeError(f"the keyframe holds a {kind.__name__}")
        if node[0] == SAME:
            return self._met[_index(node[1], self._met)]
        if node[0] == OBJECT:
            return self._object(node[1], node[2:])
        return self._value(node)

    def _value(self, node: tuple[Any, ...]) -> Any:
        tag, *rest = node
        if tag == LIST:
            return self._filled([], rest[0])
        if tag == DEQUE:
            return self._filled(deque(maxlen=None if rest[0] < 0 else rest[0]), rest[1])
        if tag in (DICT, ORDERED):
            return self._dict(OrderedDict() if tag == ORDERED else {}, *rest)
        if tag == TUPLE:
            return tuple([self._node(item) for item in rest])
        if tag == RECORD:
            return self._class(rest[0], is_record)(*[self._node(item) for item in rest[1:]])
        if tag == CHOICE:
            return self._class(rest[0], is_choice)(rest[1])
        if tag == BIG and len(rest[0]) <= MAX_BIG_BYTES:
            return int.from_bytes(rest[0], "little", signed=True)
        raise KeyframeError(f"the keyframe holds a node of kind {tag!r}")

    def _filled(self, container: Any, column: tuple[Any, ...]) -> Any:
        self._met.append(container)
        container.extend(self._column(column))
        return container

    def _dict(self, container: dict[Any, Any], keys: tuple[Any, ...], values: tuple[Any, ...]) -> dict[Any, Any]:
        self._met.append(container)
        names = self._column(keys)
        items = [None] * len(names) if values[0] == NOTHING else self._column(values)
        container.update(zip(names, items, strict=True))
        if len(container) != len(names):
            raise KeyframeError("the keyframe holds a key twice")
        return container

    def _column(self, column: tuple[Any, ...]) -> list[Any]:
        if column[0] == ITEMS:
            return [self._node(item) for item in column[1:]]
        found = unpacked(column[0], column[1:])
        if found is None:
            raise KeyframeError(f"the keyframe holds a column of kind {column[0]!r}")
        return found

    def _class(self, number: int, is_kind: Any) -> type[Any]:
        name = self._classes[_index(number, self._classes)][0]
        found = KNOWN_CLASSES.get(name)
        if found is None or not is_kind(found):
            raise KeyframeError(f"the keyframe names a class {name!r}, which this version does not have")
        return found

    def _object(self, number: int, nodes: tuple[Any, ...]) -> Any:
        name, fields = self._classes[_index(number, self._classes)]
        value = self._blank(name)
        self._met.append(value)
        new = self._new.get(name)
        known = fields_of(new) if new is not None else fields  # an own policy's are its own affair
        unknown = [field for field in fields if field not in known]
        if unknown or len(set(fields)) != len(fields):
            raise KeyframeError(f"the keyframe's {name} has fields {unknown}, which this version does not have")
        for field, node in zip(fields, nodes, strict=True):
            object.__setattr__(value, field, self._node(node))
        for field in known:
            if field not in fields:
                object.__setattr__(value, field, _default(name, field, getattr(new, field)))
        return value

    def _blank(self, name: str) -> Any:
        if name == Core.__qualname__:
            if self._met:
                raise KeyframeError("the keyframe holds two cores")
            return self._core
        if name == OWN_POLICY:
            return object.__new__(type(self._make_policy(self._core.limits)))
        if name not in self._new:
            raise KeyframeError(f"the keyframe names a class {name!r}, which no core of this version consists of")
        return object.__new__(type(self._new[name]))


def _new_objects(core: Core) -> dict[str, Any]:
    """One instance of each class that a core may consist of, as it is when it is new."""
    freezer = Freezer()
    policies = [policy(core.limits) for policy in POLICIES.values()]
    phases = [make_phases(replace(core.limits, scheduling_phases=name), StepTimeModel()) for name in PHASES_NAMES]
    freezer.node([core, policies, phases, Request(_BLANK)])
    return freezer.objects


def _default(name: str, field: str, value: Any) -> Any:
    """Of a field that came after the keyframe; what is no plain value of its own cannot be had without its history."""
    if value is None or isinstance(value, bool | int | float | str | bytes):
        return value
    if isinstance(value, list | dict | tuple | deque) and not value:
        return value.copy() if not isinstance(value, tuple) else value
    raise KeyframeError(f"the keyframe was written before {name}.{field} came, which cannot be made up")


def _index(number: Any, items: Sequence[Any]) -> int:
    if type(number) is not int or not 0 <= number < len(items):
        raise KeyframeError(f"the keyframe points to place {number!r} of {len(items)}")
    return number


assert set(LEFT_OUT) == {"Core", "Planner", "BlockPool"}, "what is left out has to be restored"
