"""How fast a size may follow its recommendation: windows, rates, panic and bounds, each named.

"Or" takes the looser of the two rate limits and "And" the stricter; both count from the extreme
size of the last period, so that several small steps do not circumvent them.
"""

from dataclasses import dataclass
from typing import Any, Final

from windtunnel.scaling.analyzers import Group
from windtunnel.scaling.limiters import LimitContext, Limiter
from windtunnel.scaling.policies.kthena.recommend import LARGEST
from windtunnel.scaling.policies.kthena.settings import (
    OR,
    Behavior,
    BehaviorPace,
    KthenaSettings,
)

PANIC_RATE: Final = "panic rate"
PANIC_HOLD: Final = "panic hold"
DOWN_WINDOW: Final = "scale-down window"
DOWN_RATE: Final = "scale-down rate"
UP_WINDOW: Final = "scale-up window"
UP_RATE: Final = "scale-up rate"
Timeline = list[tuple[float, int]]
"""Numbers, each with its time."""
STEPS: Final = (DOWN_WINDOW, DOWN_RATE, UP_WINDOW, UP_RATE, PANIC_RATE, PANIC_HOLD)


class TargetHistory:
    """Recent recommendations and sizes of one target, and until when it is in panic.

    They are kept in a dict of plain data, which remains valid under other settings.
    """

    def __init__(self, behavior: Behavior, kept: dict[str, Any]) -> None:
        self.behavior: Final = behavior
        self._kept: Final = kept
        self._asked: Final[Timeline] = kept.setdefault("asked", [])
        self._sizes: Final[Timeline] = kept.setdefault("sizes", [])
        up, down, panic = behavior.up, behavior.down, behavior.panic
        self.panic_period_s: Final = 0.0 if panic is None else panic.period_s
        self._asked_s: Final = max(up.window_s, down.window_s)
        self._sizes_s: Final = max(up.period_s, down.period_s, self.panic_period_s)

    def panics(self, now_s: float, recommended: int, current: int) -> bool:
        """Whether it is in panic at this tick; a high enough recommendation starts one at once."""
        if self._starts_panic(recommended, current):
            return True
        ends_s = self._kept.get("panic_ends_s")
        return self.behavior.panic is not None and ends_s is not None and now_s <= ends_s

    def record(self, now_s: float, recommended: int, current: int, size: int) -> None:
        """Records a recommendation and the resulting size."""
        if self.behavior.panic is not None and self._starts_panic(recommended, current):
            self._kept["panic_ends_s"] = now_s + self.behavior.panic.hold_s
        self.add(now_s, recommended, size)

    def add(self, now_s: float, recommended: int, size: int) -> None:
        """As `record`, without starting a panic."""
        while self._asked and self._asked[0][0] + self._asked_s < now_s:
            del self._asked[0]
        while len(self._sizes) > 1 and self._sizes[1][0] + self._sizes_s < now_s:
            del self._sizes[0]
        # Of equal numbers in a row the latest decides, and of sizes also the first.
        if self._asked and self._asked[-1][1] == recommended:
            del self._asked[-1]
        if len(self._sizes) > 1 and self._sizes[-1][1] == self._sizes[-2][1] == size:
            del self._sizes[-1]
        self._asked.append((now_s, recommended))
        self._sizes.append((now_s, size))

    def asked(self, window_s: float, now_s: float) -> list[int]:
        """Recommendations within a window; none if the window has no length."""
        if window_s <= 0:
            return []
        return [int(number) for at_s, number in self._asked if at_s + window_s >= now_s]

    def sizes(self, period_s: float, now_s: float, current: int) -> list[int]:
        """Sizes within a period, each lasting until the next; none if the period has no length."""
        if period_s <= 0:
            return []
        ends_s = [at_s + period_s for at_s, _ in self._sizes[1:]]
        ends_s += [at_s + 2 * period_s for at_s, _ in self._sizes[-1:]]
        past = zip(self._sizes, ends_s, strict=True)
        return [current, *(int(size) for (_, size), end_s in past if end_s >= now_s)]

    def _starts_panic(self, recommended: int, current: int) -> bool:
        panic = self.behavior.panic
        return panic is not None and recommended * 100 >= current * panic.threshold


@dataclass(frozen=True)
class BehaviorStep:
    """One limit between a recommendation and a size: its bounds, and why."""

    name: str
    low: int | None
    high: int | None
    reason: str

    def apply(self, size: int) -> int:
        if self.low is not None:
            size = max(size, self.low)
        return size if self.high is None else min(size, self.high)


def steps(
    history: TargetHistory, now_s: float, recommended: int, current: int, *, panic: bool
) -> list[BehaviorStep]:
    """The limits on a recommendation, in order. None of them reverses a change."""
    if panic:
        return _panic_steps(history, now_s, current)
    if recommended < current:
        return _down_steps(history, now_s, current)
    if recommended > current:
        return _up_steps(history, now_s, current)
    return []


def reach(history: TargetHistory, now_s: float, current: int, *, panic: bool) -> tuple[int, int]:
    """The range of sizes that the rates allow now, whatever is recommended."""
    if panic:
        least, most = current, _most_in_panic(history, now_s, current)
    else:
        least, most = _reach(history, now_s, current, -1) or 0, _reach(history, now_s, current, 1)
    return max(least, 0), LARGEST if most is None else most


def _panic_steps(history: TargetHistory, now_s: float, current: int) -> list[BehaviorStep]:
    found: list[BehaviorStep] = []
    most = _most_in_panic(history, now_s, current)
    panic = history.behavior.panic
    if most is not None and panic is not None:
        percent = panic.percent
        reason = f"In panic mode, up to {percent}% may be added per period."
        found.append(BehaviorStep(PANIC_RATE, None, most, reason))
    found.append(BehaviorStep(PANIC_HOLD, current, None, "Panic mode never scales down."))
    return found


