"""The weighted router: the highest weighted sum of scores, without scoring every server.

Most servers differ only in scores that the prompt does not change, and the best of those is kept in
a ranking. The few servers that have something of this prompt are scored one by one. Property tests
hold its choices equal to the best of all scores (`explain`).
"""

from typing import Final

from mypy_extensions import i64

from windtunnel.core.signals import Signals
from windtunnel.routing.prefixes import CacheIndex
from windtunnel.routing.prompt_scorers import Marks, PromptScorer
from windtunnel.routing.ranking import Ranking
from windtunnel.routing.router import BEST_SCORE, BEST_SCORE_FOR_PROMPT, Routed, Router
from windtunnel.routing.scorers import POINTS, LiveScorer, Scorer, SignalScorer
from windtunnel.workload.request import Request

NO_REQUEST: Final = Request(-1, 0.0, 1, 1)  # scorers of signals alone do not read the request


class Weighted(Router):
    """Chooses the highest sum; of equals, the one chosen longest ago."""

    def __init__(
        self,
        candidates: list[int],
        signals: Signals,
        scorers: list[tuple[Scorer, float]],
        index: CacheIndex | None,
    ) -> None:
        super().__init__(candidates)
        self.reads_signals = any(scorer.reads_signals() for scorer, _ in scorers)
        self._signals: Final = signals
        self._index: Final = index
        self._scorers: Final[list[Scorer]] = []
        self._by_signals: Final[list[SignalScorer]] = []
        self._by_prompt: Final[list[PromptScorer]] = []
        live: list[LiveScorer] = []
        total = sum([weight for _, weight in scorers])
        for scorer, weight in scorers:
            scorer.share = weight / total
            scorer.set_candidates(candidates)
            self._scorers.append(scorer)
            if isinstance(scorer, SignalScorer):
                self._by_signals.append(scorer)
            elif isinstance(scorer, LiveScorer):
                live.append(scorer)
            elif isinstance(scorer, PromptScorer):
                self._by_prompt.append(scorer)
        self._marks: Final = Marks(len(signals.in_flight))
        self._ranking: Final = Ranking(signals, live)
        self._probes = -1
        self._reload()

    def set_candidates(self, candidates: list[int]) -> None:
        super().set_candidates(candidates)
        servers = len(self._signals.in_flight)
        self._marks.reach(servers)
        self._ranking.reach(servers)
        if self._index is not None:
            self._index.follow(candidates)
        for scorer in self._scorers:
            scorer.set_candidates(candidates)
        self._reload()

    def gone(self, server: int) -> None:
        if self._index is not None:
            self._index.forget(server)
        for scorer in self._by_prompt:
            scorer.gone(server)

    def pick(self, request: Request, now_s: float) -> Routed:
        self._freshen(now_s)
        ranking = self._ranking
        best: i64 = ranking.lead()
        most = ranking.lead_points
        reason = BEST_SCORE
        marks = self._marks
        marks.clear()
        for scorer in self._by_prompt:
            scorer.mark(request, marks)
        for server in marks.marked:
            points = ranking.points(server) + marks.points[server]
            if points > most or (points == most and ranking.earlier(server, best)):
                best = server
                most = points
                reason = BEST_SCORE_FOR_PROMPT
        ranking.take(best)
        for scorer in self._by_prompt:
            scorer.note(request, best)
        return Routed(best, reason)

    def scores(self, request: Request, now_s: float) -> list[tuple[int, float]]:
        self._freshen(now_s)
        sums = self._sums(request)
        return [(server, sums[n] / float(POINTS)) for n, server in enumerate(self.candidates)]

    def _sums(self, request: Request) -> list[int]:
        sums = [0] * len(self.candidates)
        for scorer in self._scorers:
            for n, score in enumerate(scorer.scores(request)):
                sums[n] += scorer.points(score)
        return sums

    def _freshen(self, now_s: float) -> None:
        if self._index is not None:
            self._index.catch_up(now_s)
        if self._signals.probes != self._probes:
            self._reload()

    def _reload(self) -> None:
        """The servers have been probed: what depends on their load is summed up anew."""
        self._probes = self._signals.probes
        fixed = [0] * len(self.candidates)
        for scorer in self._by_signals:
            if not self.candidates:
                break
            for n, score in enumerate(scorer.scores(NO_REQUEST)):
                fixed[n] += scorer.points(score)
        for prompt_scorer in self._by_prompt:
            prompt_scorer.reload()
        self._ranking.rebuild(self.candidates, fixed)
