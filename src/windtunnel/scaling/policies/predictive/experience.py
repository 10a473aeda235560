"""The capacity that replicas have shown: a belief, as a factor of the computed capacity.

Each bin is evidence. Answers on time under a load show that the capacity is hardly below it; late
ones, that it is hardly above the load that made them late. A load well below any believed capacity
shows nothing. The factor used for planning weighs the risk of overestimating.
"""

import math
from typing import Any, Final

_FACTORS: Final = [math.exp(math.log(0.3) + step * math.log(10.0) / 80) for step in range(81)]
"""From 0.3 to 3, in equal ratios."""
_SPREAD: Final = 0.05
"""Spread of computed capacities: 68% of 112 cases were within this of what the twin carried."""
_STEEP: Final = 16.0
"""How fast misses grow beyond the capacity: from 5 % there to half at 1.25 times that load."""
_QUEUED: Final = 64.0
"""The same while the bin before was late, too: in a lasting overload the queue grows, however small
the overload, until all answers are late."""
_ALWAYS: Final = 0.5
"""The part of the allowed late share that is late under any load, such as the longest prompts."""
_ANSWERS: Final = 40
"""At most this many answers of a bin count, since they share their conditions,"""
_WEIGHT: Final = 0.2
"""and each has this weight."""
_OTHERWISE: Final = 0.05
"""Probability that a bin is late or on time for another reason than its load, such as a rate that
rises within it. So a few bins do not outweigh all others."""
_KEPT: Final = 0.995
"""Weight of evidence one bin later, since requests change."""


class Experience:
    """Probabilities of factors, by evidence; a factor of 1 is the capacity by step times."""

    def __init__(self) -> None:
        self._prior: Final = [-0.5 * (math.log(factor) / _SPREAD) ** 2 for factor in _FACTORS]
        self._evidence = [0.0] * len(_FACTORS)
        self._peak = 0.0  # the highest load since answers were last on time
        self._low = math.inf
        self._late = False  # whether the answers of the last bin were

    def see(
        self,
        load: float,
        late: float,
        answers: int,
        allowed_late: float,
        *,
        surged: bool = False,
    ) -> None:
        """Takes a bin's load, over the capacity by step times, and the late share of its answers.

        A bin in which a surge went on shows nothing, since its load was not even. An answer belongs
        to the load of its own bin or the one before. Answers that are late while a queue is worked
        off belong to the highest load since it began.
        """
        low, high = min(self._low, load), max(self._peak, load)
        self._low = load
        allowed = min(max(allowed_late, 0.001), 0.5)
        self._peak = load if late <= allowed else high
        queued = self._late and late > allowed
        steep = _QUEUED if queued else _STEEP
        on_time_share = 0.0 if queued else 1.0 - late
        self._late = late > allowed
        weight = _WEIGHT * min(answers, _ANSWERS)
        if weight == 0.0 or surged:
            return
        logs = []
        for factor in _FACTORS:
            on_time = math.log(1.0 - _late_share(low / factor, allowed))
            too_late = math.log(_late_share(high / factor, allowed, steep))
            logs.append(weight * (on_time_share * on_time + late * too_late))
        most = max(logs)
        for number, log in enumerate(logs):
            seen = math.log(_OTHERWISE + (1.0 - _OTHERWISE) * math.exp(log - most))
            self._evidence[number] = _KEPT * self._evidence[number] + seen

    def weights(self) -> list[float]:
        """The probability of each factor."""
        logs = [prior + seen for prior, seen in zip(self._prior, self._evidence, strict=True)]
        most = max(logs)
        shares = [math.exp(log - most) for log in logs]
        total = sum(shares)
        return [share / total for share in shares]

    def factor(self, miss_price: float) -> float:
        """The factor to plan with: too high means misses, too low means more replicas."""
        weights = self.weights()
        best, least = 1.0, math.inf
        for planned in _FACTORS:
            cost = 1.0 / planned
            for factor, weight in zip(_FACTORS, weights, strict=True):
                if factor < planned and weight > 1e-6:
                    cost += weight * miss_price * min(1.0, planned / factor - 1.0)
            if cost < least:
                best, least = planned, cost
        return best

    def state(self) -> dict[str, object]:
        low = None if math.isinf(self._low) else self._low
        return {
            "evidence": list(self._evidence),
            "peak": self._peak,
            "low": low,
            "late": self._late,
        }

    def restore(self, state: dict[str, Any]) -> None:
        self._evidence = list(state["evidence"])
        self._peak = state["peak"]
        self._low = math.inf if state["low"] is None else state["low"]
        self._late = state.get("late", False)


def _late_share(load: float, allowed: float, steep: float = _STEEP) -> float:
    """The late share at a load relative to the capacity; at 1 it is the allowed share."""
    always = _ALWAYS * allowed
    part = (allowed - always) / (1.0 - always)
    odds = part / (1.0 - part) * math.pow(min(max(load, 0.0), 10.0), steep)
    return min(always + (1.0 - always) * odds / (1.0 + odds), 0.999)
