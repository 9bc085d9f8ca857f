"""Slices narrower than a pixel become one per pixel and row: nothing is dropped, and what was there can be summed.

A merged slice bears the kind that takes the most of it, from the first one's begin to the last one's end; `busy` is
the sum of its parts' lengths, `num_parts` how many they are.
"""

from typing import NamedTuple

import numpy as np

from replay.viewer.framing import Array

MERGED, GOES_ON = 1, 2


class Slices(NamedTuple):
    """By row, in each in order of `begin`; every array as long as the others."""

    row: Array
    kind: Array
    flags: Array
    begin: Array
    end: Array
    busy: Array
    tokens: Array
    num_parts: Array


def merged(slices: Slices, pixel: float) -> Slices:
    """Slices of at least a pixel stay as they are; narrower neighbours of one row that begin in one pixel join.

    pixel   its width on the axis; above 0
    """
    if len(slices.row) < 2:
        return slices
    narrow = slices.end - slices.begin < pixel
    place = np.floor(slices.begin / pixel)
    begins = np.ones(len(slices.row), bool)
    begins[1:] = (
        (slices.row[1:] != slices.row[:-1]) | (place[1:] != place[:-1]) | ~narrow[1:] | ~narrow[:-1]
    )  # not what joins the one before
    firsts = np.flatnonzero(begins)
    if len(firsts) == len(begins):
        return slices
    count = np.add.reduceat(slices.num_parts, firsts)
    lasts = np.append(firsts[1:], len(begins)) - 1
    flags = np.bitwise_or.reduceat(slices.flags, firsts) | np.where(lasts > firsts, MERGED, 0).astype(np.uint8)
    return Slices(
        slices.row[firsts],
        _longest_kind(slices, firsts),
        flags,
        slices.begin[firsts],
        np.maximum.reduceat(slices.end, firsts),
        np.add.reduceat(slices.busy, firsts),
        np.add.reduceat(slices.tokens, firsts),
        count,
    )


def _longest_kind(slices: Slices, firsts: Array) -> Array:
    """Of each group the kind with the greatest sum of lengths; of equal ones the one with the greater number."""
    longest = np.full(len(firsts), -1.0)
    found = np.zeros(len(firsts), np.uint8)
    for kind in np.unique(slices.kind):
        lengths = np.add.reduceat(np.where(slices.kind == kind, slices.busy, 0.0), firsts)
        present = np.logical_or.reduceat(slices.kind == kind, firsts)
        better = present & (lengths >= longest)
        longest[better], found[better] = lengths[better], kind
    return found
