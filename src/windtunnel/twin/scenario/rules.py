"""Rules across several values, checked after defaults are filled in."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from windtunnel.admission.gateway.settings import ExpectedTraffic, traffic_faults
from windtunnel.core.errors import nearest
from windtunnel.settings.document import KeyPath
from windtunnel.settings.faults import Fault, dotted
from windtunnel.settings.section import Context, faults_of
from windtunnel.twin.scenario.sections import Scenario
from windtunnel.twin.settings import PoolSettings
from windtunnel.workload.request import DEFAULT_SLO
from windtunnel.workload.settings.sources import (
    BUILT_IN_PRIORITIES,
    ReplaySettings,
    SourceSettings,
    WorkloadEntry,
    priority_of,
)
from windtunnel.workload.traces.lines import unpacked_name


def rule_faults(spec: Scenario, folder: Path) -> list[Fault]:
    """Reports conflicts between values that are each valid on their own."""
    where = Context(spec, folder)
    return [*faults_of(spec, where), *_all_faults(spec, where)]


def _all_faults(spec: Scenario, where: Context) -> Iterator[Fault]:
    yield from workload_faults(spec)
    yield from class_notes(spec)
    yield from model_faults(spec)
    if (
        spec.fleet
        or spec.gangs
        or any(p.clique or p.priority is not None for p in spec.serving.pools)
    ):
        from windtunnel.twin.scenario.infrastructure import infrastructure_faults

        yield from infrastructure_faults(spec)
    names = [fault.name_at(place) for place, fault in enumerate(spec.faults)]
    yield from where.repeated("faults", names)
    yield from lora_faults(spec)
    yield from gateway_faults(spec, _priorities(spec), where)


def workload_faults(spec: Scenario) -> Iterator[Fault]:
    first: dict[str, int] = {}
    known = [*BUILT_IN_PRIORITIES, *(one for one in spec.slo if one not in BUILT_IN_PRIORITIES)]
    for index, entry in enumerate(spec.workload):
        name = entry.name
        if name is None:
            assert isinstance(entry, ReplaySettings)
            name = unpacked_name(Path(entry.trace.path)).stem
        if name in first:
            what = f"{name!r} is already the name of {dotted(('workload', first[name]))}"
            hint = "give it a name" if entry.name is None else None
            yield Fault(("workload", index, "name"), what, hint=hint)
        first.setdefault(name, index)
        for key in ("slo", "default_slo"):
            named = getattr(entry, key, None)
            if named is not None and named not in known:
                what = f"{named!r} is not a class of service"
                hint = nearest(named, known)
                yield Fault(("workload", index, key), what, ", ".join(known), hint)


def class_notes(spec: Scenario) -> Iterator[Fault]:
    """Notes about classes of service that no traffic names; the rows of a trace may name any."""
    if any(isinstance(entry, ReplaySettings) and entry.slo is None for entry in spec.workload):
        return
    named = {entry.slo or DEFAULT_SLO for entry in spec.workload}
    for name in spec.slo:
        if name not in named:
            what = "no traffic has this class, so that its targets change nothing"
            hint = nearest(name, named - set(spec.slo)) or "name it as `slo` of a workload entry"
            yield Fault(("slo", name), what, hint=hint, is_note=True)


def asked_by(entry: WorkloadEntry, spec: Scenario) -> list[str | None]:
    """The models that requests of an entry may be for; None is the unnamed one."""
    asked = [entry.model or spec.model]
    if isinstance(entry, ReplaySettings):
        asked += (entry.trace.models or {}).values()
    return list(dict.fromkeys(asked))


def pools_for(entry: WorkloadEntry, spec: Scenario) -> list[tuple[int, PoolSettings]]:
    """The pools that serve requests of an entry, each with its number."""
    asked = asked_by(entry, spec)
    pools = enumerate(spec.serving.pools)
    return [(number, pool) for number, pool in pools if (pool.model or spec.model) in asked]


def model_faults(spec: Scenario) -> Iterator[Fault]:
    served = list(dict.fromkeys(pool.model or spec.model for pool in spec.serving.pools))
    for index, entry in enumerate(spec.workload):
        path: KeyPath = ("workload", index)
        yield from _unserved((*path, "model"), entry.model or spec.model, served)
        if isinstance(entry, ReplaySettings):
            for name, model in (entry.trace.models or {}).items():
                yield from _unserved((*path, "trace", "models", name), model, served)
    if spec.model is not None and _nobody_means_it(spec):
        what = "every pool and every entry of the workload has a model of its own"
        yield Fault(("model",), what, hint="leave it out", is_note=True)


def _unserved(path: KeyPath, model: str | None, served: list[str | None]) -> Iterator[Fault]:
    if model in served:
        return
    names = [name for name in served if name is not None]
    because: tuple[KeyPath, ...] = (("serving", "pools"), ("model",))
    if model is None:
        what = "missing, and every pool has a model of its own"
        yield Fault(path, what, ", ".join(names), because_of=because)
    else:
        what = f"no pool serves {model!r}"
        allowed = ", ".join(names) or "none: no pool has a model"
        yield Fault(path, what, allowed, nearest(model, names), because)


def _nobody_means_it(spec: Scenario) -> bool:
    return all(pool.model is not None for pool in spec.serving.pools) and all(
        entry.model is not None for entry in spec.workload
    )


def lora_faults(spec: Scenario) -> Iterator[Fault]:
    pools = spec.serving.pools
    askers: list[list[KeyPath]] = [[] for _ in pools]  # by pool: the entries that request adapters
    traces: set[int] = set()  # pools of traces, whose adapters are known only when they are read
    slotted: set[int] = set()  # those of them where a pool for the same requests has slots
    for index, source in enumerate(spec.workload):
        asked_pools = pools_for(source, spec)
        if isinstance(source, SourceSettings) and source.adapters is not None:
            path = ("workload", index, "adapters")
            for number, _ in asked_pools:
                askers[number].append(path)
        elif isinstance(source, ReplaySettings):
            traces.update(number for number, _ in asked_pools)
            if any(pool.engine.lora is not None for _, pool in asked_pools):
                slotted.update(number for number, _ in asked_pools)
    for index, pool in enumerate(pools):
        section = ("serving", "pools", index, "engine", "lora")
        asking = askers[index]
        if pool.engine.lora is not None:
            if not asking and index not in traces:
                what = "no source asks for adapters, so that it would change nothing"
                hint = "give a source of the workload `adapters`"
                yield Fault(section, what, hint=hint, is_note=True)
        elif asking or index in slotted:
            who = dotted(asking[0]) if asking else "a trace perhaps"
            what = f"missing, but {who} asks for adapters"
            hint = "every pool of its model must have slots for them"
            yield Fault(section, what, hint=hint, because_of=tuple(asking))


def _priorities(spec: Scenario) -> dict[str, int]:
    """The priority of every class, built-in and the file's own."""
    own = {name: priority_of(name, slo) for name, slo in spec.slo.items()}
    return {**BUILT_IN_PRIORITIES, **own}


