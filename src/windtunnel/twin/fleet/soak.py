"""Soaks a whole fleet for half an hour of virtual time: workloads come and go, machines fail.

The fleet converges first; that is the ramp. Then the soak begins, and all figures cover the soak
only. Seven kinds of workloads, in fixed proportions, request machines from a matching inventory
with some spare machines. Units leave and others arrive; a gang leaves as a whole.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec

from windtunnel.core.errors import InputError, InvariantBroken, nearest
from windtunnel.core.invariants import InvariantChecker
from windtunnel.core.loop import Loop
from windtunnel.core.random import Stream, Streams
from windtunnel.core.statistics.histogram import Histogram
from windtunnel.fleet.checks import INVARIANTS, Fleet
from windtunnel.fleet.driver import CYCLE_S
from windtunnel.fleet.execution import (
    DEFERRED,
    ERROR,
    LOST,
    NO_CAPACITY,
    ROLLED_BACK,
    SUCCESS,
    TIMEOUT,
)
from windtunnel.fleet.instruments import (
    ACTIONS_TOTAL,
    BOOTSTRAP_FETCH,
    CYCLE,
    DEFERRALS_TOTAL,
    EXECUTE,
    RECONCILE,
    REJECTED_TOTAL,
    ROLLUP,
    Instruments,
)
from windtunnel.fleet.need import Need
from windtunnel.fleet.orders import ExecutionLimits
from windtunnel.fleet.planner.actions import ACTIONS, PREEMPT, PREEMPTING, CyclePlan
from windtunnel.fleet.planner.buffer import BufferLimits
from windtunnel.fleet.planner.consolidation import ConsolidationLimits
from windtunnel.fleet.shard import Shard
from windtunnel.twin.fleet.bound import CostGap, fleet_gap, sampled_gap
from windtunnel.twin.fleet.processes import ShardProcesses
from windtunnel.twin.fleet.provider import Delays, SimulatedProvider
from windtunnel.twin.fleet.unreliable import ProviderFaults, UnreliableProvider, poisson
from windtunnel.twin.fleet.workloads import BATCH_PRIORITY, BenchWorld, batch_bursts, cells, world


class SoakProfile(msgspec.Struct, frozen=True):
    """The size of a fleet, and its execution limits."""

    machines: int
    needs: int
    limits: ExecutionLimits = ExecutionLimits(actions_per_cycle=4096, concurrency=2048)


PROFILES: Final = {
    "3k": SoakProfile(3_000, 3_000),
    "50k": SoakProfile(50_000, 50_000),
    "100k": SoakProfile(100_000, 100_000),
    "500k": SoakProfile(500_000, 50_000),
}
"""Fleets by name. About one machine in seven is spare; of 500,000, nine in ten are."""

RAMP_CYCLES: Final = 2000
"""A fleet that has not converged after this many cycles never will."""
CHECK_CYCLES: Final = 20
"""Cycles between checks of the invariants, which scan every machine."""
DAY_S: Final = 86_400.0
SHORT_CYCLES: Final = 30
"""With several shards a need counts as short only after this many cycles, since machines must
move first. Such a lasting shortfall does not keep the fleet from converging; it is reported by
the soak."""
MOST_PROCESS_LOSSES: Final = 60.0
MOST_LOSSES_PER_DAY: Final = 24.0
"""A machine lasts an hour on average. With many more losses, a fleet never converges and a soak
never begins."""
BURST_EVERY_S: Final = 300.0
BURST_FROM_S: Final = 60.0
BURST_UNTIL_S: Final = 240.0
"""The part of every five minutes with urgent needs: they take machines from batch work, on full
racks."""
CALM_S: Final = 60.0
"""How long batch work may be short after urgent needs have returned its machines."""
URGENT_CLUSTER: Final = "urgent"
MOST_URGENT: Final = 0.05
ABSENT: Final = 0.05
"""The share of units that are absent at the start of a soak, and arrive when others leave."""
FAULTS: Final = ProviderFaults(
    losses_per_s=0.01 / DAY_S,
    replaced_after_s=600.0,
    forgets=0.001,
    doubles=0.01,
    lies=0.001,
)
"""One machine in a hundred is lost per day; the provider sometimes forgets orders, repeats answers
and lists false records."""


class SoakSettings(msgspec.Struct, frozen=True):
    """The settings of a soak."""

    profile: SoakProfile
    soak_s: float = 1800.0
    churn_per_min: float = 0.02
    """The share of units that leave per minute; as many arrive."""
    faults: ProviderFaults = FAULTS
    delays: Delays = msgspec.field(default_factory=Delays)
    gap_cycles: int = 0
    """How many cycles between comparisons of the assignment with the optimum; 0 means never."""
    seed: int = 1
    shards: int = 1
    process_losses_per_hour: float = 0.0
    """Failures of each shard process and of the coordinator; of the shard processes, half die and
    half only stall."""
    urgent_share: float = 0.02
    """The share of machines that urgent needs request, in bursts."""
    buffer: BufferLimits | None = None
    """Idle machines to keep as replacements; None: none."""
    consolidation: ConsolidationLimits | None = None
    """When to replace machines by cheaper ones; None: never."""

    def check(self) -> "SoakSettings":
        """Returns itself if it is valid; raises InputError otherwise."""
        if not 0.0 < self.soak_s < math.inf:
            raise InputError(f"a soak takes {self.soak_s} s", allowed="more than 0")
        if not 0.0 <= self.churn_per_min <= 1.0:
            raise InputError(f"the churn is {self.churn_per_min} per minute", allowed="0 to 1")
        if not 0.0 <= self.urgent_share <= MOST_URGENT:
            raise InputError(
                f"urgent needs ask for {self.urgent_share:g} of the machines",
                allowed=f"0 to {MOST_URGENT:g}",
            )
        if self.gap_cycles < 0:
            raise InputError(f"gap_cycles is {self.gap_cycles}", allowed="0 or more")
        if self.shards < 1:
            raise InputError(f"there are {self.shards} shards", allowed="1 or more")
        if not 0.0 <= self.process_losses_per_hour <= MOST_PROCESS_LOSSES:
            raise InputError(
                f"each process is lost {self.process_losses_per_hour:g} times an hour",
                allowed=f"0 to {MOST_PROCESS_LOSSES:g}",
            )
        if self.process_losses_per_hour and self.shards == 1:
            raise InputError("a single shard has no coordinator to replace it", hint="ask for more")
        self.faults.check()
        if self.faults.losses_per_s > MOST_LOSSES_PER_DAY / DAY_S:
            raise InputError(
                f"each machine is lost {self.faults.losses_per_s * DAY_S:g} times a day",
                allowed=f"at most {MOST_LOSSES_PER_DAY:g}",
                hint="a fleet that loses machines faster than it gets them never converges",
            )
        return self


class SoakFigures(msgspec.Struct):
    """The figures of a soak."""

    machines: int
    needs: int
    rows: int
    ramp_s: float
    """Simulated seconds until the fleet had converged."""
    soak_s: float
    cycles: int
    cold_cycle_s: float
    cycle_s_p50: float
    cycle_s_p99: float
    cycle_s_max: float
    """Times of planning alone."""
    whole_s_p50: float
    whole_s_p99: float
    whole_s_max: float
    """Times of everything that a shard does in a cycle: lists, roll-ups, planning, execution."""
    reconcile_s_p99: float
    """Time to fold the provider's lists before a cycle."""
    rollup_s_p99: float
    execute_s_p99: float
    actions: int
    """Actions that ended in the soak, successful or not."""
    landed: int
    landing_success: float
    deferred: int
    deferral_reasons: dict[str, int]
    """What deferred actions waited for, in the soak and before it."""
    fetch_s_p99: float
    """Simulated seconds until a cluster had answered what a machine needs to join it."""
    urgent_needs: int
    """Needs of the highest priority, over all bursts."""
    urgent_unserved: int
    """How many of them still lacked machines at the end of their burst."""
    preempted: int
    """Machines drained for needs of higher priority."""
    duplicate_actions: int
    """Orders for operations in progress or already done that were not repeated because of a
    deadline."""
    asked_again: int
    shortfalls: int
    """The most needs short of machines in any cycle of the soak; batch work is excluded while
    urgent needs hold its machines, and for a minute after."""
    shortfall_need: str
    """One of them, with the reason; empty when there was none."""
    losses: int
    losses_expected: float
    lost_with_domain: int
    """Machines lost with a rack or a zone, in addition to the losses."""
    empty_domains: list[str]
    """Racks and zones that should have failed but have no machines, in words."""
    churned: int
    records_rejected: int
    records_lied: int
    gaps: list[CostGap]
    """How much more expensive the assignment was than the optimum, on sampled cycles."""
    invariants_checked: int
    invariants_broken: int
    broken: str
    """The first broken invariant, in words."""
    shards: int
    machines_moved: int
    """Machines that are with a shard other than that of their cell at the end."""
    takeovers: int
    """Shards that another process took over."""
    coordinator_restarts: int
    stale_refused: int
    stale_accepted: int
    """Orders of replaced processes, refused and accepted by the provider."""


