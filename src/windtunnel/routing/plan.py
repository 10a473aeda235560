"""How servers are chosen, with every default filled in: the values that a router is built from."""

import msgspec


class ScorerPlan(msgspec.Struct, frozen=True):
    """One opinion about servers, and how much it counts beside the others."""

    name: str
    weight: float


class RouterPlan(msgspec.Struct, frozen=True):
    """How a server is chosen for a request."""

    policy: str
    """A name of `POLICIES`, the dotted path of a class, or the name of an entry point."""
    scorers: tuple[ScorerPlan, ...] = ()
    staleness_s: float = 0.05
    """How old signals may grow before servers are asked again."""
    cache_delay_s: float = 0.05
    """How old the picture of what servers have cached may grow."""
    counterfactual: int = 0
    """Of how many other servers the scores are noted for each request."""
    virtual_nodes: int = 100
    """Places of each server on the ring of `consistent-hash`."""
    folder: str = "."
    """Where modules of policies of your own are looked for first: beside the scenario."""
    load_factor: float = 1.25
    """How far above the mean a server of the ring may be loaded."""
