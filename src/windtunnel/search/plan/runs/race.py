"""The search for the cheapest deployment, as a generator of wanted runs.

It knows no scenario and runs nothing. It is given lanes of entrants (deployments that differ only
in their number of servers), asks for runs in batches, receives their results, and ends with a
winner and a verdict on all others. Its requests depend only on the results, never on when they
arrived or which worker ran them.
"""

from collections.abc import Generator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from windtunnel.search.plan.runs.confidence import ShareBounds, confidence_of_test
from windtunnel.search.plan.runs.trials import (
    OutOfBudget,
    Rules,
    Stage,
    Trial,
    TrialLedger,
    failure_of,
    sure_of,
    worst_of,
)

# Why an entrant is not the answer: a closed set. The reasons in `bounds` precede any run.
MISSES = "misses-slo"
FEWER = "fewer-servers"
NOT_SURE = "not-sure-enough"
FAILED = "run-failed"
DEARER = "dearer"
UNTRIED = "out-of-runs"
RUNNER_UP = "runner-up"
BEST = "best"

WIDTH = 4
"""Entrants that advance a stage at a time; a constant, so that results do not depend on the
workers."""
SCREENED = 16
"""Lanes that have their short runs at a time; a constant for the same reason."""
FAR_DEARER = 2.0
"""Runners-up cost at most this many times the answer."""
CLEARLY = 0.1
"""How much lower a single run may attain than many: caches are cold at first, and seeds differ."""
SURE_OF_A_MISS = 0.999


class Entrant(NamedTuple):
    """A deployment: its number, its servers, and their cost per hour.

    `scales`: an autoscaler changes the number of servers, or a fleet bills its machines, so that
    this is their minimum cost.
    """

    number: int
    servers: tuple[int, ...]
    cost: float
    scales: bool = False


class ServerCounts(NamedTuple):
    """Entrants from few servers to many. `rising`: more servers are never worse than fewer."""

    entrants: tuple[Entrant, ...]
    rising: bool


class WantedRun(NamedTuple):
    """A wanted run: its entrant, its share of the full length, and its seed."""

    number: int
    share: float
    seed: int

    @property
    def cost(self) -> float:
        return self.share


class CandidateVerdict(msgspec.Struct, frozen=True):
    """The verdict on an entrant, with the figures behind it."""

    reason: str
    share: float | None = None
    """Length of the runs it is judged by, as a share of a whole run."""
    runs: int = 0
    attained: float | None = None
    """Attainment of the worst class."""
    low: float | None = None
    high: float | None = None
    confidence: float | None = None
    cost: float | None = None
    """Cost per hour; measured for an entrant that scales."""
    instead: int | None = None
    """The entrant with more servers that misses too, or the cheaper answer."""
    reached: float | None = None
    """The attainment of that entrant with more servers."""
    reached_runs: int = 0
    """The number of its runs."""
    sentence: str = ""


class RaceResult(msgspec.Struct, frozen=True):
    """The result of a search."""

    best: int | None
    runners_up: tuple[int, ...]
    closest: int | None
    """The closest entrant if none attains the goal."""
    verdicts: dict[int, CandidateVerdict]
    runs: int
    whole_runs: float
    out_of_runs: bool
    tests: int


Moves = Generator[list[WantedRun], Mapping[WantedRun, Trial], None]


class _Standing:
    """The progress of a lane: its current entrant and next stage."""

    def __init__(self, lane: ServerCounts) -> None:
        self.lane = lane
        self.at = 0
        self.stage = 0
        self.screened = False  # whether short runs have shown how many servers to begin with
        self.done = False  # its entrant is the answer or a runner-up

    @property
    def entrant(self) -> Entrant:
        return self.lane.entrants[self.at]

    @property
    def out(self) -> bool:
        return self.at >= len(self.lane.entrants)