ENDINGS: Final = (SUCCESS, ERROR, TIMEOUT, ROLLED_BACK, LOST, NO_CAPACITY)
TIMED: Final = (RECONCILE, ROLLUP, CYCLE, EXECUTE)
ALL: Final = "whole"


class Laps:
    """The duration of each cycle, by part and as a whole."""

    def __init__(self, instruments: Instruments) -> None:
        self._instruments: Final = instruments
        self._before: dict[str, float] = dict.fromkeys((*TIMED, ALL), 0.0)
        self._seen: Final = {name: Histogram() for name in (*TIMED, ALL)}

    def lap(self, *, keep: bool) -> float:
        """Ends a cycle; returns its planning time, and with `keep` records all times."""
        now = {name: self._instruments.times[name].total for name in TIMED}
        now[ALL] = self._instruments.whole_s()
        took = {name: total - self._before[name] for name, total in now.items()}
        self._before = now
        if keep:
            for name, seconds in took.items():
                self._seen[name].add(seconds, 1)
        return took[CYCLE]

    def quantile(self, part: str, share: float) -> float:
        return self._seen[part].quantile(share)

    def longest(self, part: str) -> float:
        return self._seen[part].high


class SoakDemand:
    """The demand of clusters: units that are present, and units that may arrive."""

    def __init__(self, units: dict[str, list[Need]], streams: Streams) -> None:
        self._stream: Final = streams["fleet.soak.churn"]
        self._asked: Final[dict[str, dict[int, list[Need]]]] = {name: {} for name in sorted(units)}
        self._groups: Final[list[list[Need]]] = _groups(units)
        self._present: Final[list[int]] = []
        self._absent: Final[list[int]] = []
        self.changed: Final[dict[str, None]] = {}
        self.urgent: list[Need] = []
        for number in range(len(self._groups)):
            self._arrive(number)

    def __len__(self) -> int:
        return len(self._present)

    def rest(self, share: float) -> None:
        """Lets a share of the units leave; they may arrive again."""
        for _ in range(round(share * len(self._present))):
            self._leave_any()

    def churn(self, mean: float) -> int:
        """Lets some units leave, and as many absent ones arrive."""
        count = min(poisson(mean, self._stream), len(self._present), len(self._absent))
        for _ in range(count):
            number = self._absent.pop(self._stream.integer(0, len(self._absent) - 1))
            self._leave_any()
            self._arrive(number)
        return count

    def burst(self, urgent: list[Need]) -> None:
        """Sets the urgent needs; an empty list ends a burst."""
        self.urgent = urgent
        self.changed[URGENT_CLUSTER] = None

    def needs(self, cluster: str) -> list[Need]:
        """The roll-up of a cluster."""
        if cluster == URGENT_CLUSTER:
            return self.urgent
        return [one for group in self._asked[cluster].values() for one in group]

    def _arrive(self, number: int) -> None:
        group = self._groups[number]
        self._present.append(number)
        self._asked[group[0].cluster][number] = group
        self.changed[group[0].cluster] = None

    def _leave_any(self) -> None:
        place = self._stream.integer(0, len(self._present) - 1)
        number, last = self._present[place], self._present.pop()
        if last != number:
            self._present[place] = last
        self._absent.append(number)
        cluster = self._groups[number][0].cluster
        del self._asked[cluster][number]
        self.changed[cluster] = None


