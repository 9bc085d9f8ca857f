"""Where every draw of the load comes from: a generator for a key, equal on every machine and in every process.

The only file of the package that imports `random`: load is drawn from a seed, and no decision of ours depends on it.
"""

from random import Random

Draws = Random


def draws_for(*key: object) -> Draws:
    """A generator of its own for `key`, whose parts are written out: no hash order, no state shared with another."""
    return Random("/".join(map(str, key)))  # a str seed goes through SHA-512, not through hash()
