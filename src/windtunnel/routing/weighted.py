"""The weighted router: the highest weighted sum of scores, without scoring every server.

Most servers differ only in scores that are independent of the prompt, and a ranking keeps the best
of those. The few servers with something specific to this prompt are scored one by one. Property
tests check that its choice has the highest of all scores (`explain`).
"""

from typing import Final

from mypy_extensions import i64

from windtunnel.core.random import Stream
from windtunnel.core.signals import Signals
from windtunnel.routing.filters import ServerFilter
from windtunnel.routing.prefixes import CacheIndex
from windtunnel.routing.prompt_scorers import Marks, PromptScorer
from windtunnel.routing.ranking import Ranking
from windtunnel.routing.router import (
    AT_RANDOM,
    BEST_SCORE,
    BEST_SCORE_FOR_PROMPT,
    BEST_SCORE_OF_FILTERED,
    DRAWN_BY_SCORE,
    Routed,
    Router,
)
from windtunnel.routing.scorers import POINTS, LiveScorer, Scorer, SignalScorer
from windtunnel.workload.request import Request

MAX_SCORE: Final = "max-score"
RANDOM: Final = "random"
WEIGHTED_RANDOM: Final = "weighted-random"
PICKERS: Final = (MAX_SCORE, WEIGHTED_RANDOM, RANDOM)

NO_REQUEST: Final = Request(-1, 0.0, 1, 1)  # scorers of signals alone do not read the request


class Weighted(Router):
    """Chooses the server with the highest sum; of equals, the one chosen longest ago."""

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
        """The sum of each candidate, in points."""
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
        """Recomputes the sums that depend on probed load, after a probe."""
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


class FilteredWeighted(Weighted):
    """Scores each server that passes the filters, and lets a picker choose.

    As in llm-d, scores are relative to the servers that passed. `max-score` takes the highest,
    `weighted-random` draws with the scores as weights, `random` draws any.
    """

    def __init__(
        self,
        candidates: list[int],
        signals: Signals,
        scorers: list[tuple[Scorer, float]],
        index: CacheIndex | None,
        filters: list[ServerFilter],
        picker: str,
        stream: Stream,
    ) -> None:
        super().__init__(candidates, signals, scorers, index)
        self._filters: Final = filters
        self._picker: Final = picker
        self._stream: Final = stream
        if any(one.reads_signals() for one in filters):
            self.reads_signals = True

    def pick(self, request: Request, now_s: float) -> Routed:
        self._freshen(now_s)
        passed = self.candidates
        for one in self._filters:
            passed = one.kept(request, passed)
        best, reason = self._choice(request, passed)
        self._ranking.take(best)
        for scorer in self._by_prompt:
            scorer.candidates = passed
            scorer.note(request, best)
            scorer.candidates = self.candidates
        return Routed(best, reason)

    def _choice(self, request: Request, passed: list[int]) -> tuple[int, str]:
        if self._picker == RANDOM:
            return passed[self._stream.integer(0, len(passed) - 1)], AT_RANDOM
        sums = self._sums_of(request, passed)
        if self._picker == WEIGHTED_RANDOM:
            return passed[self._drawn(sums)], DRAWN_BY_SCORE
        best = 0
        for n in range(1, len(passed)):
            if sums[n] > sums[best] or (
                sums[n] == sums[best] and self._ranking.earlier(passed[n], passed[best])
            ):
                best = n
        all_passed = len(passed) == len(self.candidates)
        return passed[best], BEST_SCORE if all_passed else BEST_SCORE_OF_FILTERED

    def _sums_of(self, request: Request, servers: list[int]) -> list[int]:
        """The sums of some of the candidates, scored as if there were no others."""
        sums = [0] * len(servers)
        for scorer in self._scorers:
            scorer.candidates = servers
            for n, score in enumerate(scorer.scores(request)):
                sums[n] += scorer.points(score)
            scorer.candidates = self.candidates
        return sums

    def _drawn(self, sums: list[int]) -> int:
        """Draws an index with probability proportional to its sum; any if all sums are 0."""
        drawn = self._stream.uniform() * float(sum(sums))
        for n, points in enumerate(sums):
            drawn -= float(points)
            if drawn < 0.0:
                return n
        return self._stream.integer(0, len(sums) - 1)