def _groups(units: dict[str, list[Need]]) -> list[list[Need]]:
    """Units that leave together: gangs, and single units by themselves."""
    found: list[list[Need]] = []
    for cluster in sorted(units):
        gangs: dict[str, list[Need]] = {}
        for one in units[cluster]:
            if one.group in gangs:
                gangs[one.group].append(one)
            else:
                alone = [one]
                found.append(alone)
                if one.group:
                    gangs[one.group] = alone
    return found


class Soak:
    """One soak of one fleet."""

    def __init__(self, plan: SoakSettings, clock: Callable[[], float]) -> None:
        self._plan: Final = plan.check()
        profile, streams = plan.profile, Streams(plan.seed)
        names = [f"s{number}" for number in range(plan.shards)]
        made = _worlds(profile, names, streams["fleet.soak.world"])
        self._provider: Final = SimulatedProvider(plan.delays, streams)
        for one in made.values():
            for machine in one.machines:
                self._provider.add(machine)
        self.unreliable: Final = UnreliableProvider(self._provider, plan.faults, streams)
        self.instruments: Final = Instruments(clock)
        make = partial(
            Shard,
            limits=profile.limits,
            instruments=self.instruments,
            buffer=plan.buffer,
            consolidation=plan.consolidation,
        )
        self.processes: Final = ShardProcesses(
            names, make, self._provider, self.unreliable, streams
        )
        self.processes.on_start = self._send_all
        self._driver: Final = self.processes.driver
        self._loop: Final = Loop(self._driver)
        self._shard_of: Final = {
            cluster: name for name, one in made.items() for cluster in one.needs
        }
        units = {cluster: some for one in made.values() for cluster, some in one.needs.items()}
        self._demand: Final = SoakDemand(units, streams)
        self._shard_of[URGENT_CLUSTER] = names[0]
        self._urgent: Final = batch_bursts(
            URGENT_CLUSTER, round(plan.urgent_share * profile.machines)
        )
        self._urgent_needs = 0
        self._unserved = 0
        self._began_s = 0.0
        self._calm_from_s = -math.inf
        self._driver.before_cycle = self._before
        self._driver.after_cycle = self._after
        self._checker: Final = InvariantChecker(INVARIANTS)
        self._laps: Final = Laps(self.instruments)
        self._soaking = False
        self._cold_s = 0.0
        self._open: Final[dict[str, int]] = {}
        """By shard: needs that are short and may still get machines."""
        self._worst = 0
        self._worst_words = ""
        self._churned = 0
        self._expected = 0.0
        self._broken: Final[list[str]] = []
        self._gap_stream: Final = streams["fleet.soak.gap"]
        self._gaps: Final[list[CostGap]] = []

    def run(self, progress: Callable[[float], None] = lambda _: None) -> SoakFigures:
        """Ramps up, soaks, and returns the figures; `progress` receives the completed share."""
        ramp_s = self._ramp()
        start = self._counts()
        self._expected = self.unreliable.expected
        self._soaking = True
        self._began_s = self._loop.now_s
        self._demand.rest(ABSENT)
        loop, first = self._loop, self._driver.cycles
        end_s = loop.now_s + self._plan.soak_s
        while loop.now_s < end_s:
            loop.run(min(end_s, loop.now_s + 60.0))
            progress(1.0 - (end_s - loop.now_s) / self._plan.soak_s)
        self._check()
        if self._plan.gap_cycles and not self._gaps:
            self._sample_gap()  # a short soak is sampled at its end
        return self._figures(ramp_s, loop.now_s - ramp_s, self._driver.cycles - first, start)

    def _ramp(self) -> float:
        """Runs until all requested machines are there."""
        for _ in range(RAMP_CYCLES):
            self._loop.run(self._loop.now_s + CYCLE_S)
            if self._has_converged():
                return self._loop.now_s
        waiting = sum(shard.executor.waiting for shard in self.processes.running)
        raise InputError(
            f"the fleet has not converged in {RAMP_CYCLES} cycles: "
            f"{waiting} actions wait and {sum(self._open.values())} needs are short",
            hint="a slower provider needs a higher concurrency; many losses never let it end",
        )

    def _has_converged(self) -> bool:
        executors = [shard.executor for shard in self.processes.running]
        if any(one.waiting or one.running for one in executors):
            return False
        return not any(self._open.values())

    @property
    def shard(self) -> Shard:
        """The first shard."""
        return self.processes.running[0]

    # Before and after every cycle.

    def _before(self, now_s: float) -> None:
        self.unreliable.tick(now_s)
        if self._soaking:
            mean = len(self._demand) * self._plan.churn_per_min * CYCLE_S / 60.0
            self._churned += self._demand.churn(mean)
            self._burst(now_s)
            losses = self._plan.process_losses_per_hour * (self._plan.shards + 1)
            if losses:
                self.processes.fail_some(losses * CYCLE_S / 3600.0)
        self.processes.take_over(now_s)
        shards = self._driver.shards
        for cluster in list(self._demand.changed):
            shard = shards.get(self._shard_of[cluster])
            if shard is not None:
                shard.want(cluster, self._demand.needs(cluster))
                del self._demand.changed[cluster]

    def _burst(self, now_s: float) -> None:
        """Starts and ends bursts of urgent needs, a few minutes each."""
        at_s = (now_s - self._began_s) % BURST_EVERY_S
        is_time = bool(self._urgent) and BURST_FROM_S <= at_s < BURST_UNTIL_S
        if is_time == bool(self._demand.urgent):
            return
        if is_time:
            self._urgent_needs += len(self._urgent)
        else:
            shard = self._driver.shards.get(self._shard_of[URGENT_CLUSTER])
            if shard is not None:
                self._unserved += sum(not _is_served(shard, one) for one in self._urgent)
        self._demand.burst(self._urgent if is_time else [])

    def _takes_from_batch(self, shard: Shard, now_s: float) -> bool:
        """Whether urgent needs hold machines of batch work, or did until recently."""
        urgent = shard.planner.inventory.clusters.get(URGENT_CLUSTER)
        if urgent is not None and (self._demand.urgent or urgent.configured):
            self._calm_from_s = now_s + CALM_S
        return urgent is not None and now_s < self._calm_from_s

    def _send_all(self, shard: Shard) -> None:
        """Resends all needs of a shard's clusters to a process that takes it over."""
        for cluster, name in self._shard_of.items():
            if name == shard.name:
                self._demand.changed[cluster] = None

    def _after(self, shard: Shard, plan: CyclePlan, now_s: float) -> None:
        took_s = self._laps.lap(keep=self._soaking)
        self.processes.report(shard, plan, now_s)
        if self._driver.cycles == 1:
            self._cold_s = took_s
        short = [one for one in plan.shortfalls if one.verdict != PREEMPTING]
        ages = self.processes.age_of_shortfalls(shard, plan)
        lasting = [one for one in short if ages.get(one.need, SHORT_CYCLES) >= SHORT_CYCLES]
        self._open[shard.name] = len(short) - len(lasting)
        if not self._soaking:
            return
        lowest = BATCH_PRIORITY if self._takes_from_batch(shard, now_s) else -math.inf
        lasting = [one for one in lasting if one.need.priority() > lowest]
        if len(lasting) > self._worst:
            self._worst = len(lasting)
            self._worst_words = f"{lasting[0].need.cluster}: {lasting[0].reason}"
        if shard is not self.processes.running[-1]:
            return
        if self._driver.cycles % CHECK_CYCLES == 0:
            self._check()
        if self._plan.gap_cycles and self._driver.cycles % self._plan.gap_cycles == 0:
            self._sample_gap()

    def _sample_gap(self) -> None:
        for shard in self.processes.running:
            self._gaps.append(fleet_gap(shard.planner))
            self._gaps.append(sampled_gap(shard.planner, self._gap_stream))

    def _check(self) -> None:
        fleet = Fleet(self.processes.running, self._provider)
        try:
            self._checker.run(fleet, f"soak of seed {self._plan.seed}, {self._loop.now_s} s")
        except InvariantBroken as broken:
            self._broken.append(str(broken))

    # Figures.

    def _counts(self) -> dict[str, int]:
        rows: dict[str, int] = {}
        for (kind, result), times in self.instruments.counts[ACTIONS_TOTAL].items():
            if kind != "answer":
                rows[result] = rows.get(result, 0) + times
        rows["preempted"] = self.instruments.counted(ACTIONS_TOTAL, ACTIONS[PREEMPT], SUCCESS)
        rows["rejected"] = self.instruments.counted(REJECTED_TOTAL)
        reasked = {
            (one.name, token): None for one in self.processes.shards for token in one.reasked
        }
        rows["duplicate"] = sum(one not in reasked for one in self._provider.repeats)
        rows["reasked"] = len(reasked)
        rows["lied"] = self.unreliable.lied
        rows["losses"] = self.unreliable.lost
        rows["lost_with_domain"] = self.unreliable.lost_with_domain
        return rows

    def _moved(self) -> int:
        coordinator = self.processes.coordinator
        return 0 if coordinator is None else len(coordinator.books.moved)

    def _figures(
        self, ramp_s: float, soak_s: float, cycles: int, start: dict[str, int]
    ) -> SoakFigures:
        seen = {name: times - start.get(name, 0) for name, times in self._counts().items()}
        ended = sum(seen.get(name, 0) for name in ENDINGS)
        landed = seen.get(SUCCESS, 0)
        profile = self._plan.profile
        return SoakFigures(
            machines=profile.machines,
            needs=profile.needs,
            rows=sum(shard.planner.needs.live for shard in self.processes.running),
            ramp_s=ramp_s,
            soak_s=soak_s,
            cycles=cycles,
            cold_cycle_s=self._cold_s,
            cycle_s_p50=self._laps.quantile(CYCLE, 0.5),
            cycle_s_p99=self._laps.quantile(CYCLE, 0.99),
            cycle_s_max=self._laps.longest(CYCLE),
            whole_s_p50=self._laps.quantile(ALL, 0.5),
            whole_s_p99=self._laps.quantile(ALL, 0.99),
            whole_s_max=self._laps.longest(ALL),
            reconcile_s_p99=self._laps.quantile(RECONCILE, 0.99),
            rollup_s_p99=self._laps.quantile(ROLLUP, 0.99),
            execute_s_p99=self._laps.quantile(EXECUTE, 0.99),
            actions=ended,
            landed=landed,
            landing_success=landed / ended if ended else 1.0,
            deferred=seen.get(DEFERRED, 0),
            deferral_reasons={
                labels[0]: times
                for labels, times in self.instruments.counts[DEFERRALS_TOTAL].items()
            },
            fetch_s_p99=self.instruments.times[BOOTSTRAP_FETCH].quantile(0.99),
            urgent_needs=self._urgent_needs,
            urgent_unserved=self._unserved,
            preempted=seen["preempted"],
            duplicate_actions=seen["duplicate"],
            asked_again=seen["reasked"],
            shortfalls=self._worst,
            shortfall_need=self._worst_words,
            losses=seen["losses"],
            losses_expected=self.unreliable.expected - self._expected,
            lost_with_domain=seen["lost_with_domain"],
            empty_domains=self.unreliable.empty_domains,
            churned=self._churned,
            records_rejected=seen["rejected"],
            records_lied=seen["lied"],
            gaps=self._gaps,
            invariants_checked=self._checker.checked,
            invariants_broken=len(self._broken),
            broken=self._broken[0] if self._broken else "",
            shards=self._plan.shards,
            machines_moved=self._moved(),
            takeovers=self.processes.takeovers,
            coordinator_restarts=self.processes.coordinator_restarts,
            stale_refused=self.processes.stale_refused,
            stale_accepted=self.processes.stale_accepted,
        )


