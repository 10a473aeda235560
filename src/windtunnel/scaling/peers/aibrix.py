"""AIBrix' PodAutoscaler: its KPA and APA strategies, and its cooldown."""

import math
from typing import Final

from windtunnel.core.errors import InputError
from windtunnel.scaling.history import History
from windtunnel.scaling.limits import Context, Limiter
from windtunnel.scaling.metrics import Metric
from windtunnel.scaling.parts import Analyzer, Finding, Group, replicas_wanted, unknown
from windtunnel.scaling.peers.means import Means

STABLE_S: Final = 180.0
PANIC_S: Final = 60.0
_PANIC_THRESHOLD: Final = 2.0
STRATEGIES: Final = ("APA", "KPA")


class Aibrix(Analyzer):
    """The mean over pods of each metric, smoothed, against its target; the largest answer counts.

    APA takes the size times the ratio; KPA takes the mean over the target as the size, which is
    right only for a metric that is a total of the fleet: so it is shipped, and so it is here.
    """

    def __init__(
        self,
        targets: list[tuple[Metric, float]],
        *,
        strategy: str = "APA",
        tolerance_up: float = 0.1,
        tolerance_down: float = 0.1,
        max_up_rate: float = 2.0,
        max_down_rate: float = 2.0,
    ) -> None:
        super().__init__("aibrix")
        if strategy not in STRATEGIES:
            raise InputError(
                f"{strategy!r} is no strategy", where="strategy", allowed=", ".join(STRATEGIES)
            )
        if not targets:
            raise InputError("no metric is given", where="metrics")
        for metric, target in targets:
            if not (math.isfinite(target) and target > 0.0):
                what = f"{target!r} is no target for {metric.name}"
                raise InputError(what, where="target", allowed="a finite number above 0")
        self._targets: Final = targets
        self._kpa: Final = strategy == "KPA"
        self._up: Final = tolerance_up
        self._down: Final = tolerance_down
        self._max_up: Final = max_up_rate
        self._max_down: Final = max_down_rate
        self._means: Final = Means(STABLE_S)

    def analyze_group(self, group: Group, now_s: float) -> Finding:
        if group.ready == 0:
            return unknown(group, "No pod is ready: there is nothing to measure.")
        best = 0
        evidence: dict[str, float] = {}
        for metric, target in self._targets:
            total = 0.0
            for variant in group.variants:
                for replica in variant.replicas:
                    total += metric.of_replica(replica, group)
            key = f"{group.key}/{metric.name}"
            self._means.add(key, now_s, total / group.ready)
            evidence[metric.name] = self._means.mean(key, now_s, STABLE_S)
            by = self._kpa_size if self._kpa else self._apa_size
            best = max(best, by(key, target, group.current, now_s))
        said = f"{best} replicas bring the means to their targets."
        return replicas_wanted(group, best, evidence, said)

    def state(self) -> dict[str, object]:
        return self._means.state()

    def restore(self, state: dict[str, object]) -> None:
        self._means.restore(state)

    def _apa_size(self, key: str, target: float, current: int, now_s: float) -> int:
        ratio = self._means.mean(key, now_s, STABLE_S) / target
        if ratio > 1.0 + self._up:
            return min(math.ceil(current * ratio), math.ceil(self._max_up * current))
        if ratio < 1.0 - self._down:
            return max(math.ceil(current * ratio), math.floor(current / self._max_down))
        return current

    def _kpa_size(self, key: str, target: float, current: int, now_s: float) -> int:
        stable = self._means.mean(key, now_s, STABLE_S)
        panic = self._means.mean(key, now_s, PANIC_S)
        by_stable = self._kpa_of(stable, target, current)
        if stable <= 0.0 or panic / stable > _PANIC_THRESHOLD:
            return max(by_stable, self._kpa_of(panic, target, current))
        return by_stable

    def _kpa_of(self, mean: float, target: float, current: int) -> int:
        outside = mean > target * (1.0 + self._up) or mean < target * (1.0 - self._down)
        wanted = math.ceil(mean / target) if outside else current
        low = math.floor(current / self._max_down)
        return min(max(wanted, low), max(1, math.ceil(self._max_up * current)))


class AibrixCooldown(Limiter):
    """Up to the highest of the up window; down to the *lowest* of the down window, at once.

    So it is shipped: its 300 s do not delay going down, they let it go further.
    """

    def __init__(self, up_s: float = 0.0, down_s: float = 300.0) -> None:
        super().__init__("cooldown")
        self._up_s: Final = up_s
        self._down_s: Final = down_s
        self._seen: Final = History(max(up_s, down_s))

    def limit_group(self, total: int, number: int, context: Context) -> int:
        group, now_s = context.groups[number], context.now_s
        if total > group.current:
            return max([total, *self._seen.since(group.key, now_s - self._up_s)])
        if total < group.current:
            return min([total, *self._seen.since(group.key, now_s - self._down_s)])
        return total

    def why(self, before: int, after: int, number: int, context: Context) -> str:
        if after > before:
            return f"{after} was recommended within {self._up_s:g} s: the highest counts."
        return f"{after} was recommended within {self._down_s:g} s: the lowest counts."

    def record_group(self, recommended: int, decided: int, number: int, context: Context) -> None:
        self._seen.add(context.groups[number].key, context.now_s, recommended)

    def state(self) -> dict[str, object]:
        return self._seen.state()

    def restore(self, state: dict[str, object]) -> None:
        self._seen.restore(state)
