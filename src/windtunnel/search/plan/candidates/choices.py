"""The choices of a plan: every value of every setting, from the scenario's `plan` or the
scenario."""

from typing import Any

import msgspec

from windtunnel.core.errors import InputError
from windtunnel.models.catalog.accelerators import ACCELERATORS, resolve_accelerator
from windtunnel.models.settings import PhysicsStepTime
from windtunnel.search.settings import CountRange, PlanSettings
from windtunnel.twin.fleet.pools import machine_price
from windtunnel.twin.scenario.plan import ScenarioPlan
from windtunnel.twin.settings import PoolSettings

TENSOR_PARALLEL = (1, 2, 4, 8)
BY_HARDWARE = ("physics", "roofline", "blis-trained-physics")
"""Step-time models that depend on the accelerator."""
SUGGESTED = PlanSettings()
"""Used for a scenario without the section."""

Section = dict[str, Any]


class PlanBudget(msgspec.Struct, frozen=True):
    """The resources that a deployment may use."""

    stock: dict[str, int]
    """Available accelerators by name; unlimited for names not listed."""
    machine: int | None
    """Accelerators per machine."""
    dollars_per_hour: float | None

    def machines(self, servers: int, tensor_parallel: int) -> int:
        """Machines that the servers fill; each server is on as few machines as possible."""
        assert self.machine is not None
        if tensor_parallel >= self.machine:
            return servers * -(-tensor_parallel // self.machine)
        return -(-servers // (self.machine // tensor_parallel))

    def accelerators(self, servers: int, tensor_parallel: int) -> int:
        """Accelerators occupied, including those left idle on a machine."""
        if self.machine is None:
            return servers * tensor_parallel
        return self.machines(servers, tensor_parallel) * self.machine


class Choices(msgspec.Struct, frozen=True):
    """The values that are combined. None: as in the scenario."""

    models: tuple[str | None, ...]
    accelerators: tuple[str | None, ...]
    tensor_parallel: tuple[int | None, ...]
    max_num_seqs: tuple[int | None, ...]
    max_num_batched_tokens: tuple[int | None, ...]
    memory_utilization: tuple[float | None, ...]
    together: bool
    replicas: CountRange | None
    prefill: CountRange | None
    decode: CountRange | None
    routers: tuple[Section | None, ...]
    scalers: tuple[Section | None, ...]
    """None here: a fixed number of servers."""
    prices: dict[str, float]
    """Dollars per accelerator-hour, by name."""
    machine_price: float | None
    """With a `fleet` in the scenario, the lowest price of one of its accelerators per hour; the
    cost of a deployment is then measured."""
    budget: "PlanBudget"
    not_varied: tuple[str, ...]
    """Sentences about what was not varied, apart from the engine."""


def template_of(plan: ScenarioPlan) -> PoolSettings:
    """The pool that servers take their settings from, apart from what is chosen: one for both
    prefill and decode, if any."""
    both = [pool for pool in plan.pools if pool.role == "both"]
    return (both or [pool for pool in plan.pools if pool.role == "decode"] or [*plan.pools])[0]


def choices_of(plan: ScenarioPlan) -> Choices:
    """Choices from the section `plan`; where it is silent, from the rest of the scenario."""
    planning = plan.sections.plan or SUGGESTED
    pool = template_of(plan)
    _refuse_many_pools(plan)
    if planning.by_model:
        what, hint = "the scenario serves one model", "write its keys under plan itself"
        raise InputError(what, where="plan.by_model", hint=hint)
    by_hardware = pool.step_time.model in BY_HARDWARE and not _has_profile(pool)
    free = by_hardware and not plan.on_machines
    notes: list[str] = []
    if plan.on_machines:
        _refuse_hardware(planning)
        notes.append("other accelerators and tensor_parallel: the scenario has its own machines")
        accelerators: tuple[str | None, ...] = (None,)
    else:
        accelerators = _accelerators(planning, pool, notes, free=free)
    degrees = planning.tensor_parallel or (TENSOR_PARALLEL if free else (pool.tensor_parallel,))
    engine = planning.engine
    roles = {one.role for one in plan.pools}
    apart = planning.prefill_decode
    split = (None, None) if apart is None else (apart.prefill, apart.decode)
    together = planning.together
    if apart is None and roles == {"prefill", "decode"}:
        together = together and plan.sections.plan is not None
        split = _around(plan, "prefill"), _around(plan, "decode")
    if split[0] is not None and free:
        notes.append("prefill and decode on different accelerators")
    if split[0] is None:
        notes.append("prefill and decode on separate servers: plan.prefill_decode is not set")
    if planning.routers is None:
        notes.append(f"routers other than {plan.router.policy}")
    scalers = _scalers(plan, planning, notes)
    return Choices(
        models=tuple(planning.models or (None,)),
        accelerators=accelerators,
        tensor_parallel=tuple(degrees),
        max_num_seqs=tuple(engine.max_num_seqs or (None,)),
        max_num_batched_tokens=tuple(engine.max_num_batched_tokens or (None,)),
        memory_utilization=tuple(engine.memory_utilization or (None,)),
        together=together,
        replicas=planning.replicas,
        prefill=split[0],
        decode=split[1],
        routers=tuple(planning.written_routers or (None,)),
        scalers=scalers,
        prices=planning.prices_by_name,
        machine_price=_machine_price(plan),
        budget=PlanBudget(planning.stock_by_name, planning.machine, planning.dollars_per_hour),
        not_varied=tuple(notes),
    )


OF_HARDWARE = [
    "models",
    "accelerators",
    "prices",
    "stock",
    "machine",
    "dollars_per_hour",
    "tensor_parallel",
    "prefill_decode",
]


def _refuse_hardware(planning: PlanSettings) -> None:
    """Rejects hardware choices where machines or gangs define what a server is and costs."""
    for name in OF_HARDWARE:
        if getattr(planning, name):
            raise InputError(
                "the scenario has its own machines or gangs, which say what a server is and costs",
                where=f"plan.{name}",
                allowed="replicas, engine, routers, fixed and autoscalers",
                hint="leave it out, or plan without machines (--set fleet=null --set gangs=null)",
            )


def _machine_price(plan: ScenarioPlan) -> float | None:
    fleet = plan.sections.fleet
    if fleet is None:
        return None
    return min((machine_price(pool) or 0.0) / pool.accelerators for pool in fleet.pools)


def _refuse_many_pools(plan: ScenarioPlan) -> None:
    for index, pool in enumerate(plan.pools):
        if pool.gpus > pool.tensor_parallel:
            raise InputError(
                f"{pool.name} has data_parallel {pool.data_parallel} and pipeline_parallel "
                f"{pool.pipeline_parallel}, and a plan varies tensor_parallel alone",
                where=f"serving.pools[{index}]",
                allowed="1 of both",
                hint="`sweep` takes any setting",
            )
    roles = sorted(pool.role for pool in plan.pools)
    if roles in (["both"], ["decode", "prefill"]):
        return
    raise InputError(
        f"the scenario has {len(roles)} pools ({', '.join(roles)})",
        where="serving.pools",
        allowed="one pool, or one with the role prefill and one with the role decode",
        hint="a plan chooses the number of servers: leave one pool, with the settings of all",
    )


def _accelerators(
    planning: PlanSettings, pool: PoolSettings, notes: list[str], *, free: bool
) -> tuple[str | None, ...]:
    if planning.accelerators is not None:
        names = [resolve_accelerator(name).name for name in planning.accelerators]
        others = [name for name in ACCELERATORS if name not in names]
        if others:
            notes.append(f"accelerators that plan.accelerators leaves out: {', '.join(others)}")
        return tuple(names)
    if free:
        return tuple(ACCELERATORS)
    kind = pool.step_time.model
    profile = _has_profile(pool)
    what = "a profile of one accelerator" if profile else f"the step time {kind!r}"
    notes.append(f"other accelerators and tensor_parallel: {what} says nothing about them")
    return (None,)


def _around(plan: ScenarioPlan, role: str) -> CountRange:
    """For a scenario with such pools: from one server to twice as many as it has."""
    have = sum(pool.replicas for pool in plan.pools if pool.role == role)
    return CountRange(min=1, max=max(2, 2 * have))


def _scalers(
    plan: ScenarioPlan, planning: PlanSettings, notes: list[str]
) -> tuple[Section | None, ...]:
    fixed: tuple[Section | None, ...] = (None,) if planning.fixed else ()
    written = planning.written_autoscalers
    if written is not None:
        return (*fixed, *written)
    if plan.scaling is not None:
        return (*fixed, {})
    notes.append("autoscalers: plan.autoscalers is not set")
    return fixed


def _has_profile(pool: PoolSettings) -> bool:
    """Whether the pool names a profile, which is specific to its accelerator."""
    return isinstance(pool.step_time, PhysicsStepTime) and pool.step_time.profile is not None
