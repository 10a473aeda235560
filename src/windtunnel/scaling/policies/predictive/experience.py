"""What replicas really carried: a belief about their capacity, as a factor of what is worked out.

Each bin is evidence. Answers on time under a load say that the capacity is hardly below it; late
ones say that it is hardly above the load that they were late under. A load well below all that is
believed says nothing. The factor that is planned with weighs the risk of believing too much.
"""

import math
from typing import Any, Final

_FACTORS: Final = [math.exp(math.log(0.3) + step * math.log(10.0) / 80) for step in range(81)]
"""From 0.3 to 3, evenly by ratio."""
_SPREAD: Final = 0.1
"""Of what step times say: over 36 cases, 33 were within 21 %."""
_STEEP: Final = 16.0
"""How fast misses grow beyond the capacity: from 5 % at it to half at 1.2 times of it."""
_ALWAYS: Final = 0.5
"""Of the share that may be late: so much is under any load, as the longest prompts are."""
_ANSWERS: Final = 40
"""In a bin no more answers than this count: they share their luck,"""
_WEIGHT: Final = 0.2
"""and one counts for this much."""
_KEPT: Final = 0.995
"""What evidence counts a bin later: requests change."""


class Experience:
    """Weights of factors, by evidence; a factor of 1 is what step times say."""

    def __init__(self) -> None:
        self._prior: Final = [-0.5 * (math.log(factor) / _SPREAD) ** 2 for factor in _FACTORS]
        self._evidence = [0.0] * len(_FACTORS)
        self._peak = 0.0  # the highest load since answers were last on time
        self._low = math.inf

    def see(self, load: float, late: float, answers: int, allowed_late: float) -> None:
        """The load of a bin, over what step times say, and the share of its answers that was late.

        An answer belongs to the load of its own time or a little before. What is late while a queue
        is worked off belongs to the highest load since it began.
        """
        low, high = min(self._low, load), max(self._peak, load)
        self._low = load
        allowed = min(max(allowed_late, 0.001), 0.5)
        self._peak = load if late <= allowed else high
        weight = _WEIGHT * min(answers, _ANSWERS)
        if weight == 0.0:
            return
        for number, factor in enumerate(_FACTORS):
            on_time = math.log(1.0 - _late_share(low / factor, allowed))
            too_late = math.log(_late_share(high / factor, allowed))
            self._evidence[number] = _KEPT * self._evidence[number] + weight * (
                (1.0 - late) * on_time + late * too_late
            )

    def weights(self) -> list[float]:
        """How likely each factor is."""
        logs = [prior + seen for prior, seen in zip(self._prior, self._evidence, strict=True)]
        most = max(logs)
        shares = [math.exp(log - most) for log in logs]
        total = sum(shares)
        return [share / total for share in shares]

    def factor(self, miss_price: float) -> float:
        """The factor to plan with: too high a one misses, too low a one pays for more replicas."""
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
        return {"evidence": list(self._evidence), "peak": self._peak, "low": low}

    def restore(self, state: dict[str, Any]) -> None:
        self._evidence = list(state["evidence"])
        self._peak = state["peak"]
        self._low = math.inf if state["low"] is None else state["low"]


def _late_share(load: float, allowed: float) -> float:
    """The share that is late at a load over the capacity: what is allowed at 1."""
    always = _ALWAYS * allowed
    part = (allowed - always) / (1.0 - always)
    odds = part / (1.0 - part) * math.pow(min(max(load, 0.0), 10.0), _STEEP)
    return min(always + (1.0 - always) * odds / (1.0 + odds), 0.999)
