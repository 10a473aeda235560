"""Searches along the load, as generators of wanted runs: the load carried, and the latency knee.

As in `race`, nothing is run here. A load is a factor on the rates of the scenario.
"""

import math
from collections.abc import Generator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from windtunnel.core.statistics.intervals import Interval, ratio_interval
from windtunnel.search.plan.runs.confidence import ShareBounds, confidence_of_test
from windtunnel.search.plan.runs.trials import (
    OutOfBudget,
    Rules,
    Stage,
    Trial,
    TrialLedger,
    sure_of,
    worst_of,
)

MOST_DOUBLINGS = 10
"""From the load of the scenario, up or down: about a thousandth and a thousand times of it."""
PRECISION = 0.02
"""Relative precision of a load that counts as found."""
MOST_STEPS_DOWN = 12
DOUBLED = 2.0
FLAT = 1.05
"""A load may be light if halving it reduces latency by no more than this factor."""
FAR_LIGHTER, NOT_FLAT = 16.0, 1.25
"""Far above capacity latency is flat too, bounded by the length of the run. A load is light only if
latency at this much less load is not lower by more than this factor."""


class WantedLoad(NamedTuple):
    """A wanted run: its load, its share of the full length, and its seed."""

    load: float
    share: float
    seed: int

    @property
    def cost(self) -> float:
        return self.share * weight(self.load)


class LoadResult(msgspec.Struct, frozen=True):
    """The result of a search for the highest load that is carried."""

    carried: float | None
    """None: not even the lightest load tried."""
    sure: ShareBounds | None
    confidence: float | None
    missed: float | None
    """The lightest load above it that is not carried; None: every load tried was carried."""
    tests: int
    out_of_runs: bool


Asking = Generator[list[WantedLoad], Mapping[WantedLoad, Trial], None]


class LoadSearch:
    """Finds the highest load carried: brackets with short runs, bisects with whole runs, then
    tests."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._ledger: TrialLedger[WantedLoad, Trial] = TrialLedger(rules.max_runs)
        self._ended = LoadResult(None, None, None, None, 0, out_of_runs=False)

    def moves(self) -> Asking:
        """Yields wanted runs until the answer is known or no runs are left."""
        try:
            yield from self._search()
        except OutOfBudget:
            self._ended = msgspec.structs.replace(self._ended, out_of_runs=True)

    def ended(self) -> LoadResult:
        return self._ended

    def _search(self) -> Asking:
        rough, exact = self._rules.stages[0], self._rules.stages[-1]
        low, high = yield from self._bracket(1.0, 2.0, rough)
        if low is not None and high is not None:
            start = math.sqrt(low * high)
            low, high = yield from self._bracket(start, math.sqrt(high / low), exact)
        elif low is not None:
            low, high = yield from self._bracket(low, 2.0, exact)
        else:
            assert high is not None
            low, high = yield from self._bracket(high, 2.0, exact)
        while low is not None and high is not None and high > low * (1.0 + PRECISION):
            middle = math.sqrt(low * high)
            good = yield from self._good(middle, exact)
            low, high = (middle, high) if good else (low, middle)
        self._ended = msgspec.structs.replace(self._ended, missed=high)
        if low is not None:
            yield from self._test(low)

    def _bracket(
        self, start: float, by: float, stage: Stage
    ) -> Generator[list[WantedLoad], Mapping[WantedLoad, Trial], tuple[float | None, float | None]]:
        """A load that is carried and one that is not; None for an end that was not found."""
        load = start
        good = yield from self._good(load, stage)
        factor = by if good else 1.0 / by
        while _within(load * factor):
            following = yield from self._good(load * factor, stage)
            if following != good:
                return (load, load * factor) if good else (load * factor, load)
            load *= factor
        return (load, None) if good else (None, load)

    def _test(self, load: float) -> Asking:
        """Tests with seeds not used in choosing, from the load found downwards."""
        rules = self._rules
        stage = Stage(1.0, rules.test) if rules.test else rules.stages[-1]
        step = 1.0 + PRECISION / 2.0
        for _ in range(MOST_STEPS_DOWN):
            yield from self._ledger.ask(_runs(load, stage))
            confidence = confidence_of_test(rules.confidence, self._ended.tests)
            trials = self._ledger.of(_runs(load, stage))
            sure = sure_of(trials, confidence, chance=bool(rules.test))
            tests = self._ended.tests + 1
            if sure.low >= rules.attained:
                self._ended = msgspec.structs.replace(
                    self._ended, carried=load, sure=sure, confidence=confidence, tests=tests
                )
                return
            self._ended = msgspec.structs.replace(self._ended, tests=tests)
            load /= step
            step *= step  # each failed test makes a larger step down

    def _good(
        self, load: float, stage: Stage
    ) -> Generator[list[WantedLoad], Mapping[WantedLoad, Trial], bool]:
        wanted = _runs(load, stage)
        yield from self._ledger.ask(wanted)
        return worst_of(self._ledger.of(wanted)) >= self._rules.attained


def _runs(load: float, stage: Stage) -> list[WantedLoad]:
    return [WantedLoad(load, stage.share, seed) for seed in stage.seeds]


def weight(load: float) -> float:
    """Cost of a run at that load, in runs at the scenario's own load."""
    return max(1.0, load)