def gateway_faults(
    spec: Scenario, priorities: Mapping[str, int], where: Context
) -> Iterator[Fault]:
    """Reports gateway options that have no use in this scenario.

    `priorities` are those of all classes that have one.
    """
    return traffic_faults(
        spec.serving.admission,
        _expected_traffic(spec, priorities),
        where.inside("serving", "admission"),
    )


def _expected_traffic(spec: Scenario, priorities: Mapping[str, int]) -> ExpectedTraffic:
    classes: set[str] = set()
    for entry in spec.workload:  # a trace without a class may have any
        classes.update(priorities if entry.slo is None else [entry.slo])
    has_any = any(entry.tenant is None for entry in spec.workload)  # a trace may have any
    tenants = [] if has_any else [name for entry in spec.workload for name in _tenants(entry)]
    return ExpectedTraffic(
        priorities={priorities.get(name, 0) for name in classes},
        has_targets=any(
            slo.ttft_s is not None for name, slo in spec.slo.items() if name in classes
        ),
        tenants=list(dict.fromkeys(tenants)),
        is_tenant=lambda name: (
            has_any or name in tenants or any(_is_member(name, entry) for entry in spec.workload)
        ),
        staleness_s=spec.serving.router.staleness_s,
    )


def _tenants(entry: WorkloadEntry) -> list[str]:
    """The tenants of an entry; for a population, only the first and the last."""
    tenant = entry.tenant
    assert tenant is not None
    members = _tenant_members(entry)
    return [f"{tenant}-{number}" for number in sorted({0, members - 1})] if members else [tenant]


def _tenant_members(entry: WorkloadEntry) -> int:
    """The number of tenants in the population of an entry; 0 for one tenant without a
    population."""
    population = entry.population if isinstance(entry, SourceSettings) else None
    return population.members if population and population.tenants == "per-member" else 0


def _is_member(name: str, entry: WorkloadEntry) -> bool:
    tenant, _, number = name.rpartition("-")
    if tenant != entry.tenant or not (number.isascii() and number.isdecimal()):
        return False
    return str(int(number)) == number and int(number) < _tenant_members(entry)