def _is_served(shard: Shard, one: Need) -> bool:
    """Whether a need has its machines, or they are on their way."""
    row = shard.planner.inventory.rows.get(one.key())
    return row is not None and row.whole


def _worlds(profile: SoakProfile, names: list[str], stream: Stream) -> dict[str, BenchWorld]:
    """Machines and needs by shard; raises InputError if there are too few machines."""
    if len(names) > 1:
        made = cells(profile.machines, profile.needs, names, stream)
    else:
        made = {names[0]: world(profile.machines, profile.needs, stream)}
    assert sum(len(one.machines) for one in made.values()) == profile.machines
    wanted = sum(one.wanted for one in made.values())
    if wanted > profile.machines:
        raise InputError(
            f"{wanted} machines are needed and there are {profile.machines}",
            hint="ask for fewer needs",
        )
    return made


def profile_named(name: str) -> SoakProfile:
    """A profile by name."""
    found = PROFILES.get(name)
    if found is None:
        raise InputError(
            f"there is no profile {name!r}",
            allowed=", ".join(PROFILES),
            hint=nearest(name, PROFILES),
        )
    return found


class SoakLimits(msgspec.Struct, frozen=True):
    """The limits that a fleet must meet."""

    whole_s_p99: float = 1.0
    """CPU seconds for lists, roll-ups, planning and execution together.

    Half of the time between two roll-ups would suffice; this leaves room.
    """
    landing_success: float = 0.99
    """The least share of actions that must have ended successfully."""

    def check(self) -> "SoakLimits":
        """Returns itself if its limits are valid; raises InputError otherwise."""
        if not self.whole_s_p99 > 0.0:
            raise InputError(f"the limit of a cycle is {self.whole_s_p99} s", allowed="above 0")
        if not 0.0 <= self.landing_success <= 1.0:
            raise InputError(f"the landing success is {self.landing_success}", allowed="0 to 1")
        return self


