"""The autoscaler's view of a run: its pools as variants of a model, and the recent traffic."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from windtunnel.core.statistics.distribution import quantile_of
from windtunnel.models.step_time.model import StepTimeModel, StepWork
from windtunnel.scaling.build import ScalingSetup
from windtunnel.scaling.snapshot import (
    Flow,
    MeanLatencies,
    Model,
    Objective,
    ReplicaCounts,
    ReplicaSpec,
    ReplicaView,
    RequestLengths,
    Snapshot,
    StepTimes,
    TtftPercentiles,
    Variant,
)
from windtunnel.twin.fleet.pools import machine_price
from windtunnel.twin.requests.in_flight import InFlight
from windtunnel.twin.results.recorder import Recorder
from windtunnel.twin.scenario.plan import ScenarioPlan
from windtunnel.twin.servers.cluster import Cluster
from windtunnel.twin.servers.pools import cost_of
from windtunnel.twin.servers.replicas import DRAINING, PENDING, READY, STARTING, Pool, Replica
from windtunnel.twin.settings import PoolSettings
from windtunnel.workload.settings.sources import models_of

AN_HOUR_S = 3600.0
WITHOUT_END = 10**12
"""The number of accelerators of an unlimited kind."""


class EngineTimes(StepTimes):
    """The step times of a pool, for a policy that plans with them."""

    def __init__(self, model: StepTimeModel) -> None:
        self._model: Final = model

    def step_s(self, prefill_tokens: float, decoding: float, context_tokens: float) -> float:
        prompt, decodes = math.ceil(prefill_tokens), math.ceil(decoding)
        if not prompt and not decodes:
            return 0.0
        chunks = [(prompt, 0, prompt)] if prompt else []
        context = max(math.ceil(context_tokens), decodes)
        return self._model.step_s(StepWork(chunks, decodes, context, decodes + len(chunks)))


class Totals:
    """Totals of one model since the start of a run; a flow is the difference of two."""

    def __init__(self, recorder: Recorder, cluster: Cluster, model: int) -> None:
        of = recorder.models[model] if recorder.models else recorder.total
        self.arrived: Final = int(of.requests)
        self.completed: Final = int(of.completed)
        self.met: Final = int(of.attained)
        self.asked: Final = float(of.asked_prompt_tokens)
        self.asked_squares: Final = of.asked_prompt_squares
        self.prompt: Final = float(of.prompt_tokens)
        self.output: Final = float(of.output_tokens)
        self.hits: Final = float(of.prefix_hit_tokens)
        replicas = zip(recorder.servers, cluster.replicas, strict=True)
        servers = [account for account, one in replicas if one.pool.model == model]
        self.ttft_s: Final = sum(one.ttft_s for one in servers)
        self.writing_s: Final = sum(one.writing_s for one in servers)


def _over(amount: float, count: float) -> float:
    return amount / count if count > 0 else 0.0


def flow_between(before: Totals, after: Totals, interval_s: float, ttft_s: list[float]) -> Flow:
    """The traffic between two totals, with the TTFTs of completed requests."""
    arrived, completed = after.arrived - before.arrived, after.completed - before.completed
    output = after.output - before.output
    first_s, writing_s = after.ttft_s - before.ttft_s, after.writing_s - before.writing_s
    prompt = _over(after.asked - before.asked, arrived)
    square = _over(after.asked_squares - before.asked_squares, arrived)
    return Flow(
        interval_s,
        arrived=arrived,
        completed=completed,
        met=after.met - before.met,
        lengths=RequestLengths(
            prompt_tokens=prompt,
            prompt_cv=_over(math.sqrt(max(0.0, square - prompt * prompt)), prompt),
            output_tokens=_over(output, completed),
            prefix_hit=_over(after.hits - before.hits, after.prompt - before.prompt),
        ),
        latencies=MeanLatencies(
            ttft_s=_over(first_s, completed),
            tpot_s=_over(writing_s, output - completed),
            e2e_s=_over(first_s + writing_s, completed),
        ),
        ttft=percentiles_of(ttft_s),
    )


def percentiles_of(ttft_s: list[float]) -> TtftPercentiles:
    if not ttft_s:
        return TtftPercentiles()
    ordered = sorted(ttft_s)
    return TtftPercentiles(
        quantile_of(ordered, 0.90), quantile_of(ordered, 0.95), quantile_of(ordered, 0.99)
    )


class FleetObserver:
    """Takes snapshots of one run, each at a cost proportional to its replicas."""

    def __init__(
        self,
        plan: ScenarioPlan,
        cluster: Cluster,
        recorder: Recorder,
        in_flight: InFlight,
        scaling: ScalingSetup,
    ) -> None:
        self._plan: Final = plan
        self._cluster: Final = cluster
        self._recorder: Final = recorder
        self._in_flight: Final = in_flight
        self._bounds: Final = scaling.bounds
        self._accelerators: Final = _accelerators(plan, scaling)
        self._names: Final = plan.model_names
        self._objectives: Final = [objective_of(plan, model) for model in plan.models]
        self._specs: Final = [
            _spec(plan, pool, own) for pool, own in zip(plan.pools, cluster.pools, strict=True)
        ]
        self._tiers: Final = price_tiers(plan)
        self._taken_s = 0.0
        self._totals = self._sums()
        self._ttft_s: Final[list[list[float]]] = [[] for _ in self._names]
        recorder.ttft_lately = self._ttft_s
        self._heard: dict[int, tuple[int, int, float, float]] = {}  # by server, at the last look
        self.missed: Final[dict[int, int]] = {}  # servers: how many faults hide the metrics of each

    def look(self, now_s: float) -> tuple[Snapshot, Snapshot]:
        """The true snapshot, and the observed one: without servers whose metrics are missing."""
        totals = self._sums()
        flows = [
            flow_between(before, after, now_s - self._taken_s, ttft_s)
            for before, after, ttft_s in zip(self._totals, totals, self._ttft_s, strict=True)
        ]
        for lately in self._ttft_s:
            lately.clear()
        self._taken_s, self._totals = now_s, totals
        replicas = {
            int(one.server.index): self._replica(one, now_s)
            for pool in self._cluster.pools
            for one in pool.here
            if one.state == READY
        }
        true = Snapshot(now_s, self._models(flows, replicas), self._free())
        if not self.missed:
            return true, true
        seen = {number: one for number, one in replicas.items() if number not in self.missed}
        return true, Snapshot(now_s, self._models(flows, seen), self._free())

    def _sums(self) -> list[Totals]:
        """The totals of each model."""
        models = range(len(self._names))
        return [Totals(self._recorder, self._cluster, model) for model in models]

    def _models(self, flows: list[Flow], replicas: dict[int, ReplicaView]) -> list[Model]:
        """The models; `replicas` are those that answered, by server, and other ready ones are
        missing."""
        used = self._used() if self._tiers else {}
        return [self._model(model, flow, replicas, used) for model, flow in enumerate(flows)]

    def _model(
        self, model: int, flow: Flow, replicas: dict[int, ReplicaView], used: dict[str, int]
    ) -> Model:
        pools = zip(self._plan.pools, self._cluster.pools, strict=True)
        return Model(
            self._names[model],
            [
                self._variant(number, plan, own, replicas, used)
                for number, (plan, own) in enumerate(pools)
                if own.model == model
            ],
            flow=flow,
            queued=self._in_flight.queued[model],
            queued_prompt_tokens=float(self._in_flight.queued_prompt_tokens[model]),
            objective=self._objectives[model],
        )

    def _free(self) -> dict[str, int] | None:
        """Accelerators that no replica has or will have, by kind; None when none is limited."""
        if self._accelerators is None:
            return None
        there = self._accelerators
        return {kind: there.get(kind, WITHOUT_END) - used for kind, used in self._used().items()}

    def _used(self) -> dict[str, int]:
        """Accelerators that replicas have or will have, by kind."""
        used: dict[str, int] = {}
        for plan, own in zip(self._plan.pools, self._cluster.pools, strict=True):
            kind = plan.accelerator or ""
            counts = own.counts
            # Includes draining ones: they keep their machine until the last request has ended.
            here = counts[PENDING] + counts[STARTING] + counts[READY] + counts[DRAINING]
            used[kind] = used.get(kind, 0) + int(here) * plan.gpus
        return used

    def _variant(
        self,
        number: int,
        plan: PoolSettings,
        own: Pool,
        replicas: dict[int, ReplicaView],
        used: dict[str, int],
    ) -> Variant:
        bounds = self._bounds[own.name]
        spec = self._specs[number]
        tiers = self._tiers.get(spec.accelerator)
        if tiers is not None:
            price = spec.accelerators * marginal_price(tiers, used[spec.accelerator])
            spec = replace(spec, price_per_hour=price)
        ready = [int(one.server.index) for one in own.here if one.state == READY]
        answered = [replicas[server] for server in ready if server in replicas]
        return Variant(
            own.name,
            role=plan.role,
            spec=spec,
            minimum=bounds.min,
            maximum=bounds.max,
            counts=ReplicaCounts(
                target=own.target,
                starting=own.counts[STARTING],
                draining=own.counts[DRAINING],
                pending=own.counts[PENDING],
                missing=len(ready) - len(answered),
            ),
            replicas=answered,
        )

    def _replica(self, replica: Replica, now_s: float) -> ReplicaView:
        server = replica.server
        number = int(server.index)
        account = self._recorder.servers[number]
        heard = (
            int(account.answers),
            int(account.output_tokens),
            account.ttft_s,
            account.writing_s,
        )
        before = self._heard.get(number, (0, 0, 0.0, 0.0))
        self._heard[number] = heard
        answers = heard[0] - before[0]
        kv_tokens = float(server.pool.blocks * server.limits.block_size)
        waiting, running = int(server.queued), int(server.running.count)
        in_flight = self._cluster.rosters[replica.pool.model].signals.in_flight[number]
        return ReplicaView(
            f"{replica.pool.name}-{replica.number}",
            waiting=waiting,
            running=running,
            expected=max(0, in_flight - waiting - running, int(server.holds_apart)),
            kv_tokens_used=server.kv_used(now_s) * kv_tokens,
            kv_tokens=kv_tokens,
            ttft_s=_over(heard[2] - before[2], answers),
            tpot_s=_over(heard[3] - before[3], heard[1] - before[1] - answers),
        )


def _spec(plan: ScenarioPlan, pool: PoolSettings, own: Pool) -> ReplicaSpec:
    limits = own.limits
    return ReplicaSpec(
        accelerator=pool.accelerator or "",
        accelerators=pool.gpus,
        price_per_hour=cost_of(pool, AN_HOUR_S),
        startup_s=startup_s_of(plan, pool),
        kv_tokens=float(limits.usable_blocks * limits.block_size),
        max_num_seqs=int(limits.max_num_seqs),
        max_num_batched_tokens=int(limits.max_num_batched_tokens),
        step_times=EngineTimes(own.step_time),
    )


PriceTier = tuple[float, int]
"""Dollars per accelerator-hour, and the most accelerators at that price."""


def price_tiers(plan: ScenarioPlan) -> dict[str, list[PriceTier]]:
    """The prices of the fleet's machines by accelerator, cheapest first."""
    fleet = plan.sections.fleet
    tiers: dict[str, list[PriceTier]] = {}
    for kind in () if fleet is None else fleet.pools:
        each = (machine_price(kind) or 0.0) / kind.accelerators
        tiers.setdefault(kind.accelerator, []).append((each, kind.machines.max * kind.accelerators))
    return {kind: sorted(found) for kind, found in tiers.items()}