def _within(load: float) -> bool:
    return 2.0**-MOST_DOUBLINGS <= load <= 2.0**MOST_DOUBLINGS


class Knee(msgspec.Struct, frozen=True):
    """The latency knee under one seed."""

    seed: int
    light_load: float
    light_s: float
    """The latency at the light load."""
    load: float | None
    """The load at which latency has doubled; None: at no load tried."""
    latency_s: float | None


KneeAsking = Generator[list[WantedLoad], Mapping[WantedLoad, float | None], None]


class KneeSearch:
    """Finds the load at which latency is twice that of a light load, for each seed."""

    def __init__(self, seeds: Sequence[int], max_runs: float) -> None:
        self._walks = [_LoadWalk(seed) for seed in seeds]
        self._ledger: TrialLedger[WantedLoad, float | None] = TrialLedger(max_runs)
        self.out_of_runs = False

    def moves(self) -> KneeAsking:
        """Yields whole runs, one for every seed at a time."""
        while True:
            asking = [walk for walk in self._walks if walk.next_load is not None]
            if not asking:
                return
            wanted = [WantedLoad(walk.next_load or 0.0, 1.0, walk.seed) for walk in asking]
            try:
                yield from self._ledger.ask(wanted)
            except OutOfBudget:
                self.out_of_runs = True
                return
            for walk, latency_s in zip(asking, self._ledger.of(wanted), strict=True):
                walk.learn(latency_s)

    def knees(self) -> list[Knee]:
        return [walk.knee for walk in self._walks if walk.knee is not None]


class _LoadWalk:
    """Descends to a light load, ascends to twice its latency, then bisects between the two."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.next_load: float | None = 1.0
        self.knee: Knee | None = None
        self._seen: dict[float, float] = {}
        self._doubtful: float | None = None  # a load that may be light
        self._light: float | None = None  # the latency of a light load
        self._light_load = 0.0
        self._low = self._high = 0.0

    def learn(self, latency_s: float | None) -> None:
        load = self.next_load
        assert load is not None
        # If nothing was answered at all, no request was in time.
        self._seen[load] = math.inf if latency_s is None else latency_s
        if self._light is None:
            self._look_for_light(load)
        else:
            self._look_for_knee(load)

    def _look_for_light(self, load: float) -> None:
        seen = self._seen
        lightest = not _within(load / 2.0)
        if self._doubtful is not None:
            doubtful, self._doubtful = self._doubtful, None
            if seen[doubtful] > NOT_FLAT * seen[load] and not lightest:
                self.next_load = load / 2.0
                return
            self._settle(doubtful if seen[doubtful] <= NOT_FLAT * seen[load] else load)
            return
        heavier = seen.get(2.0 * load)
        flat = heavier is not None and heavier <= FLAT * seen[load]
        if lightest:
            self._settle(load)
        elif flat:
            self._doubtful = load
            self.next_load = max(load / FAR_LIGHTER, 2.0**-MOST_DOUBLINGS)
        else:
            self.next_load = load / 2.0

    def _settle(self, load: float) -> None:
        """Takes the load as light and begins to look for the knee."""
        self._light = self._seen[load]
        self._light_load = load
        heavier = [one for one in self._seen if one >= load]
        beyond = [one for one in heavier if self._seen[one] >= DOUBLED * self._light]
        if beyond:
            self._high = min(beyond)
            self._low = max(one for one in heavier if one < self._high)
            self._halve()
        else:
            self._up(max(heavier))

    def _up(self, load: float) -> None:
        self._low = load
        if _within(2.0 * load):
            self.next_load = 2.0 * load
        else:
            self._end(None)

    def _look_for_knee(self, load: float) -> None:
        assert self._light is not None
        doubled = self._seen[load] >= DOUBLED * self._light
        if doubled:
            self._high = load
        elif not self._high:
            self._up(load)
            return
        else:
            self._low = load
        self._halve()

    def _halve(self) -> None:
        if self._high > self._low * (1.0 + PRECISION):
            self.next_load = math.sqrt(self._low * self._high)
        else:
            self._end(self._high)

    def _end(self, load: float | None) -> None:
        assert self._light is not None
        latency_s = None if load is None else self._seen[load]
        self.next_load = None
        self.knee = Knee(self.seed, self._light_load, self._light, load, latency_s)


def knee_interval(knees: Sequence[Knee], confidence: float) -> Interval | None:
    """Confidence interval of the knee over all seeds; None if a seed has no knee."""
    loads = [knee.load for knee in knees]
    known = [load for load in loads if load is not None]
    if not known or len(known) < len(loads):
        return None
    if len(known) == 1:
        return Interval(known[0], known[0], known[0])
    return ratio_interval(known, confidence)
