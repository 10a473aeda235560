"""What a machine costs a need, which one is best to lose, and how long it may take to leave."""

from typing import Final

from windtunnel.fleet.penalties import DOLLARS

DRAIN_S: Final = 30.0
"""How long a machine takes to drain, where nobody says."""
RECLAIM_GRACE_S: Final = 600.0
"""How long a machine that its cluster no longer needs has to empty itself."""


def effective_cost(price_per_hour: float, interruption_probability: float, bucket: int) -> float:
    """Dollars by which machines are compared for a need: price, and the risk of losing it.

    The units are mixed on purpose: an hour's price stands against one interruption.
    """
    if interruption_probability <= 0.0:
        return price_per_hour  # a pinned need costs infinitely much only where there is a risk
    return price_per_hour + interruption_probability * DOLLARS[bucket]


def victim_score(gap: int, interruption_bucket: int, reclamation_bucket: int) -> float:
    """How good it is to take a machine from a need `gap` below in priority; larger is better."""
    return (
        gap
        + 0.1 / DRAIN_S
        + 0.1 / max(0.01, DOLLARS[interruption_bucket])
        + 0.1 / max(0.01, DOLLARS[reclamation_bucket])
    )


def preemption_grace_s(gap: int) -> float:
    """How long a victim may take to leave: the further below in priority, the less."""
    if gap > 900_000:
        return 10.0
    if gap > 500_000:
        return 30.0
    return 120.0 if gap > 100_000 else RECLAIM_GRACE_S
