"""Limiters: the steps from a recommendation to a decision.

`limit` has no side effects; a limiter learns only in `record`, after the decision. A chain can thus
be run again without one of its limiters, to explain what would have been decided then.
"""

import math
from typing import Final, final

from mypy_extensions import mypyc_attr

from windtunnel.scaling.analyzers import Finding, Group, PolicyPart
from windtunnel.scaling.history import History
from windtunnel.scaling.optimizers import Allocation


class LimitContext:
    """The input of a model's limiters."""

    def __init__(
        self,
        now_s: float,
        groups: list[Group],
        findings: list[list[Finding]],
        allocations: list[Allocation],
        held: list[bool],
    ) -> None:
        self.now_s: Final = now_s
        self.groups: Final = groups
        self.findings: Final = findings
        self.allocations: Final = allocations
        self.held: Final = held  # groups without data, which are neither limited nor learned from


@mypyc_attr(allow_interpreted_subclasses=True)
class Limiter(PolicyPart):
    """Lowers or raises the totals of a model's groups; with a `pool`, of those led by that pool."""

    def __init__(self, name: str, pool: str = "") -> None:
        super().__init__(f"{name} of {pool}" if pool else name)
        self._pool: Final = pool

    def limit(self, totals: list[int], context: LimitContext) -> list[int]:
        """Returns the new totals by group; override it where groups depend on each other."""
        limited = []
        for number, total in enumerate(totals):
            if self._skips(number, context):
                limited.append(total)
            else:
                limited.append(self.limit_group(total, number, context))
        return limited

    def limit_group(self, total: int, number: int, context: LimitContext) -> int:
        raise NotImplementedError

    def why(self, before: int, after: int, number: int, context: LimitContext) -> str:
        """A sentence that explains a change to a group."""
        raise NotImplementedError

    def record(self, recommended: list[int], decided: list[int], context: LimitContext) -> None:
        """Learns from the recommendation before any limit and from the final decision."""
        for number in range(len(recommended)):
            if not self._skips(number, context):
                self.record_group(recommended[number], decided[number], number, context)

    def record_group(
        self, recommended: int, decided: int, number: int, context: LimitContext
    ) -> None:
        """As `record`, for one group with data."""

    @final
    def _skips(self, number: int, context: LimitContext) -> bool:
        """Whether it does not apply to a group: one without data, or of another pool."""
        if context.held[number]:
            return True
        return self._pool != "" and context.groups[number].variants[0].name != self._pool


class AcceleratorLimiter(Limiter):
    """Limits growth to the available accelerators, if the optimizer respects them."""

    def __init__(self) -> None:
        super().__init__("accelerators")

    def limit_group(self, total: int, number: int, context: LimitContext) -> int:
        current = context.groups[number].current
        if total <= current:
            return total
        reachable = context.allocations[number].reachable()
        return total if reachable < 0 else min(total, max(reachable, current))

    def why(self, before: int, after: int, number: int, context: LimitContext) -> str:
        return f"Accelerators are available for {after} replicas, not for {before}."


class BoundsLimiter(Limiter):
    """Keeps sizes between minimum and maximum, also of groups without data."""

    def __init__(self) -> None:
        super().__init__("bounds")

    def limit(self, totals: list[int], context: LimitContext) -> list[int]:
        limited = []
        for number, total in enumerate(totals):
            group = context.groups[number]
            limited.append(min(max(total, group.minimum), group.maximum))
        return limited

    def why(self, before: int, after: int, number: int, context: LimitContext) -> str:
        if after < before:
            return f"The maximum is {after} replicas; {before} were recommended."
        return f"The minimum is {after} replicas; {before} were recommended."


class WorkLimiter(Limiter):
    """Keeps one replica while there is work: the last one stays, and a queue starts the first."""

    def __init__(self) -> None:
        super().__init__("work")

    def limit(self, totals: list[int], context: LimitContext) -> list[int]:
        limited = []
        for number, total in enumerate(totals):
            group = context.groups[number]
            awake = total == 0 and group.maximum > 0 and group.may_have_work()
            limited.append(1 if awake else total)
        return limited

    def why(self, before: int, after: int, number: int, context: LimitContext) -> str:
        group = context.groups[number]
        work = group.work()
        if group.current == 0:
            return f"{work} requests are waiting and there is no replica: one is started."
        if work == 0:
            return f"{group.missing} replicas did not answer: the last replica is kept."
        return f"{work} requests are in the system: the last replica is kept."


