"""How evenly several tenants were served, who asked for unequal amounts: against what each should have had.

What was served in all is shared out max-min, by weight: nobody gets more than it asked for, and what it leaves is the
others'. Jain's index over (served / share) is 1 when each got its share, and 1 / n when one got all.

Source: Jain, Chiu and Hawe, A Quantitative Measure of Fairness, DEC TR-301, 1984; max-min as in Bertsekas and Gallager,
Data Networks, section 6.5.
"""

from collections.abc import Mapping, Sequence


def jains_index(values: Sequence[float]) -> float:
    """1/n to 1; 1 of nothing."""
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else 1.0


def max_min_shares(asked: Mapping[str, float], total: float, weights: Mapping[str, float]) -> dict[str, float]:
    """`total`, or as much of it as is asked for, shared out; a tenant without a weight has weight 1."""
    shares: dict[str, float] = {}
    for tenant in sorted(asked, key=lambda name: (asked[name] / weights.get(name, 1), name)):
        left = [name for name in asked if name not in shares]
        weight = weights.get(tenant, 1)
        fair = total * weight / sum(weights.get(name, 1) for name in left)
        shares[tenant] = min(asked[tenant], fair)
        total -= shares[tenant]
    return shares


def fairness(asked: Mapping[str, float], served: Mapping[str, float], weights: Mapping[str, float]) -> float:
    """Jain's index over the tenants who asked for anything."""
    shares = max_min_shares({name: value for name, value in asked.items() if value}, sum(served.values()), weights)
    return jains_index([served.get(tenant, 0) / share for tenant, share in shares.items() if share])
