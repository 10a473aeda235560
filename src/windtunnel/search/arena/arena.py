"""Runs every policy on the same traffic: tuned on some cases, judged on others, against foresight.

A case is a scenario with a seed, or with part of a recorded trace. All policies have the same
bounds, and each tries the same minimum sizes. Each policy runs with its defaults, and with the
value of its one knob that attained the goal, with a margin, at the lowest cost on the tuning cases.
Its cost is also reported relative to that of foresight at equal attainment: the cheapest schedule
found with all arrivals known.
"""

import json
import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

import windtunnel
from windtunnel.analysis.shadow.forecasts import PolicyRegret
from windtunnel.core.errors import InputError, WindtunnelError
from windtunnel.core.statistics.intervals import CONFIDENCE, mean_interval
from windtunnel.core.system.processes import Died, processors
from windtunnel.search.arena.capacity import CapacityCurve, FixedRun, LoadBin, MissSink
from windtunnel.search.arena.contestants import (
    FIXED,
    HISTORY,
    KV,
    PLAIN,
    RUNNING,
    SERVED,
    TPOT,
    Contestant,
    Section,
)
from windtunnel.search.arena.schedule import (
    ReplicaPrice,
    SizeBounds,
    cheapest_schedule,
    cost_at,
    entries_of,
    frontier,
)
from windtunnel.search.execution.workers import SpreadTasks
from windtunnel.search.repeats.runs import RunStopped
from windtunnel.twin.ceiling import BY_MEMORY, MemoryCeiling
from windtunnel.twin.results.timeline import Timeline
from windtunnel.twin.run import run
from windtunnel.twin.scenario.plan import ScenarioPlan
from windtunnel.twin.servers.pools import cost_of, price_of
from windtunnel.twin.settings import PoolSettings

DEFAULT, TUNED = "default", "tuned"
STANDING: Final = 0.6
"""The higher of the two minimum sizes, as a share of the fixed pool that attains the goal."""
ROOM: Final = 3
"""The maximum size as a multiple of that fixed pool, where the scenario sets no maximum."""
MOST_REPLICAS: Final = 256
TUNED_MISSES: Final = 0.6
"""Share of the allowed misses that a tuned setting may have on the tuning cases: another seed's
attainment differs by about two points."""
EQUAL: Final = 0.003
"""Attainment that is lower by at most this counts as equal."""
MISS_PRICES: Final = (1.5, 3.0, 8.0, 20.0, 60.0, 300.0)
"""Prices of a missed request for foresight, in multiples of the cost of serving one request. A
higher price gives a schedule with fewer misses."""
MINIMUM_RUN_S: Final = 60.0
LATE_STARTS: Final = 2.0
"""How much earlier foresight orders replicas, in standard deviations of the startup time."""
BINS_PER_START: Final = 5
SHORTEST_BIN_S, LONGEST_BIN_S = 5.0, 30.0

Case = Callable[[Sequence[str]], ScenarioPlan]
"""Builds a scenario from overrides such as `scaling={...}`."""
ArenaProgress = Callable[[int, int, str], None]
"""Called with the number of finished runs, the approximate total, and the name of the current
work."""


class ArenaTask(NamedTuple):
    """A run, and the length of the bins in which its misses are counted (0: they are not
    counted)."""

    plan: ScenarioPlan
    bin_s: float
    step_scale: float = 1.0
    """Factor on the scenario's step times."""


class ArenaOutcome(msgspec.Struct, frozen=True):
    """A run's attainment, cost, and number of size changes."""

    attained: float
    cost: float
    changes: int
    bins: tuple[LoadBin, ...] = ()


class Setting(NamedTuple):
    """A policy as it runs: its `scaling` section, and the knob value and minimum size chosen for
    it."""

    kind: str
    section: Section
    value: float | None
    floor: int


