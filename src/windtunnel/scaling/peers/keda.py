"""KEDA's ScaledObject: a queue target through an HPA, and its own switch between zero and one."""

from typing import Final

from windtunnel.core.errors import InputError
from windtunnel.scaling.limits import Context, Limiter
from windtunnel.scaling.metrics import Metric


class KedaActivation(Limiter):
    """Zero while nothing is to be done, at least one while something is.

    A trigger is active while its metric is above `activation`, and one is enough. The way to zero
    is open when none has been active for `cooldown_s`; whatever is above `least` is the HPA's.
    """

    def __init__(
        self,
        metrics: list[Metric],
        *,
        activation: float = 0.0,
        cooldown_s: float = 300.0,
        idle: int | None = None,
        least: int = 1,
    ) -> None:
        super().__init__("activation")
        if not cooldown_s >= 0.0:
            raise InputError(
                f"{cooldown_s!r} is no such time", where="cooldownPeriod", allowed="0 or more"
            )
        if idle is not None and idle < 0:
            raise InputError(f"{idle} is no size", where="idleReplicaCount", allowed="0 or more")
        self._metrics: Final = metrics
        self._activation: Final = activation
        self._cooldown_s: Final = cooldown_s
        self._idle: Final = idle
        self._least: Final = max(least, 1)  # while something is to be done
        self._active_s: Final[dict[str, float]] = {}

    def limit(self, totals: list[int], context: Context) -> list[int]:
        """Also of groups of which an HPA knows nothing: it is paused at zero."""
        return [self.limit_group(total, number, context) for number, total in enumerate(totals)]

    def limit_group(self, total: int, number: int, context: Context) -> int:
        group = context.groups[number]
        if self._is_active(number, context):
            return max(total, self._least)
        since_s = self._active_s.get(group.key, context.now_s)
        if context.now_s - since_s >= self._cooldown_s:
            return group.minimum if self._idle is None else self._idle
        return max(total, self._least) if group.current > 0 else total

    def why(self, before: int, after: int, number: int, context: Context) -> str:
        names = " or ".join(metric.name for metric in self._metrics)
        if self._is_active(number, context):
            return f"{names} is active: at least {self._least}."
        if after < before:
            return f"{names} has not been active for {self._cooldown_s:g} s."
        return f"{names} was active within {self._cooldown_s:g} s: {self._least} stay."

    def record(self, recommended: list[int], decided: list[int], context: Context) -> None:
        for number, group in enumerate(context.groups):
            if self._is_active(number, context) or group.key not in self._active_s:
                self._active_s[group.key] = context.now_s

    def state(self) -> dict[str, object]:
        return dict(self._active_s)

    def restore(self, state: dict[str, object]) -> None:
        for key, at_s in state.items():
            if isinstance(at_s, int | float):
                self._active_s[key] = float(at_s)

    def _is_active(self, number: int, context: Context) -> bool:
        group = context.groups[number]
        return any(metric.of_group(group) > self._activation for metric in self._metrics)
