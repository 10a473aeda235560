"""Decisions of an autoscaler: how many replicas each variant should have, and why."""

from typing import Final

from windtunnel.core.telemetry import Plain
from windtunnel.scaling.snapshot import Variant


class Limit:
    """A step between the recommendation and the decision: which limit applied, and by how much."""

    def __init__(self, name: str, before: int, after: int, without: int, reason: str) -> None:
        self.name: Final = name  # e.g. "maximum", "scale-down window", "panic"
        self.before: Final = before
        self.after: Final = after
        self.without: Final = without  # what would have been decided without this limit
        self.reason: Final = reason  # a sentence with the numbers

    def as_data(self) -> dict[str, Plain]:
        return {
            "name": self.name,
            "before": self.before,
            "after": self.after,
            "without": self.without,
            "reason": self.reason,
        }


class Decision:
    """The size that a variant should have, and the reason, also when nothing changes."""

    def __init__(
        self,
        model: str,
        variant: str,
        *,
        current: int,
        recommended: int,
        target: int,
        reason: str,
        metrics: dict[str, float],
        limits: list[Limit],
    ) -> None:
        self.model: Final = model
        self.variant: Final = variant
        self.current: Final = current  # the size requested so far
        self.recommended: Final = recommended  # before any limit
        self.target: Final = target  # the size from now on
        self.reason: Final = reason
        self.metrics: Final = metrics  # the numbers that it is based on
        self.limits: Final = limits  # only those that changed it, in order

    @property
    def changes(self) -> bool:
        return self.target != self.current

    def as_data(self) -> dict[str, Plain]:
        """Returns its numbers as plain data, for events."""
        limits: list[Plain] = [limit.as_data() for limit in self.limits]
        return {
            "current": self.current,
            "recommended": self.recommended,
            "target": self.target,
            "metrics": dict(self.metrics),
            "limits": limits,
        }


def hold(model: str, variant: Variant, reason: str) -> Decision:
    """Decides that a variant stays as it is."""
    return Decision(
        model,
        variant.name,
        current=variant.target,
        recommended=variant.target,
        target=variant.target,
        reason=reason,
        metrics={},
        limits=[],
    )
