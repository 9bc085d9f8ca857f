"""The parts of the run on a GPU, in order of importance, each with its own limit of seconds.

The limits add up to the whole run, so that no part can take another's time; what a part leaves goes to those after it.
"""

from typing import NamedTuple

TOTAL_SECONDS = 570  # of ten minutes
QUICK_SECONDS = 225  # of four


class Part(NamedTuple):
    """
    shows     in words, for the table
    seconds   that are its own
    where     module:function, imported in the part's own process, called with a Stage; gives an Outcome
    quick     seconds of a quick run; 0: it is no part of one
    """

    name: str
    shows: str
    seconds: int
    where: str
    quick: int = 0


PARTS = (
    Part("machine", "what there is to compute on", 16, "tests.gpu.shown_by_others:machine", 10),
    Part("rows", "P4: a row's bits are its own", 80, "tests.gpu.shown_by_bits:rows_are_their_own", 35),
    Part("promises", "P2, P3, P4: check, follow, isolate", 90, "tests.gpu.shown_by_promises:promises_hold", 50),
    Part("kernels", "each kernel against float64", 50, "tests.gpu.shown_by_kernels:kernels_are_right", 30),
    Part(
        "graphs",
        "a graph gives the bits of its launches",
        25,
        "tests.gpu.shown_by_bits:graphs_give_the_bits_of_launches",
        20,
    ),
    Part("draws", "sampled tokens are the reference's", 12, "tests.gpu.shown_by_draws:draws_are_the_references"),
    Part("pieces", "prefill in pieces, whole, launched", 12, "tests.gpu.shown_by_draws:prefill_in_pieces"),
    Part("large", "an 8B's steps, predicted, stock", 135, "tests.gpu.shown_by_large:large", 80),
    Part("speed", "the model's steps, limits, stock", 45, "tests.gpu.shown_by_speed:speed"),
    Part("tests", "the suite's tests by backend", 45, "tests.gpu.shown_by_others:engine_tests"),
    Part("zoo", "the zoo's load, clean", 25, "tests.gpu.shown_by_promises:the_zoos_load_is_clean"),
    Part("tiles", "tiles that give equal bits", 15, "tests.gpu.shown_by_bits:tiles_that_give_equal_bits"),
    Part("sanitizer", "no access outside of memory", 20, "tests.gpu.shown_by_others:sanitizer"),
)