def _down_steps(history: TargetHistory, now_s: float, current: int) -> list[BehaviorStep]:
    found: list[BehaviorStep] = []
    pace = history.behavior.down
    asked = max(history.asked(pace.window_s, now_s), default=None)
    if asked is not None:
        reason = f"{asked} were recommended within the last {pace.window_s:g} s."
        found.append(BehaviorStep(DOWN_WINDOW, min(asked, current), None, reason))
    least = _reach(history, now_s, current, -1)
    if least is not None:
        past = max(history.sizes(pace.period_s, now_s, current))
        reason = f"Within {pace.period_s:g} s, {_pace(pace)} of {past} replicas may be removed."
        found.append(BehaviorStep(DOWN_RATE, least, None, reason))
    return found


def _up_steps(history: TargetHistory, now_s: float, current: int) -> list[BehaviorStep]:
    found: list[BehaviorStep] = []
    pace = history.behavior.up
    asked = min(history.asked(pace.window_s, now_s), default=None)
    if asked is not None:
        reason = f"Only {asked} were recommended within the last {pace.window_s:g} s."
        found.append(BehaviorStep(UP_WINDOW, None, max(asked, current), reason))
    most = _reach(history, now_s, current, 1)
    if most is not None:
        past = min(history.sizes(pace.period_s, now_s, current))
        reason = f"Within {pace.period_s:g} s, {_pace(pace)} may be added to {past} replicas."
        found.append(BehaviorStep(UP_RATE, None, most, reason))
    return found


def _reach(history: TargetHistory, now_s: float, current: int, sign: int) -> int | None:
    """The farthest size that the rate allows, upwards (`sign` is 1) or downwards (-1), never on the
    other side of the current one; None: no limit."""
    pace = history.behavior.up if sign > 0 else history.behavior.down
    sizes = history.sizes(pace.period_s, now_s, current)
    if not sizes:
        return None
    past = min(sizes) if sign > 0 else max(sizes)
    changes = pace.instances, past * pace.percent // 100
    change = max(changes) if pace.select == OR else min(changes)
    return sign * max(sign * past + change, sign * current)


def _most_in_panic(history: TargetHistory, now_s: float, current: int) -> int | None:
    past = min(history.sizes(history.panic_period_s, now_s, current), default=None)
    panic = history.behavior.panic
    if panic is None or past is None or past <= 0:  # from zero there is no limit
        return None
    return max(past + past * panic.percent // 100, current)


def _pace(pace: BehaviorPace) -> str:
    word = "or" if pace.select == OR else "and"
    return f"{pace.instances} {word} {pace.percent}%"


@dataclass(frozen=True)
class Outlook:
    """The limits that the history of a target puts on a recommendation."""

    panic: bool
    steps: dict[str, BehaviorStep]
    lowest: int
    """The range that the rates allow now."""
    highest: int


class Histories:
    """The history of every target by its key, and its outlook on the recommendation of a tick.

    Earlier recommendations of a new target are unknown. With `history: kept`, its current size
    counts as just recommended, so that it does not shrink at once.
    """

    def __init__(self, settings: KthenaSettings) -> None:
        self._behavior: Final = settings.behavior
        self._seeded: Final = settings.history == "kept"
        self.kept: Final[dict[str, Any]] = {}
        """The memory of all targets, as plain data."""
        self._outlooks: Final[dict[str, Outlook]] = {}

    def look(self, group: Group, now_s: float, recommended: int) -> Outlook:
        """Computes and keeps the outlook for this tick."""
        current = group.current
        is_new = group.key not in self.kept
        history = self._history(group)
        if is_new and self._seeded:
            history.add(now_s, current, current)
        panic = history.panics(now_s, recommended, current)
        found = steps(history, now_s, recommended, current, panic=panic)
        lowest, highest = reach(history, now_s, current, panic=panic)
        outlook = Outlook(panic, {step.name: step for step in found}, lowest, highest)
        self._outlooks[group.key] = outlook
        return outlook

    def outlook(self, group: Group) -> Outlook:
        """The outlook last computed by `look`."""
        return self._outlooks[group.key]

    def record(self, group: Group, now_s: float, recommended: int, decided: int) -> None:
        self._history(group).record(now_s, recommended, group.current, decided)

    def _history(self, group: Group) -> TargetHistory:
        return TargetHistory(self._behavior, self.kept.setdefault(group.key, {}))


class StepLimiter(Limiter):
    """Applies the limit of this name from the outlook."""

    def __init__(self, name: str, histories: Histories) -> None:
        super().__init__(name)
        self._histories: Final = histories

    def limit_group(self, total: int, number: int, context: LimitContext) -> int:
        step = self._histories.outlook(context.groups[number]).steps.get(self.name)
        return total if step is None else step.apply(total)

    def why(self, before: int, after: int, number: int, context: LimitContext) -> str:
        return self._histories.outlook(context.groups[number]).steps[self.name].reason


class RememberingLimiter(StepLimiter):
    """The one step limiter that keeps the memory for all of them."""

    def __init__(self, name: str, histories: Histories) -> None:
        super().__init__(name, histories)
        self.remember("targets", histories.kept)

    def record_group(
        self, recommended: int, decided: int, number: int, context: LimitContext
    ) -> None:
        group = context.groups[number]
        self._histories.record(group, context.now_s, recommended, decided)


def step_limiters(histories: Histories) -> list[Limiter]:
    """All limits of the behavior, in the order in which they apply."""
    first, *others = STEPS
    limiters: list[Limiter] = [RememberingLimiter(first, histories)]
    limiters.extend(StepLimiter(name, histories) for name in others)
    return limiters
