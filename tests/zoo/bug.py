"""A bug of the zoo: a small patch of the real engine, of a kind seen in public, and the load that meets it.

A patch is a list of mutations as `tests/mutants` makes them: a text that occurs once, and what stands in its place.
"""

from typing import NamedTuple

from engine.core.limits import Limits
from tests.mutants.mutation import Mutation
from tests.zoo.loads import Load


class Bug(NamedTuple):
    """
    kind         what it is, in a few words
    seen_in      a public thread about one of its kind; "" where none is as close
    patch        the mutations that plant it
    load         what is served, seed after seed
    uses_model   it is in execution or in what is read back from memory, so a model with weights is served
    predicate    what makes a recording a failure
    find         the command that finds it, after `reprise`; {rec} and {request} are filled in
    proof        the verb that repeats it: execute, check, or diverging check
    seen         what clients and operators saw
    why          what the tools' answers mean, and where the mistake is
    at_pace      the failure depends on a real clock
    """

    name: str
    kind: str
    seen_in: str
    patch: tuple[Mutation, ...]
    load: Load
    uses_model: bool
    predicate: str
    find: str
    proof: str
    seen: str
    why: str
    at_pace: bool = False


def patch(file: str, old: str, new: str) -> Mutation:
    return Mutation("", file, old, new)


def limits(**fields: object) -> Limits:
    usual: dict[str, object] = {
        "block_size": 8,
        "num_kv_blocks": 40,
        "max_model_len": 128,
        "max_num_seqs": 6,
        "max_num_batched_tokens": 24,
        "reserve_output": "none",
        "scheduling_phases": "chunked",
        "watermark_permille": 0,
        "thrash_bound_permille": 0,
    }
    return Limits(**{**usual, **fields})  # type: ignore[arg-type]  # each has the type of its field
