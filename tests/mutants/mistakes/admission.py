"""Mistakes in admission control and the thrash controller."""

from tests.mutants.mutation import Mutation

_SCHEDULER = "engine/core/scheduler.py"
_ADMISSION = "engine/core/admission.py"
_THRASH = "engine/core/thrash.py"

ADMISSION = (
    Mutation(
        "the watermark is a block too low",
        _ADMISSION,
        "if self._pool.num_free - num_needed < watermark_blocks:",
        "if self._pool.num_free - num_needed < watermark_blocks - 1:",
    ),
    Mutation(
        "expected growth is forgotten",
        _ADMISSION,
        "own_tokens + count * (left + size // 2)",
        "own_tokens",
    ),
    Mutation(
        "a refusal outlives the end of those that caused it",
        _ADMISSION,
        '(While nobody does, all grow as was expected of them.)"""\n        self._refused = None\n',
        '(While nobody does, all grow as was expected of them.)"""\n',
    ),
    Mutation(
        "lengths are learned from cancelled requests",
        _ADMISSION,
        "        if reason in _OWN_ENDS:\n",
        "        if True:\n",
    ),
    Mutation(
        "thrashing ends as soon as it falls below the bound",
        _THRASH,
        "2 * share < self._bound",
        "share < self._bound",
    ),
    Mutation(
        "the watermark is never raised",
        _THRASH,
        "max(first, 2 * self.watermark_blocks)",
        "self.watermark_blocks",
    ),
    Mutation(
        "a recomputed token counts as new",
        _SCHEDULER,
        "total += min(start + count, request.num_once_computed) - start",
        "total += 0",
    ),
)
