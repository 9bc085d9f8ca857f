"""The parts of the run on a GPU, in order of importance, each with its own limit of seconds."""

from typing import NamedTuple

TOTAL_SECONDS = 570  # of ten minutes


class Part(NamedTuple):
    """
    shows     in words, for the table
    seconds   it may take
    where     module:function, imported in the part's own process, called with a Stage; gives an Outcome
    """

    name: str
    shows: str
    seconds: int
    where: str


PARTS = (
    Part("machine", "what there is to compute on", 60, "tests.gpu.shown_by_others:machine"),
    Part("kernels", "each kernel against float64", 90, "tests.gpu.shown_by_kernels:kernels_are_right"),
    Part("rows", "a row's bits are its own", 150, "tests.gpu.shown_by_bits:rows_are_their_own"),
    Part("promises", "check, follow, isolate, preempt, swap", 120, "tests.gpu.shown_by_promises:promises_hold"),
    Part(
        "graphs",
        "a graph gives the bits of its launches",
        60,
        "tests.gpu.shown_by_bits:graphs_give_the_bits_of_launches",
    ),
    Part("draws", "sampled tokens are the reference's", 30, "tests.gpu.shown_by_draws:draws_are_the_references"),
    Part("pieces", "prefill in pieces, whole, launched", 30, "tests.gpu.shown_by_draws:prefill_in_pieces"),
    Part("speed", "steps against limits and stock torch", 150, "tests.gpu.shown_by_speed:speed"),
    Part("tiles", "tiles that give equal bits", 60, "tests.gpu.shown_by_bits:tiles_that_give_equal_bits"),
    Part("zoo", "the zoo's load, clean", 60, "tests.gpu.shown_by_promises:the_zoos_load_is_clean"),
    Part("tests", "the suite's tests by backend", 120, "tests.gpu.shown_by_others:engine_tests"),
    Part("sanitizer", "no access outside of memory", 60, "tests.gpu.shown_by_others:sanitizer"),
)