class Seeker:
    """Finds the first of many that suffices, given that all after it do too; `at` is the next to
    try."""

    def __init__(self, many: int) -> None:
        self._low, self._high = 0, many  # the first that suffices is between, or `many`
        self._leap = 1

    @property
    def found(self) -> bool:
        return self._low >= self._high

    @property
    def at(self) -> int:
        leaping = self._low + self._leap - 1
        return min(leaping, (self._low + self._high) // 2)

    def learn(self, *, enough: bool) -> None:
        if enough:
            self._high, self._leap = self.at, self._high  # no more leaps: bisect from here on
        else:
            self._low, self._leap = self.at + 1, 2 * self._leap


def _runs(entrant: Entrant, stage: Stage) -> list[WantedRun]:
    """The runs of an entrant in a stage; an entrant that scales always has whole runs."""
    share = 1.0 if entrant.scales else stage.share
    return [WantedRun(entrant.number, share, seed) for seed in stage.seeds]


class Race:
    """The search. `moves` yields batches of wanted runs and is sent their trials; then call
    `ended`."""

    def __init__(self, lanes: Sequence[ServerCounts], rules: Rules) -> None:
        self._rules = rules
        self._stages = (*rules.stages, *rules.doubtful)
        self._standings = [_Standing(lane) for lane in lanes]
        self._entrants = {one.number: one for lane in lanes for one in lane.entrants}
        self._ledger: TrialLedger[WantedRun, Trial] = TrialLedger(rules.max_runs)
        self._verdicts: dict[int, CandidateVerdict] = {}
        self._tests = 0
        self._best: int | None = None
        self._runners_up: list[int] = []
        self._out_of_runs = False

    def moves(self) -> Moves:
        """Yields wanted runs until the answer is known or no runs are left."""
        try:
            yield from self._climb()
        except OutOfBudget:
            self._out_of_runs = True

    def ended(self) -> RaceResult:
        """Returns the answer, and a verdict on every entrant."""
        for number in self._entrants:
            if number not in self._verdicts:
                self._verdicts[number] = self._left(number)
        return RaceResult(
            best=self._best,
            runners_up=tuple(self._runners_up),
            closest=closest_of(self._verdicts) if self._best is None else None,
            verdicts=dict(sorted(self._verdicts.items())),
            runs=len(self._ledger.seen),
            whole_runs=self._ledger.spent,
            out_of_runs=self._out_of_runs,
            tests=self._tests,
        )

    # Short runs of many, longer runs of the cheapest

    def _climb(self) -> Moves:
        """Advances the cheapest entrants stage by stage until the cheapest of all has passed the
        test."""
        while True:
            running = self._running()
            if not running or self._has_enough:
                return
            unseen = [one for one in running[:WIDTH] if not one.screened]
            if unseen:
                yield from self._screen([one for one in running if not one.screened][:SCREENED])
                continue
            # Of equally cheap ones test the best so far: the first test is the least strict.
            least = self._cost(running[0].entrant)
            cheapest = [one for one in running[:WIDTH] if self._cost(one.entrant) == least]
            if all(one.stage == len(self._stages) for one in cheapest):
                yield from self._test(max(cheapest, key=self._attained_so_far))
                continue
            sifted = len(self._rules.stages)
            ahead = [one for one in running[:WIDTH] if one.stage < sifted]
            ahead += [one for one in cheapest if sifted <= one.stage < len(self._stages)]
            yield from self._further(ahead)

    @property
    def _has_enough(self) -> bool:
        return self._best is not None and len(self._runners_up) >= self._rules.runners_up

    def _further(self, ahead: Sequence[_Standing]) -> Moves:
        """Runs the next stage of each lane: its entrant is then eliminated, advances, or is ready
        to be tested."""
        last = len(self._rules.stages) - 1
        # The cost of an entrant that scales is measured, and a short run does not represent a day.
        for one in ahead:
            if one.entrant.scales:
                one.stage = max(one.stage, last)
        yield from self._run([(one.entrant, self._stages[one.stage]) for one in ahead])
        for one in ahead:
            stage = self._stages[one.stage]
            if self._fails(one.entrant, stage):
                self._dismiss_up_to(one, one.at, stage)
            elif one.stage < last:
                one.stage += 1
            elif worst_of(self._of(one.entrant, stage)) >= self._rules.attained:
                one.stage = len(self._stages)
            elif one.stage + 1 < len(self._stages):
                one.stage += 1
            else:
                sure = self._sure(one.entrant, stage, self._rules.confidence)
                self._doubt(one, stage, sure, self._rules.confidence)

    def _attained_so_far(self, standing: _Standing) -> tuple[float, int]:
        """Sort key: attainment in whole runs with the seeds that all entrants have run, then
        entrant number."""
        trials = self._of(standing.entrant, self._rules.stages[-1])
        return worst_of(trials), -standing.entrant.number

    def _doubt(
        self, standing: _Standing, stage: Stage, sure: ShareBounds, confidence: float
    ) -> None:
        """Records that an entrant may not attain the goal; one with more servers takes its
        place."""
        entrant = standing.entrant
        reason = MISSES if sure.high < self._rules.attained else NOT_SURE
        said = self._verdict(reason, entrant, stage, sure, confidence)
        self._verdicts[entrant.number] = said
        standing.at += 1
        standing.stage = len(self._rules.stages) - 1

    def _running(self) -> list[_Standing]:
        """Lanes still worth running, the cheapest first."""
        running = [one for one in self._standings if not one.out and not one.done]
        if self._best is not None:
            dear = FAR_DEARER * self._cost(self._entrants[self._best])
            running = [one for one in running if self._cost(one.entrant) <= dear]
        return sorted(running, key=lambda one: (self._cost(one.entrant), one.entrant.number))

    def _screen(self, standings: Sequence[_Standing]) -> Moves:
        """Finds the fewest servers of each lane that are not clearly too few.

        Doubles its steps until the servers may be enough, then bisects.
        """
        stage = self._rules.stages[0]
        seekers = {}
        for place, standing in enumerate(standings):
            standing.screened = True
            if standing.lane.rising and len(standing.lane.entrants) > 1:
                seekers[place] = Seeker(len(standing.lane.entrants))
        while seekers:
            tried = {
                place: standings[place].lane.entrants[seeker.at]
                for place, seeker in seekers.items()
            }
            yield from self._run([(entrant, stage) for entrant in tried.values()])
            for place, entrant in tried.items():
                seeker = seekers[place]
                fails = self._fails(entrant, stage)
                if fails:
                    self._dismiss_up_to(standings[place], seeker.at, stage)
                seeker.learn(enough=not fails)
            seekers = {place: seeker for place, seeker in seekers.items() if not seeker.found}

    def _test(self, standing: _Standing) -> Moves:
        """Tests an entrant with seeds that were not used in choosing it."""
        entrant, rules = standing.entrant, self._rules
        stage = Stage(1.0, rules.test) if rules.test else rules.stages[-1]
        yield from self._run([(entrant, stage)])
        if self._failure(entrant, stage):
            self._dismiss_up_to(standing, standing.at, stage)
            return
        judged = self._best is None
        confidence = (
            confidence_of_test(rules.confidence, self._tests) if judged else rules.confidence
        )
        sure = self._sure(entrant, stage, confidence)
        self._tests += judged
        if sure.low < rules.attained:
            self._doubt(standing, stage, sure, confidence)
            return
        standing.done = True
        said = self._verdict(BEST if judged else RUNNER_UP, entrant, stage, sure, confidence)
        self._verdicts[entrant.number] = said
        if judged:
            self._best = entrant.number
        else:
            self._runners_up.append(entrant.number)

    # Runs, and what they say

    def _run(self, turns: Sequence[tuple[Entrant, Stage]]) -> Moves:
        yield from self._ledger.ask([run for turn in turns for run in _runs(*turn)])

    def _of(self, entrant: Entrant, stage: Stage) -> list[Trial]:
        return self._ledger.of(_runs(entrant, stage))

    def _failure(self, entrant: Entrant, stage: Stage) -> str:
        return failure_of(self._of(entrant, stage))

    def _fails(self, entrant: Entrant, stage: Stage) -> bool:
        """Whether an entrant is eliminated: even the upper bound of its attainment is below the
        target.

        A single run does not show how runs vary, so it needs more confidence and a clear margin.
        """
        if self._failure(entrant, stage):
            return True
        rules = self._rules
        if rules.test and len(stage.seeds) == 1:
            return self._sure(entrant, stage, SURE_OF_A_MISS).high < rules.attained * (
                1.0 - CLEARLY
            )
        return self._sure(entrant, stage, rules.confidence).high < rules.attained

    def _sure(self, entrant: Entrant, stage: Stage, confidence: float) -> ShareBounds:
        return sure_of(self._of(entrant, stage), confidence, chance=bool(self._rules.test))

    def _cost(self, entrant: Entrant) -> float:
        """The cost as far as known; for an entrant that scales, the mean of its whole runs."""
        if not entrant.scales:
            return entrant.cost
        costs = [
            trial.cost
            for run, trial in self._ledger.seen.items()
            if run.number == entrant.number and not trial.failure
        ]
        return sum(costs) / len(costs) if costs else entrant.cost

    # Verdicts

    def _verdict(
        self, reason: str, entrant: Entrant, stage: Stage, sure: ShareBounds, confidence: float
    ) -> CandidateVerdict:
        return CandidateVerdict(
            reason=reason,
            share=1.0 if entrant.scales else stage.share,
            runs=len(stage.seeds),
            attained=sure.share,
            low=sure.low,
            high=sure.high,
            confidence=confidence,
            cost=self._cost(entrant),
        )

    def _dismiss_up_to(self, standing: _Standing, at: int, stage: Stage) -> None:
        """Eliminates the entrant that ran and all entrants of its lane with fewer servers."""
        entrants = standing.lane.entrants
        loser = entrants[at]
        failure = self._failure(loser, stage)
        if failure:
            said = CandidateVerdict(FAILED, cost=self._cost(loser), sentence=failure)
        else:
            sure = self._sure(loser, stage, self._rules.confidence)
            said = self._verdict(MISSES, loser, stage, sure, self._rules.confidence)
        self._verdicts[loser.number] = said
        for fewer in entrants[standing.at : at]:
            reason = UNTRIED if failure else FEWER
            less = CandidateVerdict(
                reason,
                cost=self._cost(fewer),
                instead=loser.number,
                reached=said.attained,
                reached_runs=0 if said.low == said.high else said.runs,
            )
            self._verdicts.setdefault(fewer.number, less)
        standing.at = at + 1

    def _has_more(self, number: int, best: int) -> bool:
        """Whether an entrant is in the lane of the answer and has more servers."""
        for one in self._standings:
            lane = [entrant.number for entrant in one.lane.entrants]
            if number in lane and best in lane:
                return lane.index(number) > lane.index(best)
        return False

    def _left(self, number: int) -> CandidateVerdict:
        """The verdict on an entrant that was not eliminated: costlier than the answer, or out of
        budget."""
        entrant = self._entrants[number]
        cost = self._cost(entrant)
        seen = self._ledger.seen
        stages = [
            stage
            for stage in reversed(self._stages)
            if all(run in seen for run in _runs(entrant, stage))
        ]
        reason, instead, sentence = UNTRIED, None, ""
        if self._best is not None:
            dearer = cost >= self._cost(self._entrants[self._best])
            if dearer or self._has_more(number, self._best):
                reason, instead = DEARER, self._best
                # On a fleet or with an autoscaler this is a minimum, which may seem cheaper.
                sentence = "" if dearer else "has more servers than the answer"
        if not stages or self._failure(entrant, stages[0]):
            return CandidateVerdict(reason, cost=cost, instead=instead, sentence=sentence)
        sure = self._sure(entrant, stages[0], self._rules.confidence)
        said = self._verdict(reason, entrant, stages[0], sure, self._rules.confidence)
        return msgspec.structs.replace(said, instead=instead, sentence=sentence)


def closest_of(verdicts: Mapping[int, CandidateVerdict]) -> int | None:
    """The entrant with the highest attainment; of equals, the one with longer runs, then the
    cheaper."""
    known = [
        (said.attained or 0.0, said.share or 0.0, -(said.cost or 0.0), -number)
        for number, said in verdicts.items()
        if said.attained is not None
    ]
    return -max(known)[3] if known else None
