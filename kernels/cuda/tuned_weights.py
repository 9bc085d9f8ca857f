"""A model's weights with the tiles that serve them best on this device, and what that says of their bits.

It is done once, at load: each shape that the model has is looked up among the choices kept on disk, or compared and
measured now. Without measuring, the plans stay as they are and are only shown to give equal bits whatever the rows.
"""

import hashlib
import json
from collections.abc import Sequence
from typing import NamedTuple

from kernels.cuda.autotune import Bench, Choice, NotInvariant, choose, same_bits
from kernels.cuda.tile_cache import TileCache
from kernels.cuda.tiles import Shape, candidates, default_plan
from kernels.cuda.weights import Weight


class Tuned(NamedTuple):
    """
    weights   the given, in their order, with other plans
    bits      digest of what every shape's tiles give on fixed inputs: belongs in the numerics class. Equal with and
              without measuring
    notice    why choices could not be kept; "" where they were
    """

    weights: list[Weight]
    bits: str
    notice: str


def tune(weights: Sequence[Weight], bench: Bench, cache: TileCache | None, is_measured: bool = True) -> Tuned:
    """
    cache         None: measured anew each time
    is_measured   False: the default plans, whose tiles must all have the same bits
    Raises NotInvariant.
    """
    shapes = list(dict.fromkeys(part.shape for weight in weights for part in weight.parts))
    kept = {shape: cache.get(shape) if cache and is_measured else None for shape in shapes}
    choices = {shape: known or _chosen(shape, bench, is_measured) for shape, known in kept.items()}
    new = {shape: choice for shape, choice in choices.items() if kept[shape] is None}
    tuned = [weight.with_plans([choices[part.shape].plan for part in weight.parts]) for weight in weights]
    return Tuned(tuned, _digest(choices), _keep(cache, new) if cache and is_measured and new else "")


def _chosen(shape: Shape, bench: Bench, is_measured: bool) -> Choice:
    if is_measured:
        return choose(shape, candidates(shape), bench)
    plan = default_plan(shape)
    bits, members = same_bits(shape, plan.tiles, bench)
    if len(members) < len(plan.tiles):
        raise NotInvariant(
            f"the tiles {plan.tiles} of {shape} differ in bits, though they add in one order: "
            "let tiles be measured, which leaves out what differs, or choose another backend"
        )
    return Choice(plan, bits)


def _keep(cache: TileCache, choices: dict[Shape, Choice]) -> str:
    try:
        cache.keep(choices)
    except OSError as error:
        return f"the choice of tiles could not be kept in {cache.path} and is made again at the next start: {error}"
    return ""


def _digest(choices: dict[Shape, Choice]) -> str:
    parts = sorted([str(shape), list(choice.plan.order), choice.bits] for shape, choice in choices.items())
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]