def play(task: ArenaTask) -> ArenaOutcome:
    """Executes one run in the current process."""
    sink = MissSink(task.plan, task.bin_s) if task.bin_s > 0.0 else None
    (pool,) = task.plan.pools
    scales = None if task.step_scale == 1.0 else {pool.name: task.step_scale}
    look = MemoryCeiling.of(None, processors()).look
    ended = run(task.plan, rows=sink, step_scales=scales, look=look)
    result = ended.result
    if result["ended_by"] == BY_MEMORY:
        raise RunStopped(f"the run ended early: {result['partial']}")
    classes = [one for one in result["slo"].values() if one["attained"] is not None]
    requests = sum(one["requests"] for one in classes)
    met = math.fsum(one["attained"] * one["requests"] for one in classes)
    cost = result["pools"][pool.name]["replica_seconds"] * _price_per_s(pool)
    bins = () if sink is None else tuple(_bins(sink, task.bin_s, ended.timeline))
    changes = result["decisions"]["scaling"]
    return ArenaOutcome(met / requests if requests else 0.0, cost, changes, bins)


def _bins(sink: MissSink, bin_s: float, timeline: Timeline) -> Iterator[LoadBin]:
    samples = timeline.samples
    times = [sample.time_s for sample in samples]
    for number in range(max(sink.arrived, default=-1) + 1):
        first = min(bisect_left(times, number * bin_s), len(samples) - 1)
        end = max(first + 1, bisect_left(times, (number + 1) * bin_s))
        within = samples[first:end]
        servers = max(1, sum(len(sample.running) for sample in within))
        yield LoadBin(
            sink.arrived[number],
            sink.missed[number],
            sum(sum(sample.running) + sum(sample.waiting) for sample in within) / servers,
            math.fsum(math.fsum(sample.kv_used) for sample in within) / servers,
        )


