"""How long to keep a replica that is not needed: as long as starting it again would take."""

import math
from typing import Final

from windtunnel.scaling.history import History
from windtunnel.scaling.limiters import LimitContext, Limiter

SURGE: Final = "rate_surge"
"""The evidence that says how much of a finding's demand is extrapolated from a surge."""
_LONGEST_S: Final = 3600.0
"""No replica is kept longer than this, however long a start takes."""


class Keeping(Limiter):
    """Removes replicas only after they have not been needed for as long as a start takes.

    A starting replica costs money and serves nothing. Keeping one for the time of a start costs as
    much as starting it again, so in any case the cost is at most twice that of a policy with
    foresight. Replicas requested for a surge do not count as needed: if the surge ends lower, those
    that are still starting are removed at once.
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
        guessed = 0
        if each > 0.0:
            guessed = math.ceil(finding.demand / each) - math.ceil((finding.demand - surge) / each)
        needed = max(0, recommended - guessed)
        self._wanted.note(context.groups[number].key, context.now_s, needed)

    def _most(self, number: int, context: LimitContext) -> int:
        start_s = context.now_s - self._kept_s(number, context)
        return max(self._wanted.since(context.groups[number].key, start_s), default=0)

    def _kept_s(self, number: int, context: LimitContext) -> float:
        return max(variant.spec.startup_s for variant in context.groups[number].variants)
