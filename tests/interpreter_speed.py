"""Triton's interpreter, made nearly twice as fast for tests that run hundreds of kernels.

For every kernel, and for every device function that one calls, it replaces the functions of triton.language by its own,
and puts the former back after the kernel. In a process that compiles nothing they may stay.
"""

from collections.abc import Callable
from typing import Any

import triton.language as tl
from triton.runtime import interpreter

_replace: Callable[[Any], Any] = interpreter._patch_lang
_replaced: set[frozenset[int]] = set()


class _Nothing:
    def restore(self) -> None:
        pass


def replace_once() -> None:
    """From now on, for the rest of the process."""
    interpreter._patch_lang = _replace_unless_done


def _replace_unless_done(function: Any) -> _Nothing:
    languages = frozenset(id(each) for each in function.__globals__.values() if each is tl or each is tl.core)
    if languages not in _replaced:
        _replaced.add(languages)
        _replace(function)
    return _Nothing()
