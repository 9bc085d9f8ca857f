"""The garbage collector's long passes, kept out of the way of answers.

A full pass looks at every object there is: 0.3 s of the CPU with 2,500 streams open, in which no byte is sent and no
probe answered, and it finds next to nothing, for what is no cycle is freed without it. So what the start has made is
never looked at again, the young are looked at as ever, and full passes wait for a moment without any request.
"""

import asyncio
import gc
from collections.abc import Callable

LOOK_SECONDS = 10.0
YOUNG, MIDDLE = 5_000, 20  # objects made, and passes over these, before the next older are looked at too
_SELDOM = 10_000  # passes over the middle ones before a full one where no moment is quiet


async def collect_at_quiet_times(is_busy: Callable[[], bool]) -> None:
    """From the moment at which all is loaded, until it is cancelled."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, MIDDLE, _SELDOM)
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        if not is_busy():
            gc.collect()
