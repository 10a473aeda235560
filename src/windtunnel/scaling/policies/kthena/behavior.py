"""How fast a size may follow its recommendation: windows, rates, panic and bounds, each named.

"Or" takes the looser of the two rate limits and "And" the stricter; both count from the extreme
size of the last period, so that several small steps are no way around them.
"""

from typing import Any, Final

from windtunnel.scaling.analyzers import Group
from windtunnel.scaling.limiters import LimitContext, Limiter
from windtunnel.scaling.policies.kthena.recommend import LARGEST
from windtunnel.scaling.policies.kthena.settings import OR, Behavior, BehaviorPace
from windtunnel.scaling.policies.kthena.windows import SizeWindow, Window

PANIC_RATE: Final = "panic rate"
PANIC_HOLD: Final = "panic hold"
DOWN_WINDOW: Final = "scale-down window"
DOWN_RATE: Final = "scale-down rate"
UP_WINDOW: Final = "scale-up window"
UP_RATE: Final = "scale-up rate"
STEPS: Final = (DOWN_WINDOW, DOWN_RATE, UP_WINDOW, UP_RATE, PANIC_RATE, PANIC_HOLD)


class TargetHistory:
    """Recent recommendations and sizes of one target, and until when it panics."""

    def __init__(self, behavior: Behavior) -> None:
        self.behavior: Final = behavior
        self.highest_asked: Final = Window(behavior.down.window_s, largest=True)
        self.lowest_asked: Final = Window(behavior.up.window_s, largest=False)
        self.highest_size: Final = SizeWindow(behavior.down.period_s, largest=True)
        self.lowest_size: Final = SizeWindow(behavior.up.period_s, largest=False)
        panic_s = 0.0 if behavior.panic is None else behavior.panic.period_s
        self.lowest_in_panic: Final = SizeWindow(panic_s, largest=False)
        self.panic_ends_s: float | None = None

    def panics(self, now_s: float, recommended: int, current: int) -> bool:
        """Whether this look counts as panic; one that is high enough starts it at once."""
        panic = self.behavior.panic
        if panic is None:
            return False
        if recommended * 100 >= current * panic.threshold:
            return True
        return self.panic_ends_s is not None and now_s <= self.panic_ends_s

    def record(self, now_s: float, recommended: int, current: int, size: int) -> None:
        """Remembers what was asked for and what became of it."""
        panic = self.behavior.panic
        if panic is not None and recommended * 100 >= current * panic.threshold:
            self.panic_ends_s = now_s + panic.hold_s
        for asked in (self.highest_asked, self.lowest_asked):
            asked.append(now_s, recommended)
        for sizes in self._sizes():
            sizes.append(now_s, size)

    def seed(self, now_s: float, size: int) -> None:
        """Starts as if this size had been asked for just now: a restart is no reason to shrink."""
        for asked in (self.highest_asked, self.lowest_asked):
            asked.append(now_s, size)
        for sizes in self._sizes():
            sizes.append(now_s, size)

    def state(self) -> dict[str, object]:
        """Plain data, that also fits a history of other settings."""
        return {
            "highest_asked": self.highest_asked.state(),
            "lowest_asked": self.lowest_asked.state(),
            "highest_size": self.highest_size.state(),
            "lowest_size": self.lowest_size.state(),
            "lowest_in_panic": self.lowest_in_panic.state(),
            "panic_ends_s": self.panic_ends_s,
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.highest_asked.restore(state["highest_asked"])
        self.lowest_asked.restore(state["lowest_asked"])
        self.highest_size.restore(state["highest_size"])
        self.lowest_size.restore(state["lowest_size"])
        self.lowest_in_panic.restore(state["lowest_in_panic"])
        self.panic_ends_s = state["panic_ends_s"]

    def _sizes(self) -> list[SizeWindow]:
        return [self.highest_size, self.lowest_size, self.lowest_in_panic]


class BehaviorStep:
    """One limit between a recommendation and a size: what it makes of a size, and why."""

    def __init__(self, name: str, low: int | None, high: int | None, reason: str) -> None:
        self.name: Final = name
        self.low: Final = low
        self.high: Final = high
        self.reason: Final = reason

    def apply(self, size: int) -> int:
        if self.low is not None:
            size = max(size, self.low)
        return size if self.high is None else min(size, self.high)


def steps(
    history: TargetHistory, now_s: float, recommended: int, current: int, *, panic: bool
) -> list[BehaviorStep]:
    """What stands in the way of a recommendation, in order. None of it turns a change round."""
    if panic:
        return _panic_steps(history, now_s, current)
    if recommended < current:
        return _down_steps(history, now_s, current)
    if recommended > current:
        return _up_steps(history, now_s, current)
    return []


def reach(history: TargetHistory, now_s: float, current: int, *, panic: bool) -> tuple[int, int]:
    """The sizes between which the rates let a target go now, whatever is recommended."""
    if panic:
        least, most = current, _most_in_panic(history, now_s, current)
    else:
        least, most = _least(history, now_s, current) or 0, _most(history, now_s, current)
    return max(least, 0), LARGEST if most is None else most


def _panic_steps(history: TargetHistory, now_s: float, current: int) -> list[BehaviorStep]:
    found: list[BehaviorStep] = []
    most = _most_in_panic(history, now_s, current)
    panic = history.behavior.panic
    if most is not None and panic is not None:
        percent = panic.percent
        reason = f"In panic, {percent}% may be added within a period."
        found.append(BehaviorStep(PANIC_RATE, None, most, reason))
    found.append(BehaviorStep(PANIC_HOLD, current, None, f"A panic never shrinks: {current} stay."))
    return found


def _down_steps(history: TargetHistory, now_s: float, current: int) -> list[BehaviorStep]:
    found: list[BehaviorStep] = []
    asked = history.highest_asked.best(now_s)
    if asked is not None:
        span_s = history.highest_asked.span_s
        reason = f"{asked} were asked for within the last {span_s:g} s."
        found.append(BehaviorStep(DOWN_WINDOW, min(asked, current), None, reason))
    least = _least(history, now_s, current)
    if least is not None:
        pace = history.behavior.down
        past = history.highest_size.best(now_s, current)
        reason = f"Of the {past} in the last {pace.period_s:g} s, {_pace(pace)} may go."
        found.append(BehaviorStep(DOWN_RATE, least, None, reason))
    return found


def _up_steps(history: TargetHistory, now_s: float, current: int) -> list[BehaviorStep]:
    found: list[BehaviorStep] = []
    asked = history.lowest_asked.best(now_s)
    if asked is not None:
        span_s = history.lowest_asked.span_s
        reason = f"Only {asked} were asked for within the last {span_s:g} s."
        found.append(BehaviorStep(UP_WINDOW, None, max(asked, current), reason))
    most = _most(history, now_s, current)
    if most is not None:
        pace = history.behavior.up
        past = history.lowest_size.best(now_s, current)
        reason = f"To the {past} of the last {pace.period_s:g} s, {_pace(pace)} may come."
        found.append(BehaviorStep(UP_RATE, None, most, reason))
    return found


def _least(history: TargetHistory, now_s: float, current: int) -> int | None:
    """The smallest size that the rate allows, at most the current; None: it has no opinion."""
    pace = history.behavior.down
    past = history.highest_size.best(now_s, current)
    if past is None:
        return None
    by_count, by_share = past - pace.instances, past - past * pace.percent // 100
    least = min(by_count, by_share) if pace.select == OR else max(by_count, by_share)
    return min(least, current)


def _most(history: TargetHistory, now_s: float, current: int) -> int | None:
    """The largest size that the rate allows, at least the current; None: it has no opinion."""
    pace = history.behavior.up
    past = history.lowest_size.best(now_s, current)
    if past is None:
        return None
    by_count, by_share = past + pace.instances, past + past * pace.percent // 100
    most = max(by_count, by_share) if pace.select == OR else min(by_count, by_share)
    return max(most, current)


def _most_in_panic(history: TargetHistory, now_s: float, current: int) -> int | None:
    past = history.lowest_in_panic.best(now_s, current)
    panic = history.behavior.panic
    if panic is None or past is None or past <= 0:  # from zero there is no limit
        return None
    return max(past + past * panic.percent // 100, current)


def _pace(pace: BehaviorPace) -> str:
    word = "or" if pace.select == OR else "and"
    return f"{pace.instances} {word} {pace.percent}%"


class Outlook:
    """What the history of a target has to say of a recommendation."""

    def __init__(
        self, found: list[BehaviorStep], *, panic: bool, lowest: int, highest: int
    ) -> None:
        self.panic: Final = panic
        self.steps: Final = {step.name: step for step in found}
        self.lowest: Final = lowest  # as far as the rates let it go now
        self.highest: Final = highest


class Histories:
    """The history of every target by its key, and its outlook on the recommendation of a tick.

    Of a target that is new nobody knows what was asked for before. `seeded`: it is taken to have
    been asked for at its size just now, so that it does not shrink at once.
    """

    def __init__(self, behavior: Behavior, *, seeded: bool = True) -> None:
        self._behavior: Final = behavior
        self._seeded: Final = seeded
        self._histories: dict[str, TargetHistory] = {}
        self._outlooks: dict[str, Outlook] = {}

    def look(self, group: Group, now_s: float, recommended: int) -> Outlook:
        """Forms the outlook of this tick."""
        history = self._histories.get(group.key)
        if history is None:
            history = self._histories[group.key] = TargetHistory(self._behavior)
            if self._seeded:
                history.seed(now_s, group.current)
        current = group.current
        panic = history.panics(now_s, recommended, current)
        found = steps(history, now_s, recommended, current, panic=panic)
        lowest, highest = reach(history, now_s, current, panic=panic)
        outlook = Outlook(found, panic=panic, lowest=lowest, highest=highest)
        self._outlooks[group.key] = outlook
        return outlook

    def outlook(self, group: Group) -> Outlook:
        """What `look` formed last."""
        return self._outlooks[group.key]

    def record(self, group: Group, now_s: float, recommended: int, decided: int) -> None:
        self._histories[group.key].record(now_s, recommended, group.current, decided)

    def state(self) -> dict[str, object]:
        return {key: history.state() for key, history in self._histories.items()}

    def restore(self, state: dict[str, Any]) -> None:
        for key, saved in state.items():
            history = TargetHistory(self._behavior)
            history.restore(saved)
            self._histories[key] = history


class StepLimiter(Limiter):
    """One of the limits by name, as the outlook has it."""

    def __init__(self, name: str, histories: Histories) -> None:
        super().__init__(name)
        self._histories: Final = histories

    def limit_group(self, total: int, number: int, context: LimitContext) -> int:
        step = self._histories.outlook(context.groups[number]).steps.get(self.name)
        return total if step is None else step.apply(total)

    def why(self, before: int, after: int, number: int, context: LimitContext) -> str:
        return self._histories.outlook(context.groups[number]).steps[self.name].reason


class RememberingLimiter(StepLimiter):
    """The one of them that keeps the memory of all."""

    def record_group(
        self, recommended: int, decided: int, number: int, context: LimitContext
    ) -> None:
        group = context.groups[number]
        self._histories.record(group, context.now_s, recommended, decided)

    def state(self) -> dict[str, object]:
        return self._histories.state()

    def restore(self, state: dict[str, object]) -> None:
        self._histories.restore(state)


def step_limiters(histories: Histories) -> list[Limiter]:
    """All limits of the behaviour, in the order in which they hold."""
    first, *others = STEPS
    limiters: list[Limiter] = [RememberingLimiter(first, histories)]
    limiters.extend(StepLimiter(name, histories) for name in others)
    return limiters