class SustainedLimiter(Limiter):
    """A direction must be recommended for a whole window before it is followed.

    The window of a direction starts when it is first recommended, and again after a break or a
    change of size. A window of 0 takes effect at once.
    """

    def __init__(self, up_s: float, down_s: float) -> None:
        super().__init__("stabilization")
        self._up_s: Final = up_s
        self._down_s: Final = down_s
        self._up_since: Final[dict[str, float]] = self.remember("up")
        self._down_since: Final[dict[str, float]] = self.remember("down")

    def limit_group(self, total: int, number: int, context: LimitContext) -> int:
        group = context.groups[number]
        if total > group.current:
            since_s = self._up_since.get(group.key, context.now_s)
            return total if context.now_s - since_s >= self._up_s else group.current
        if total < group.current:
            since_s = self._down_since.get(group.key, context.now_s)
            return total if context.now_s - since_s >= self._down_s else group.current
        return total

    def why(self, before: int, after: int, number: int, context: LimitContext) -> str:
        key = context.groups[number].key
        if before > after:
            since_s, window_s = self._up_since.get(key, context.now_s), self._up_s
            word = "More"
        else:
            since_s, window_s = self._down_since.get(key, context.now_s), self._down_s
            word = "Fewer"
        held_s = context.now_s - since_s
        return f"{word} replicas were recommended for {held_s:g} s of a {window_s:g} s window."

    def record_group(
        self, recommended: int, decided: int, number: int, context: LimitContext
    ) -> None:
        group = context.groups[number]
        taken = decided != group.current
        if recommended > group.current and not taken:
            self._up_since.setdefault(group.key, context.now_s)
        else:
            self._up_since.pop(group.key, None)
        if recommended < group.current and not taken:
            self._down_since.setdefault(group.key, context.now_s)
        else:
            self._down_since.pop(group.key, None)


class RateLimiter(Limiter):
    """Maximum replicas added, and removed, within a period; None: no limit.

    Counted from the smallest (largest) size within the period.
    """

    def __init__(self, up: int | None, down: int | None, period_s: float) -> None:
        super().__init__("rate")
        self._up: Final = up
        self._down: Final = down
        self._period_s: Final = period_s
        self._sizes: Final = History(period_s, self.remember("sizes"))

    def limit_group(self, total: int, number: int, context: LimitContext) -> int:
        group = context.groups[number]
        if total == group.current:
            return total
        smallest = largest = group.current
        for size in self._sizes.since(group.key, context.now_s - self._period_s):
            smallest, largest = min(smallest, size), max(largest, size)
        if self._up is not None and total > group.current:
            return min(total, max(group.current, smallest + self._up))
        if self._down is not None and total < group.current:
            return max(total, min(group.current, largest - self._down))
        return total

    def why(self, before: int, after: int, number: int, context: LimitContext) -> str:
        most, word = (self._up, "more") if before > after else (self._down, "fewer")
        return f"At most {most} {word} per {self._period_s:g} s: {after} instead of {before}."

    def record_group(
        self, recommended: int, decided: int, number: int, context: LimitContext
    ) -> None:
        group = context.groups[number]
        # The size until now, from which a period counts.
        self._sizes.note(group.key, context.now_s, group.current)


class ZeroAfterLimiter(Limiter):
    """Scales to zero only after this long without arrivals and without work."""

    def __init__(self, idle_s: float) -> None:
        super().__init__("zero after")
        self._idle_s: Final = idle_s
        self._busy: Final[dict[str, float]] = self.remember("busy")

    def limit_group(self, total: int, number: int, context: LimitContext) -> int:
        group = context.groups[number]
        if total > 0 or group.current == 0 or self._idle_for_s(number, context) >= self._idle_s:
            return total
        return 1

    def why(self, before: int, after: int, number: int, context: LimitContext) -> str:
        idle_s = self._idle_for_s(number, context)
        return f"Idle for {idle_s:g} s; the last replica is removed after {self._idle_s:g} s."

    def record_group(
        self, recommended: int, decided: int, number: int, context: LimitContext
    ) -> None:
        key = context.groups[number].key
        if _is_busy(number, context) or key not in self._busy:
            self._busy[key] = context.now_s

    def _idle_for_s(self, number: int, context: LimitContext) -> float:
        if _is_busy(number, context):
            return 0.0
        return context.now_s - self._busy.get(context.groups[number].key, context.now_s)


def _is_busy(number: int, context: LimitContext) -> bool:
    group = context.groups[number]
    return group.model.flow.arrived > 0 or group.may_have_work()


class MatchedRolesLimiter(Limiter):
    """Roles grow in proportion: if one gets only part of what it asks for, so do the others.

    A role without any room does not hold the others back.
    """

    def __init__(self) -> None:
        super().__init__("matched roles")

    def limit(self, totals: list[int], context: LimitContext) -> list[int]:
        least = self._share(totals, context)
        limited = []
        for number, total in enumerate(totals):
            more = total - context.groups[number].current
            if more > 0 and least < 1:
                limited.append(total - more + max(1, math.floor(least * more)))
            else:
                limited.append(total)
        return limited

    def why(self, before: int, after: int, number: int, context: LimitContext) -> str:
        return f"Another role cannot grow in proportion: {after} instead of {before}."

    def _share(self, totals: list[int], context: LimitContext) -> float:
        """The smallest fraction of its requested growth that any role can have."""
        least = 1.0
        for number, total in enumerate(totals):
            group = context.groups[number]
            most = group.maximum
            reachable = context.allocations[number].reachable()
            if reachable >= 0:
                most = min(most, reachable)
            room = most - group.current
            if total > group.current and room > 0:
                least = min(least, room / (total - group.current))
        return least