class Arena:
    """One comparison: the tuning and judging cases, the bounds, and the runs so far."""

    def __init__(
        self,
        tune: Sequence[Case],
        judge: Sequence[Case],
        goal: float,
        done: ArenaProgress,
        step_scale: float = 1.0,
    ) -> None:
        self._tune: Final = tune
        self._judge: Final = judge
        self._goal: Final = goal
        self._tuned_goal: Final = 1.0 - TUNED_MISSES * (1.0 - goal)
        self._done: Final = done
        self._step_scale: Final = step_scale
        self._base: Final = tune[0](())
        self._ended = 0
        self._expected = 0
        pool = _only_pool(self._base)
        self._pool: Final = pool.name
        self.unit: Final = "replica hours" if price_of(pool) is None else "$"
        load = self._base.serving.load_time
        bin_s = load.mean_s / BINS_PER_START
        self._bin_s: Final = min(max(bin_s, SHORTEST_BIN_S), LONGEST_BIN_S)
        self._price: Final = ReplicaPrice(_price_per_s(pool), load.mean_s, MINIMUM_RUN_S)
        self._lead_s: Final = load.mean_s + LATE_STARTS * load.stddev_s + self._bin_s
        scaling = self._base.scaling
        bounds = None if scaling is None else scaling.bounds[self._pool]
        self._fewest: Final = 1 if bounds is None else bounds.min
        self._most = MOST_REPLICAS if bounds is None else min(bounds.max, MOST_REPLICAS)
        self._reached = 0.0
        self._history: Section = {}
        self._bounded: Final = bounds is not None and bounds.max <= MOST_REPLICAS
        self._hindsight: Final[dict[int, list[ArenaOutcome]]] = {}
        self._workers: SpreadTasks[ArenaTask, ArenaOutcome]

    def contest(self, contestants: Sequence[Contestant], jobs: int | None) -> dict[str, Any]:
        """Runs all contestants and returns the results as plain data."""
        judged_settings = 2 * len(contestants) + 1
        self._expected = 8 * len(self._tune) + len(self._judge) * (
            judged_settings + 3 + len(MISS_PRICES)
        )
        self._expected += sum(len(one.values) for one in contestants) * 2 * len(self._tune)
        with SpreadTasks[ArenaTask, ArenaOutcome](play, jobs) as workers:
            self._workers = workers
            fixed, curve = self._fixed()
            floors = (self._fewest, max(self._fewest + 1, round(STANDING * fixed)))
            foresight = self._foresight(fixed, curve)
            units = self._units(curve)
            rows, left_out = [], []
            for contestant in contestants:
                try:
                    rows.append(self._compete(contestant, units, floors))
                except InputError as error:
                    left_out.append({"name": contestant.name, "says": str(error)})
        size = Setting(TUNED, {}, fixed, fixed)
        judged = [judgement_of(size, self._hindsight[fixed])]
        rows.append({"name": FIXED, "knob": "replicas", "tried": [], "judged": judged})
        for row in rows:
            for one in row["judged"]:
                _add_regret(one, foresight)
        return {
            "windtunnel": windtunnel.__version__,
            "name": self._base.name,
            "goal": self._goal,
            "reached": self._reached,
            "confidence": CONFIDENCE,
            "unit": self.unit,
            "cases": {"tuned_on": len(self._tune), "judged_on": len(self._judge)},
            "bounds": {"min": self._fewest, "max": self._most, "floors": list(floors)},
            "capacity": {**curve.point._asdict(), "curve": [list(one) for one in curve.steps]},
            "contestants": rows,
            "left_out": left_out,
            "foresight": [
                {"attained": hull[-1][0], "cost": hull[-1][1], "frontier": [list(p) for p in hull]}
                for hull in foresight
            ],
        }

    def regret(self, plans: Mapping[str, ScenarioPlan], jobs: int) -> dict[str, PolicyRegret]:
        """Runs the plans on the single case and compares each with foresight at equal
        attainment."""
        with SpreadTasks[ArenaTask, ArenaOutcome](play, jobs) as workers:
            self._workers = workers
            (hull,) = self._foresight(*self._fixed())
            played = self._play(list(plans.values()), "policies")
        return {
            name: PolicyRegret(one.attained, one.cost, one.cost / cost_at(hull, one.attained))
            for name, one in zip(plans, played, strict=True)
        }

    # One pool of a fixed size

    def _fixed(self) -> tuple[int, CapacityCurve]:
        """Finds the smallest pool that attains the tuning goal on the tuning cases, and its
        capacity curve.

        Sizes are doubled or halved until one attains the goal and another does not, then bisected.
        If none attains it, the smallest that attains as much as the largest is found.
        """
        seen: dict[int, float] = {}
        runs: list[FixedRun] = []

        def attained(size: int) -> float:
            if size not in seen:
                played = self._play(
                    [self._sized(case, size) for case in self._tune], FIXED, bins=True
                )
                runs.extend(FixedRun(size, self._bin_s, one.bins) for one in played)
                seen[size] = _mean([one.attained for one in played])
                rates = [_short(one.arrived / self._bin_s) for one in played[0].bins]
                self._history = {"every": f"{self._bin_s:g}s", "rates": rates}
            return seen[size]

        size = min(max(1, self._base.pools[0].replicas), self._most)
        while attained(size) < self._tuned_goal and size < self._most:
            size = min(2 * size, self._most)
        self._reached = attained(size)
        goal = self._tuned_goal if self._reached >= self._tuned_goal else self._reached - EQUAL
        low, high = 0, size
        while high > 1 and low == 0:  # find a size that misses it, which also shows overload
            half = max(1, high // 2)
            if attained(half) >= goal:
                high = half
            else:
                low = half
            if half == 1:
                break
        while high - low > 1:
            middle = (low + high) // 2
            if attained(middle) >= goal:
                high = middle
            else:
                low = middle
        if not self._bounded:
            self._most = min(MOST_REPLICAS, max(self._fewest + 2, ROOM * high))
        return high, CapacityCurve(runs)

    def _sized(self, case: Case, size: int) -> ScenarioPlan:
        bounds = {self._pool: {"min": size, "max": size}}
        return self._with(case, {"policy": "saturation", "pools": bounds}, size)

    def _with(self, case: Case, section: Section, replicas: int) -> ScenarioPlan:
        sets = [f"serving.pools.0.replicas={replicas}", f"scaling={json.dumps(section)}"]
        return case(sets)

    # Policies

    def _units(self, curve: CapacityCurve) -> dict[str, float]:
        targets = [slo.tpot_s for slo in self._base.slos.values() if slo.tpot_s is not None]
        return {
            RUNNING: max(1.0, curve.point.running),
            KV: max(1e-4, curve.point.kv_used),
            TPOT: min(targets, default=0.05),
            SERVED: self._price.per_s / max(curve.point.rate, 1e-9),
            PLAIN: 1.0,
        }

    def _compete(
        self, contestant: Contestant, units: Mapping[str, float], floors: Sequence[int]
    ) -> dict[str, Any]:
        unit = units[contestant.unit]
        tried = [
            Setting(TUNED, contestant.section(_short(value * unit)), _short(value * unit), floor)
            for floor in floors
            for value in contestant.values
        ]
        outcomes = self._all(tried, self._tune, contestant.name)
        shown = [_tried(setting, played) for setting, played in zip(tried, outcomes, strict=True)]
        aim = min(self._tuned_goal, max(one["attained"] for one in shown) - EQUAL)
        good = [one for one in range(len(tried)) if shown[one]["attained"] >= aim]
        best = min(good, key=lambda one: (shown[one]["cost"], one))
        default = Setting(DEFAULT, contestant.default(_short(unit)), None, floors[0])
        chosen = [default, tried[best]]
        judged = self._all(chosen, self._judge, contestant.name)
        return {
            "name": contestant.name,
            "knob": contestant.knob,
            "tried": shown,
            "judged": [
                judgement_of(setting, played)
                for setting, played in zip(chosen, judged, strict=True)
            ],
        }

    def _all(
        self, settings: Sequence[Setting], cases: Sequence[Case], name: str
    ) -> list[list[ArenaOutcome]]:
        """Runs each setting on each case; outcomes are grouped by setting."""
        start = min(max(self._base.pools[0].replicas, self._fewest), self._most)
        plans = []
        for setting in settings:
            bounds = {self._pool: {"min": setting.floor, "max": self._most}}
            section = {**setting.section, "pools": bounds}
            if HISTORY in section:
                section[HISTORY] = self._history
            plans += [self._with(case, section, max(start, setting.floor)) for case in cases]
        played = self._play(plans, name)
        count = len(cases)
        return [played[at : at + count] for at in range(0, len(played), count)]

    # Foresight

    def _foresight(self, fixed: int, curve: CapacityCurve) -> list[list[tuple[float, float]]]:
        """For each case, the frontier (attained, cost) of schedules computed with all arrivals
        known."""
        sizes = [size for size in (fixed - 1, fixed, fixed + 1) if 1 <= size <= self._most]
        for size in sizes:
            plans = [self._sized(case, size) for case in self._judge]
            self._hindsight[size] = self._play(plans, FIXED, bins=True)
        unit = self._price.per_s / max(curve.point.rate, 1e-9)
        plans = []
        for number, case in enumerate(self._judge):
            arrivals = [one.arrived for one in self._hindsight[fixed][number].bins]
            for miss_price in MISS_PRICES:
                bounds = SizeBounds(min(1, self._most), self._most)
                schedule = cheapest_schedule(
                    arrivals, self._bin_s, curve.missed, self._price, bounds, miss_price * unit
                )
                plans.append(self._scheduled(case, schedule))
        played = self._play(plans, "foresight")
        found = []
        for number in range(len(self._judge)):
            first = number * len(MISS_PRICES)
            own = played[first : first + len(MISS_PRICES)]
            own += [by_case[number] for by_case in self._hindsight.values()]
            found.append(frontier([(one.attained, one.cost) for one in own]))
        return found

    def _scheduled(self, case: Case, schedule: Sequence[int]) -> ScenarioPlan:
        section = {
            "policy": "foresight",
            "interval": f"{SHORTEST_BIN_S:g}s",
            "lead": f"{self._lead_s:g}s",
            "schedule": {self._pool: entries_of(schedule, self._bin_s)},
            "pools": {self._pool: {"min": 1, "max": self._most}},
        }
        return self._with(case, section, schedule[0])

    def _play(
        self, plans: Sequence[ScenarioPlan], what: str, *, bins: bool = False
    ) -> list[ArenaOutcome]:
        answers: dict[int, ArenaOutcome] = {}
        bin_s = self._bin_s if bins else 0.0
        tasks = [ArenaTask(plan, bin_s, self._step_scale) for plan in plans]
        self._done(self._ended, max(self._expected, self._ended), what)
        for number, answer in self._workers.map(tasks):
            if isinstance(answer, Died):
                hint = "memory may be short: --jobs 1 runs one at a time"
                raise WindtunnelError("a worker process ended before its run did", hint=hint)
            answers[number] = answer
            self._ended += 1
            self._done(self._ended, max(self._expected, self._ended), what)
        return [answers[number] for number in range(len(plans))]


def _only_pool(plan: ScenarioPlan) -> PoolSettings:
    """The one pool whose size is decided. Rejects scenarios with several pools, placed servers, or
    no target."""
    if len(plan.pools) != 1 or plan.on_machines:
        what = "a cluster or a fleet places its servers"
        if len(plan.pools) != 1:
            what = f"it has {len(plan.pools)} pools"
        allowed = "a scenario with one pool, whose servers start by themselves"
        raise InputError(what, where="--policies", allowed=allowed)
    targets = [
        target for slo in plan.slos.values() for target in (slo.ttft_s, slo.tpot_s, slo.e2e_s)
    ]
    if not any(target is not None for target in targets):
        what = "the scenario has no target that a policy could attain"
        hint = "give one, such as slo: {standard: {ttft: 2s}}"
        raise InputError(what, where="--policies", hint=hint)
    return plan.pools[0]


def _price_per_s(pool: PoolSettings) -> float:
    """Cost of a replica per second; without a price, a replica-hour costs one."""
    return 1.0 / 3600.0 if price_of(pool) is None else cost_of(pool, 1.0)


def _tried(setting: Setting, played: Sequence[ArenaOutcome]) -> dict[str, Any]:
    return {
        "value": setting.value,
        "floor": setting.floor,
        "attained": _mean([one.attained for one in played]),
        "cost": _mean([one.cost for one in played]),
    }


def judgement_of(setting: Setting, played: Sequence[ArenaOutcome]) -> dict[str, Any]:
    return {
        "kind": setting.kind,
        "section": setting.section,
        "value": setting.value,
        "floor": setting.floor,
        "attained": _spread([one.attained for one in played], most=1.0),
        "cost": _spread([one.cost for one in played]),
        "changes": _mean([one.changes for one in played]),
    }


def _add_regret(judged: dict[str, Any], foresight: Sequence[Sequence[tuple[float, float]]]) -> None:
    """Adds the cost relative to foresight at equal attainment, case by case."""
    pairs = zip(judged["attained"]["values"], judged["cost"]["values"], foresight, strict=True)
    judged["regret"] = _spread([cost / cost_at(hull, attained) for attained, cost, hull in pairs])


def _spread(values: Sequence[float], most: float = math.inf) -> dict[str, Any]:
    """Values by case, their mean, and its confidence interval; a single case has no interval."""
    if len(values) == 1:
        return {"values": list(values), "mean": values[0], "low": None, "high": None}
    mean, low, high = mean_interval(values).within(0.0, most)
    return {"values": list(values), "mean": mean, "low": low, "high": high}


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _short(value: float) -> float:
    """Rounds to three significant digits, as a person would write the value."""
    return float(f"{value:.3g}")
