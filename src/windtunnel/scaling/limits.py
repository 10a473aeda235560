"""Limiters: what stands between a recommendation and a decision, one pure step after another.

A limiter only looks; it learns in `record`, after the decision. So a chain can be run again without
one of them, and an explanation says what would have been decided then.
"""

from typing import Final

from mypy_extensions import mypyc_attr

from windtunnel.scaling.parts import Allocation, Finding, Group, Part


class Context:
    """What limiters of a model may look at."""

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
        self.held: Final = held  # groups without data: nothing limits them, nothing is learnt


@mypyc_attr(allow_interpreted_subclasses=True)
class Limiter(Part):
    """Lowers or raises the totals of a model's groups."""

    def limit(self, totals: list[int], context: Context) -> list[int]:
        """New totals, in the order of the groups; override it where groups depend on each other."""
        limited = []
        for number, total in enumerate(totals):
            if context.held[number]:
                limited.append(total)
            else:
                limited.append(self.limit_group(total, number, context))
        return limited

    def limit_group(self, total: int, number: int, context: Context) -> int:
        raise NotImplementedError

    def why(self, before: int, after: int, number: int, context: Context) -> str:
        """A sentence about a group that it changed."""
        raise NotImplementedError

    def record(self, recommended: list[int], decided: list[int], context: Context) -> None:
        """Learns what was recommended before any limit, and what came of it."""
        for number in range(len(recommended)):
            if not context.held[number]:
                self.record_group(recommended[number], decided[number], number, context)

    def record_group(self, recommended: int, decided: int, number: int, context: Context) -> None:
        """As `record`, for a group that was not held."""


class Accelerators(Limiter):
    """No more than there are accelerators for, where the optimizer minds them."""

    def __init__(self) -> None:
        super().__init__("accelerators")

    def limit_group(self, total: int, number: int, context: Context) -> int:
        current = context.groups[number].current
        if total <= current:
            return total
        reachable = context.allocations[number].reachable()
        return total if reachable < 0 else min(total, max(reachable, current))

    def why(self, before: int, after: int, number: int, context: Context) -> str:
        return f"There are accelerators for {after} replicas, not for {before}."


class Bounds(Limiter):
    """Within the smallest and the largest size, also of a group without data."""

    def __init__(self) -> None:
        super().__init__("bounds")

    def limit(self, totals: list[int], context: Context) -> list[int]:
        limited = []
        for number, total in enumerate(totals):
            group = context.groups[number]
            limited.append(min(max(total, group.minimum), group.maximum))
        return limited

    def why(self, before: int, after: int, number: int, context: Context) -> str:
        if after < before:
            return f"At most {after} replicas are allowed, {before} were wanted."
        return f"At least {after} replicas are asked for, {before} were wanted."


class Work(Limiter):
    """One replica at least where there is work: the last stays, and a queue wakes the first."""

    def __init__(self) -> None:
        super().__init__("work")

    def limit(self, totals: list[int], context: Context) -> list[int]:
        limited = []
        for number, total in enumerate(totals):
            group = context.groups[number]
            awake = total == 0 and group.maximum > 0 and group.work() > 0
            limited.append(1 if awake else total)
        return limited

    def why(self, before: int, after: int, number: int, context: Context) -> str:
        group = context.groups[number]
        work = group.work()
        if group.current == 0:
            return f"{work} requests wait and there is no replica: one is started."
        return f"{work} requests are there: the last replica stays."
