"""Regret: how much higher a router with fresh signals would have scored another server.

A router that scores servers always takes the best by its own scores. Here every server is scored by
its state at the moment of the decision: its queue, batch, KV usage and cached blocks. Regret is the
best of those scores less the chosen server's. With signals that are never stale it is 0; it grows
with their age, and with a policy that reads fewer signals.
"""

from typing import Final

from windtunnel.core.signals import Signals
from windtunnel.core.statistics.distribution import Distribution, together
from windtunnel.routing.weighted import Weighted
from windtunnel.workload.request import Request


class Judgement:
    """One decision, scored on fresh signals."""

    def __init__(
        self, chosen: int, score: float, others: list[tuple[int, float]], regret: float
    ) -> None:
        self.chosen: Final = chosen
        self.score: Final = score
        self.others: Final = others  # the best other servers and their scores, best first
        self.regret: Final = regret


class Counterfactual:
    """Judges decisions and aggregates their regret. It is slow: each request probes every server.

    `signals` are its own: the driver fills them before every judgement.
    """

    def __init__(self, others: int, signals: Signals, yardstick: Weighted) -> None:
        self._others: Final = others
        self.signals: Final = signals
        self._yardstick: Final = yardstick
        self.regrets: Final = Distribution()
        self.better_elsewhere = 0
        """Number of requests for which another server would have scored higher."""

    def set_candidates(self, candidates: list[int]) -> None:
        """Replaces the candidates, after servers were added or removed."""
        self.signals.reach()
        self._yardstick.set_candidates(candidates)

    def gone(self, server: int) -> None:
        """Forgets a server that will never be a candidate again."""
        self._yardstick.gone(server)

    def judge(self, request: Request, chosen: int, now_s: float) -> Judgement:
        """Judges a choice before the request is sent there.

        The driver must have filled `signals` with the current state.
        """
        scores = self._yardstick.explain(request, now_s)
        score = 0.0
        others: list[tuple[float, int]] = []
        for server, points in scores:
            if server == chosen:
                score = points
            else:
                others.append((-points, server))
        others.sort()
        regret = max(0.0, -others[0][0] - score) if others else 0.0
        self.regrets.add(regret)
        if regret > 0.0:
            self.better_elsewhere += 1
        best = [(server, -points) for points, server in others[: self._others]]
        return Judgement(chosen, score, best, regret)

    def summary(self) -> dict[str, float | int | None]:
        """Regret over all requests; None for each figure if there were none."""
        return regret_of([self])


def regret_of(judges: list[Counterfactual]) -> dict[str, float | int | None]:
    """Regret over all requests that several judges saw; None for each figure if there were none."""
    regrets = together([judge.regrets for judge in judges])
    count = regrets.count
    if not count:
        return {
            "requests": 0,
            "regret_mean": None,
            "regret_p99": None,
            "regret_max": None,
            "better_elsewhere": None,
        }
    return {
        "requests": count,
        "regret_mean": regrets.mean(),
        "regret_p99": regrets.quantile(0.99),
        "regret_max": regrets.quantile(1.0),
        "better_elsewhere": sum([judge.better_elsewhere for judge in judges]) / count,
    }
