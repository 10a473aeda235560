"""What a router with fresh signals would have chosen, and how much better that would have scored.

A router that scores servers always takes the best by its own lights: held against those, it never
regrets. Here every server is scored as it truly is at the moment of the decision: queues, batches,
KV and cached blocks of now. Regret is the best of those scores less the chosen server's. With
signals that are never stale it is 0; it grows with their age, and with a policy that looks at less.
"""

from typing import Final

from windtunnel.core.histogram import Histogram
from windtunnel.core.signals import Signals
from windtunnel.engine.server import Server
from windtunnel.routing.look import look_at
from windtunnel.routing.weighted import Weighted
from windtunnel.workload.request import Request


class Judgement:
    """One decision, looked at with open eyes."""

    def __init__(
        self, chosen: int, score: float, others: list[tuple[int, float]], regret: float
    ) -> None:
        self.chosen: Final = chosen
        self.score: Final = score
        self.others: Final = others  # the best other servers and their scores, best first
        self.regret: Final = regret


class Counterfactual:
    """Judges decisions, and sums up. It asks every server about every request, so it costs."""

    def __init__(
        self, others: int, servers: list[Server], signals: Signals, yardstick: Weighted
    ) -> None:
        self._others: Final = others
        self._servers: Final = servers
        self._signals: Final = signals
        self._yardstick: Final = yardstick
        self.regrets: Final = Histogram()
        self.better_elsewhere = 0
        """How often another server would have scored higher."""

    def set_candidates(self, candidates: list[int]) -> None:
        """From now on requests go to these: servers have come or gone."""
        self._signals.reach()
        self._yardstick.set_candidates(candidates)

    def gone(self, server: int) -> None:
        """This server will never be a candidate again."""
        self._yardstick.gone(server)

    def look(self, request: Request, chosen: int, now_s: float) -> Judgement:
        """Judges a choice before the request is sent there."""
        look_at(self._servers, self._signals, now_s)
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
        self.regrets.add(regret, 1)
        if regret > 0.0:
            self.better_elsewhere += 1
        best = [(server, -points) for points, server in others[: self._others]]
        return Judgement(chosen, score, best, regret)

    def summary(self) -> dict[str, float | int | None]:
        """Regret over all requests; without any, nothing is known of it."""
        return regret_of([self])


def regret_of(judges: list[Counterfactual]) -> dict[str, float | int | None]:
    """Regret over all requests that several have judged; without any, nothing is known of it."""
    regrets = Histogram()
    for judge in judges:
        regrets.merge(judge.regrets)
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
        "regret_mean": regrets.total / count,
        "regret_p99": regrets.quantile(0.99),
        "regret_max": regrets.high,
        "better_elsewhere": sum([judge.better_elsewhere for judge in judges]) / count,
    }