def marginal_price(tiers: Sequence[PriceTier], used: int) -> float:
    """The price of the next accelerator, when the cheapest are taken first."""
    for price, there in tiers:
        if used < there:
            return price
        used -= there
    return tiers[-1][0]


def startup_s_of(plan: ScenarioPlan, pool: PoolSettings) -> float:
    """The mean time until a requested replica is ready, if it needs a new machine.

    It includes a cycle of the fleet, and the machine kind with the shortest provisioning counts.
    """
    load_s = plan.serving.load_time.mean_s
    fleet = plan.sections.fleet
    if fleet is None:
        return load_s
    kinds = [one.provisioning.mean_s for one in fleet.pools if one.accelerator == pool.accelerator]
    return load_s + fleet.cycle_s + min(kinds, default=0.0)


def _accelerators(plan: ScenarioPlan, scaling: ScalingSetup) -> dict[str, int] | None:
    """Accelerators by kind: as configured for the autoscaler, or else the quota of machines."""
    fleet = plan.sections.fleet
    if scaling.accelerators is not None or fleet is None:
        return scaling.accelerators
    kinds: dict[str, int] = {}
    for pool in fleet.pools:
        kinds[pool.accelerator] = (
            kinds.get(pool.accelerator, 0) + pool.machines.max * pool.accelerators
        )
    return kinds


def objective_of(plan: ScenarioPlan, model: str | None) -> Objective:
    """The targets of the most important class with targets among the model's requests."""
    names = {entry.slo for entry in plan.workload if model in models_of(entry)}
    classes = {name: slo for name, slo in plan.slos.items() if name in names}
    promising = [name for name, one in classes.items() if one.ttft_s or one.tpot_s or one.e2e_s]
    if not promising:
        return Objective()
    first = classes[max(promising, key=lambda name: (plan.priorities[name], name))]
    return Objective(first.ttft_s or 0.0, first.tpot_s or 0.0, first.e2e_s or 0.0)
