"""How long to keep a replica that is not needed: as long as it would take to start it again."""

import math
from typing import Final

from windtunnel.scaling.history import History
from windtunnel.scaling.limiters import LimitContext, Limiter

SURGE: Final = "rate_surge"
"""The evidence of a finding that says how much of its demand is only the end of a line."""
_LONGEST_S: Final = 3600.0
"""No replica is kept longer than this, whatever it takes to start one."""


class Keeping(Limiter):
    """Lets replicas go only after they have not been needed for the time that a start takes.

    A replica that starts is paid for and serves nothing. Keeping one for as long as a start takes
    costs as much as starting it again would, so whatever comes, no more than twice is paid of what
    a policy with foresight would have paid. What was asked for because of a surge is no such
    need: when the surge has ended lower, those that are still starting go at once.
    """

    def __init__(self) -> None:
        super().__init__("keeping")
        self._wanted: Final = History(_LONGEST_S, self.remember("wanted"))

    def limit_group(self, total: int, number: int, context: LimitContext) -> int:
        current = context.groups[number].current
        if total >= current:
            return total
        return min(current, max(total, self._most(number, context)))

    def why(self, before: int, after: int, number: int, context: LimitContext) -> str:
        kept_s = self._kept_s(number, context)
        return (
            f"{after} replicas were needed within the last {kept_s:.0f} s, and one removed now"
            f" would take as long to come back; {before} are needed now."
        )

    def record_group(
        self, recommended: int, decided: int, number: int, context: LimitContext
    ) -> None:
        finding = context.findings[number][0]
        surge, each = finding.evidence.get(SURGE, 0.0), max(finding.per_replica)
        guessed = math.floor(surge / each) if each > 0.0 else 0
        needed = max(0, recommended - guessed)
        self._wanted.add(context.groups[number].key, context.now_s, needed)

    def _most(self, number: int, context: LimitContext) -> int:
        start_s = context.now_s - self._kept_s(number, context)
        return max(self._wanted.since(context.groups[number].key, start_s), default=0)

    def _kept_s(self, number: int, context: LimitContext) -> float:
        return max(variant.spec.startup_s for variant in context.groups[number].variants)
