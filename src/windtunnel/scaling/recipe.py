"""What a policy is made of, before a scenario has its say."""

from windtunnel.scaling.limits import Limiter
from windtunnel.scaling.parts import Analyzer, Optimizer
from windtunnel.scaling.plan import StabilizationPlan


class Recipe:
    """The parts of a policy's own. What a scenario says of the others takes their place.

    `limiters` come first; the windows of `stabilization` are taken where a scenario gives none, and
    None says that the limiters have what it takes.
    """

    def __init__(
        self,
        analyzers: list[Analyzer],
        optimizer: Optimizer | None = None,
        limiters: list[Limiter] | None = None,
        *,
        stabilization: StabilizationPlan | None = None,
        by_variant: bool = False,
        together: bool = False,
    ) -> None:
        self.analyzers = analyzers
        self.optimizer = optimizer
        self.limiters = limiters or []
        self.stabilization = stabilization
        self.by_variant = by_variant
        self.together = together
