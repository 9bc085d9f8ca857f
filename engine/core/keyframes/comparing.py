"""Where two states differ, named by the fields on the way. Fields that only one version knows are not compared."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from engine.core.keyframes.columns import unpacked
from engine.core.keyframes.freezing import State
from engine.core.keyframes.layout import (
    CHOICE,
    DEQUE,
    DICT,
    ITEMS,
    LIST,
    NOTHING,
    OBJECT,
    ORDERED,
    RECORD,
    SAME,
    TUPLE,
)


class StateDifference(NamedTuple):
    """One field, as frozen then and now; None on the side that has no such field."""

    field: str
    expected: Any
    got: Any


def state_differences(recorded: State, now: State) -> Iterator[StateDifference]:
    """In the order of the walk. Nothing for equal states, at the cost of one comparison."""
    if recorded[:4] == now[:4]:
        return
    then, here = _Unfolded(recorded), _Unfolded(now)
    ignored = {path for path in then.fields.keys() | here.fields.keys() if _is_of_one_version(path, then, here)}
    for path in dict.fromkeys([*then.leaves, *here.leaves]):
        left, right = then.leaves.get(path), here.leaves.get(path)
        if (left != right or type(left) is not type(right)) and not any(path.startswith(each) for each in ignored):
            yield StateDifference(path, left, right)


def _is_of_one_version(path: str, then: "_Unfolded", here: "_Unfolded") -> bool:
    """A field of an object that both have, which only one side's class knows."""
    if path in then.fields and path in here.fields:
        return False
    owner = (then.fields.get(path) or here.fields.get(path) or ("",))[0]
    return owner in then.objects and owner in here.objects and then.objects[owner] == here.objects[owner]


class _Unfolded:
    """
    leaves    path → plain value; of a container its length, of what was met before where that was
    fields    path of a field → (path of its object or record)
    objects   path of an object or a record → its class
    """

    def __init__(self, state: State) -> None:
        self.leaves: dict[str, Any] = {}
        self.fields: dict[str, tuple[str]] = {}
        self.objects: dict[str, str] = {}
        self._classes = state[2]
        self._met: list[str] = []
        self._unfold(state[3], "core")

    def _unfold(self, node: Any, path: str) -> None:
        if type(node) is not tuple:
            self.leaves[path] = node
            return
        tag, *rest = node
        if tag == SAME:
            self.leaves[path] = f"the same as {self._met[rest[0]]}"
        elif tag == OBJECT:
            self._unfold_object(rest[0], rest[1:], path)
        elif tag == RECORD:
            name, fields = self._classes[rest[0]]
            self._unfold_fields(name, fields, rest[1:], path)
        elif tag in (LIST, DEQUE):
            self._met.append(path)
            self._unfold_items(_items(rest[-1]), path)
        elif tag in (DICT, ORDERED):
            self._met.append(path)
            self._unfold_dict(rest[0], rest[1], path)
        elif tag == TUPLE:
            self._unfold_items(rest, path)
        elif tag == CHOICE:
            self.leaves[path] = rest[1]
        else:
            self.leaves[path] = rest[0]

    def _unfold_object(self, number: int, nodes: list[Any], path: str) -> None:
        name, fields = self._classes[number]
        if name == "Request":
            path = f"request {nodes[fields.index('number')]}"
        self._met.append(path)
        self._unfold_fields(name, fields, nodes, path)

    def _unfold_fields(self, name: str, fields: tuple[str, ...], nodes: list[Any], path: str) -> None:
        self.objects[path] = name
        for field, node in zip(fields, nodes, strict=True):
            self.fields[f"{path}.{field}"] = (path,)
            self._unfold(node, f"{path}.{field}")

    def _unfold_items(self, items: Any, path: str) -> None:
        self.leaves[f"len({path})"] = len(items)
        for index, item in enumerate(items):
            self._unfold(item, f"{path}[{index}]")

    def _unfold_dict(self, keys: tuple[Any, ...], values: tuple[Any, ...], path: str) -> None:
        names = _items(keys)
        self._unfold_items(names, f"keys of {path}")
        items = [None] * len(names) if values[0] == NOTHING else _items(values)
        for name, item in zip(names, items, strict=True):
            self._unfold(item, f"{path}[{name!r}]")


def _items(column: tuple[Any, ...]) -> Any:
    return column[1:] if column[0] == ITEMS else unpacked(column[0], column[1:])
