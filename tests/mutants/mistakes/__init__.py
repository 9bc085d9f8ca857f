"""Mistakes that a scheduler, its cache and its swapping could have, by area; each is a replacement of text in one file.

Every one is a real mistake: it breaks a promise, or changes what is recorded about it.
    cache       the pool of blocks and its prefix index
    running     what those that run get of a step, and who gives way
    waiting     the queue's order, and who is let in
    guard       the starvation guard
    admission   admission control and the thrash controller
    core        what events do to requests, the queue's bounds, what ends them
    policies    the policies, their succession, and the ways to mix phases
    swapping    the host pool, whom it is for, and what copies cost
"""

from tests.mutants.mistakes.admission import ADMISSION
from tests.mutants.mistakes.cache import CACHE
from tests.mutants.mistakes.core import CORE
from tests.mutants.mistakes.guard import GUARD
from tests.mutants.mistakes.policies import POLICIES
from tests.mutants.mistakes.running import RUNNING
from tests.mutants.mistakes.swapping import SWAPPING
from tests.mutants.mistakes.waiting import WAITING

MUTATIONS = (*CACHE, *RUNNING, *WAITING, *GUARD, *ADMISSION, *CORE, *POLICIES, *SWAPPING)
