"""Of which classes a core's state consists: those of the core, and what of them is left out because it can be had anew.

The registry is closed: a name in a file finds a class of the core or nothing. It must not know values.
"""

from collections.abc import Iterator
from enum import Enum
from typing import Any

from engine.core import (
    admission,
    ahead,
    deadlines,
    decisions,
    drain_rate,
    events,
    expected_output,
    host_pool,
    kv_cache,
    limits,
    planner,
    queue_limits,
    request,
    sampling_params,
    scheduler,
    starvation,
    step_time,
    swap_cost,
    swapping,
    thrash,
    waiting,
)
from engine.core.phases import adaptive, chunked, pools, prefill_first
from engine.core.policies import deadline, fair, fcfs, output_lengths, priority, shortest

_MODULES = (
    *(admission, ahead, deadlines, decisions, drain_rate, events, expected_output, host_pool, kv_cache, limits),
    *(planner, queue_limits, request, sampling_params, scheduler, starvation, step_time, swap_cost, swapping),
    *(thrash, waiting),
    *(adaptive, chunked, pools, prefill_first),
    *(deadline, fair, fcfs, output_lengths, priority, shortest),
)

LEFT_OUT: dict[str, frozenset[str]] = {
    "Core": frozenset({"_make_policy", "_handlers"}),  # functions: a new core has its own
    "Planner": frozenset({"_step"}),  # of the last pass: each pass begins a new one
    "BlockPool": frozenset({"_block_of_digest"}),  # the other index turned round, in the same order
}

LEFT_OUT_IF_NONE: dict[str, frozenset[str]] = {"Core": frozenset({"_ahead"})}  # a core that never plans ahead has none


class KeyframeError(Exception):
    """A state cannot be frozen, or none can be made of what was given: what and why."""


def _all_classes() -> dict[str, type[Any]]:
    found: dict[str, type[Any]] = {}
    for module in _MODULES:
        for item in vars(module).values():
            if isinstance(item, type) and item.__module__ == module.__name__:
                assert found.setdefault(item.__qualname__, item) is item, f"two classes of the core are {item}"
    return found


KNOWN_CLASSES = _all_classes()  # by name: all that these modules define


def is_known(of_class: type[Any]) -> bool:
    return KNOWN_CLASSES.get(of_class.__qualname__) is of_class


def is_record(of_class: type[Any]) -> bool:
    return issubclass(of_class, tuple) and hasattr(of_class, "_fields")


def is_choice(of_class: type[Any]) -> bool:
    return issubclass(of_class, Enum)


def fields_of(value: Any) -> tuple[str, ...]:
    """The names of an instance's attributes that belong to its state, in a fixed order."""
    kind = type(value)
    slots = _SLOTS.get(kind)
    if slots is None:
        slots = _SLOTS[kind] = tuple(_slots(kind))
    names = (*slots, *attributes) if (attributes := getattr(value, "__dict__", ())) else slots
    left_out = LEFT_OUT.get(kind.__qualname__)
    if left_out is None:
        return names
    if_none = LEFT_OUT_IF_NONE.get(kind.__qualname__, ())
    return tuple(
        [name for name in names if name not in left_out and not (name in if_none and getattr(value, name) is None)]
    )


_SLOTS: dict[type[Any], tuple[str, ...]] = {}


def _slots(of_class: type[Any]) -> Iterator[str]:
    """Of the class and its bases; none where instances have a dict alone."""
    for base in reversed(of_class.__mro__):
        slots = vars(base).get("__slots__", ())
        yield from (slots,) if isinstance(slots, str) else slots
