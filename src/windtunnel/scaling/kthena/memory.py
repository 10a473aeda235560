"""What Kthena's scaler remembers of each target, and the limits that follow from it."""

from typing import Any, Final

from windtunnel.scaling.kthena.correct import STEPS, History, Step, reach, steps
from windtunnel.scaling.kthena.settings import Behavior
from windtunnel.scaling.limits import Context, Limiter
from windtunnel.scaling.parts import Group


class Outlook:
    """What the history of a target has to say of a recommendation."""

    def __init__(self, found: list[Step], *, panic: bool, lowest: int, highest: int) -> None:
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
        self._histories: dict[str, History] = {}
        self._outlooks: dict[str, Outlook] = {}

    def look(self, group: Group, now_s: float, recommended: int) -> Outlook:
        """Forms the outlook of this tick."""
        history = self._histories.get(group.key)
        if history is None:
            history = self._histories[group.key] = History(self._behavior)
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
            history = History(self._behavior)
            history.restore(saved)
            self._histories[key] = history


class StepLimiter(Limiter):
    """One of the limits by name, as the outlook has it."""

    def __init__(self, name: str, histories: Histories) -> None:
        super().__init__(name)
        self._histories: Final = histories

    def limit_group(self, total: int, number: int, context: Context) -> int:
        step = self._histories.outlook(context.groups[number]).steps.get(self.name)
        return total if step is None else step.apply(total)

    def why(self, before: int, after: int, number: int, context: Context) -> str:
        return self._histories.outlook(context.groups[number]).steps[self.name].reason


class RememberingLimiter(StepLimiter):
    """The one of them that keeps the memory of all."""

    def record_group(self, recommended: int, decided: int, number: int, context: Context) -> None:
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