class SoakCheck(msgspec.Struct, frozen=True):
    """One limit, and whether it was met."""

    name: str
    value: float
    limit: float
    at_most: bool
    passed: bool
    words: str
    """Further details; may be empty."""


def judge(seen: SoakFigures, envelope: SoakLimits) -> list[SoakCheck]:
    """Every limit with its figure. A figure without any observation does not pass."""
    limits = envelope.check()
    lost = f"{seen.losses} machines lost, {seen.losses_expected:.1f} expected"
    checks = [
        _at_most("whole_s_p99", seen.whole_s_p99, limits.whole_s_p99, f"{seen.cycles} cycles"),
        _at_least("landing_success", seen, limits.landing_success, f"{seen.actions} actions"),
        _at_most("duplicate_actions", seen.duplicate_actions, 0, f"{seen.asked_again} asked again"),
        _at_most("shortfalls", seen.shortfalls, 0, seen.shortfall_need or lost),
        _at_most(
            "invariants_broken",
            seen.invariants_broken,
            0,
            seen.broken or f"{seen.invariants_checked} checks",
        ),
    ]
    if seen.urgent_needs:
        words = f"{seen.urgent_needs} urgent needs, {seen.preempted} machines preempted"
        checks.append(_at_most("urgent_unserved", seen.urgent_unserved, 0, words))
    if seen.shards > 1:
        words = f"{seen.takeovers} takeovers, {seen.stale_refused} refused"
        checks.append(_at_most("stale_accepted", seen.stale_accepted, 0, words))
    return checks


def _at_most(name: str, value: float, limit: float, words: str) -> SoakCheck:
    return SoakCheck(name, value, limit, at_most=True, passed=value <= limit, words=words)


def _at_least(name: str, seen: SoakFigures, limit: float, words: str) -> SoakCheck:
    value = seen.landing_success if seen.actions else math.nan
    return SoakCheck(name, value, limit, at_most=False, passed=value >= limit, words=words)


def has_passed(checks: list[SoakCheck]) -> bool:
    """Whether all limits were met."""
    return all(one.passed for one in checks)
