"""Limiters with a memory: windows, rates, the way to zero, and roles that grow together."""

import math
from typing import Final

from windtunnel.scaling.checks import at_least
from windtunnel.scaling.limits import Context, Limiter


class Sustained(Limiter):
    """A direction must be recommended for a whole window before it is taken.

    The clock of a direction starts when it is first recommended, and anew when it is lost or was
    taken. A window of 0 acts at once.
    """

    def __init__(self, up_s: float, down_s: float) -> None:
        super().__init__("stabilization")
        at_least("stabilization.up", up_s)
        at_least("stabilization.down", down_s)
        self._up_s: Final = up_s
        self._down_s: Final = down_s
        self._up_since: Final[dict[str, float]] = {}
        self._down_since: Final[dict[str, float]] = {}

    def limit_group(self, total: int, number: int, context: Context) -> int:
        group = context.groups[number]
        if total > group.current:
            since_s = self._up_since.get(group.key, context.now_s)
            return total if context.now_s - since_s >= self._up_s else group.current
        if total < group.current:
            since_s = self._down_since.get(group.key, context.now_s)
            return total if context.now_s - since_s >= self._down_s else group.current
        return total

    def why(self, before: int, after: int, number: int, context: Context) -> str:
        key = context.groups[number].key
        if before > after:
            since_s, window_s = self._up_since.get(key, context.now_s), self._up_s
            word = "More"
        else:
            since_s, window_s = self._down_since.get(key, context.now_s), self._down_s
            word = "Fewer"
        return f"{word} replicas are asked for since {context.now_s - since_s:g} s of {window_s:g}."

    def record_group(self, recommended: int, decided: int, number: int, context: Context) -> None:
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

    def state(self) -> dict[str, object]:
        return {"up": dict(self._up_since), "down": dict(self._down_since)}

    def restore(self, state: dict[str, object]) -> None:
        for name, since in (("up", self._up_since), ("down", self._down_since)):
            saved = state.get(name)
            if isinstance(saved, dict):
                since.update(saved)


class Rate(Limiter):
    """At most so many replicas more, and so many fewer, within a period; None: any number.

    Counted from the smallest (largest) size that was decided within the period.
    """

    def __init__(self, up: int | None, down: int | None, period_s: float) -> None:
        super().__init__("rate")
        at_least("rate.period", period_s, above=True)
        if up is not None:
            at_least("rate.up", up, 1)
        if down is not None:
            at_least("rate.down", down, 1)
        self._up: Final = up
        self._down: Final = down
        self._period_s: Final = period_s
        self._sizes: Final[dict[str, list[tuple[float, int]]]] = {}

    def limit_group(self, total: int, number: int, context: Context) -> int:
        group = context.groups[number]
        smallest = largest = group.current
        for at_s, size in self._sizes.get(group.key, []):
            if at_s > context.now_s - self._period_s:
                smallest, largest = min(smallest, size), max(largest, size)
        if self._up is not None and total > group.current:
            return min(total, max(group.current, smallest + self._up))
        if self._down is not None and total < group.current:
            return max(total, min(group.current, largest - self._down))
        return total

    def why(self, before: int, after: int, number: int, context: Context) -> str:
        most, word = (self._up, "more") if before > after else (self._down, "fewer")
        return f"At most {most} {word} within {self._period_s:g} s: {after} instead of {before}."

    def record_group(self, recommended: int, decided: int, number: int, context: Context) -> None:
        group = context.groups[number]
        since_s = context.now_s - self._period_s
        kept = [pair for pair in self._sizes.get(group.key, []) if pair[0] > since_s]
        # What it was until now: the size from which a period counts.
        kept.append((context.now_s, group.current))
        self._sizes[group.key] = kept

    def state(self) -> dict[str, object]:
        return {key: [[at_s, size] for at_s, size in sizes] for key, sizes in self._sizes.items()}

    def restore(self, state: dict[str, object]) -> None:
        for key, saved in state.items():
            if isinstance(saved, list):
                self._sizes[key] = [(float(pair[0]), int(pair[1])) for pair in saved]


class ZeroAfter(Limiter):
    """To zero only when nothing arrived and nothing was there for so long."""

    def __init__(self, idle_s: float) -> None:
        super().__init__("zero after")
        at_least("zero_after", idle_s)
        self._idle_s: Final = idle_s
        self._busy: Final[dict[str, float]] = {}

    def limit_group(self, total: int, number: int, context: Context) -> int:
        group = context.groups[number]
        if total > 0 or group.current == 0 or self._idle_for_s(number, context) >= self._idle_s:
            return total
        return 1

    def why(self, before: int, after: int, number: int, context: Context) -> str:
        idle_s = self._idle_for_s(number, context)
        return f"Idle for {idle_s:g} s; the last one goes after {self._idle_s:g} s."

    def record_group(self, recommended: int, decided: int, number: int, context: Context) -> None:
        key = context.groups[number].key
        if _is_busy(number, context) or key not in self._busy:
            self._busy[key] = context.now_s

    def _idle_for_s(self, number: int, context: Context) -> float:
        if _is_busy(number, context):
            return 0.0
        return context.now_s - self._busy.get(context.groups[number].key, context.now_s)

    def state(self) -> dict[str, object]:
        return dict(self._busy)

    def restore(self, state: dict[str, object]) -> None:
        for key, at_s in state.items():
            if isinstance(at_s, int | float):
                self._busy[key] = float(at_s)


def _is_busy(number: int, context: Context) -> bool:
    group = context.groups[number]
    return group.model.flow.arrived > 0 or group.work() > 0


class Matched(Limiter):
    """Roles grow in the same proportion: where one cannot get all it asks for, none does.

    A role that has no room at all does not hold the others back.
    """

    def __init__(self) -> None:
        super().__init__("matched roles")

    def limit(self, totals: list[int], context: Context) -> list[int]:
        least = self._share(totals, context)
        limited = []
        for number, total in enumerate(totals):
            more = total - context.groups[number].current
            if more > 0 and least < 1:
                limited.append(total - more + max(1, math.floor(least * more)))
            else:
                limited.append(total)
        return limited

    def why(self, before: int, after: int, number: int, context: Context) -> str:
        return f"Another role has no room for its part: {after} instead of {before}."

    def _share(self, totals: list[int], context: Context) -> float:
        """The smallest part of its wish that a role can have."""
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
