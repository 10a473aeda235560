"""Admission at the gateway: what the section means, and what is wrong with it."""

from collections.abc import Iterator, Mapping

from windtunnel.admission.gateway.plan import (
    AlwaysPlan,
    DetectorPlan,
    FlowControlPlan,
    GatewayPlan,
    PolicyPlan,
    SaturationPlan,
    TierShedPlan,
    TokenBucketPlan,
)
from windtunnel.admission.gateway.tickets import SHEDDABLE_BELOW
from windtunnel.core.errors import nearest
from windtunnel.core.units import format_duration
from windtunnel.settings.document import KeyPath
from windtunnel.settings.faults import Fault
from windtunnel.settings.limits import MOST_WAITING
from windtunnel.twin.scenario.gateway_spec import (
    AdmissionSpec,
    AlwaysSpec,
    ConcurrencySpec,
    DetectorSpec,
    FlowControlSpec,
    SaturationSpec,
    TierShedSpec,
    TokenBucketSpec,
    UtilizationSpec,
)
from windtunnel.twin.scenario.router_spec import STALENESS_S
from windtunnel.twin.scenario.sections import Scenario
from windtunnel.twin.scenario.serving_spec import ServingSpec
from windtunnel.twin.scenario.workload_spec import SourceSpec, WorkloadEntry

LOOK_EVERY_S = 0.05
"""How often waiting requests are looked at where signals are never old."""

SECTION: KeyPath = ("serving", "admission")


def gateway_plan(spec: Scenario, priorities: Mapping[str, int]) -> GatewayPlan:
    """The plan of a section without faults; `priorities` are those of all classes."""
    admission = spec.serving.admission
    bands = {priorities[name] for name in _classes(spec, priorities)}
    return GatewayPlan(
        policy=_policy(admission, _staleness_s(spec.serving), sorted(bands, reverse=True)),
        budgets=dict(admission.budgets or {}),
        reject_all=admission.over_budget == "reject-all",
    )


def reads_signals(admission: AdmissionSpec) -> bool:
    """Whether the gateway asks servers how they are."""
    if isinstance(admission, FlowControlSpec):
        return isinstance(admission.detector, UtilizationSpec)
    return isinstance(admission, SaturationSpec)


def _staleness_s(serving: ServingSpec) -> float:
    given = serving.router.staleness
    return STALENESS_S if given is None else given


def _policy(admission: AdmissionSpec, staleness_s: float, bands: list[int]) -> PolicyPlan:
    if isinstance(admission, TokenBucketSpec):
        return TokenBucketPlan(admission.capacity, admission.refill)
    if isinstance(admission, TierShedSpec):
        return TierShedPlan(admission.threshold, admission.min_priority)
    if isinstance(admission, SaturationSpec):
        return SaturationPlan(admission.queue_depth, admission.kv_utilization)
    if isinstance(admission, AlwaysSpec):
        return AlwaysPlan()
    most, per_band = admission.max_waiting, admission.max_waiting_per_band
    return FlowControlPlan(
        order=admission.order,
        priorities=tuple(bands),
        max_waiting=MOST_WAITING if most is None else most,
        max_waiting_per_band=MOST_WAITING if per_band is None else per_band,
        ttl_s=admission.ttl,
        limit=admission.limit,
        shedding=admission.shedding,
        eviction=admission.eviction,
        weights=dict(admission.weights or {}),
        detector=_detector(admission.detector, staleness_s),
    )


def _detector(detector: DetectorSpec, staleness_s: float) -> DetectorPlan:
    if isinstance(detector, ConcurrencySpec):
        return DetectorPlan("concurrency", max_per_server=detector.max_per_server)
    if isinstance(detector, UtilizationSpec):
        return DetectorPlan(
            "utilization",
            queue_depth=detector.queue_depth,
            kv_used=detector.kv_utilization,
            interval_s=detector.interval or staleness_s or LOOK_EVERY_S,
        )
    return DetectorPlan("never")


def gateway_faults(spec: Scenario, priorities: Mapping[str, int]) -> Iterator[Fault]:
    """Names of nobody, and options that the rest of the scenario leaves without a use.

    `priorities` are those of all classes that have one.
    """
    admission = spec.serving.admission
    yield from _named_tenants("budgets", admission.budgets, spec)
    if admission.over_budget is not None and admission.budgets is None:
        what = "there are no budgets"
        yield Fault((*SECTION, "over_budget"), what, hint="give some, or leave it out")
    used = _classes(spec, priorities)
    yield from _shedding_faults(admission, [priorities.get(name, 0) for name in sorted(used)])
    if isinstance(admission, FlowControlSpec):
        yield from _order_faults(admission, spec, used)
        yield from _band_faults(admission, {priorities.get(name, 0) for name in used})
        yield from _named_tenants("weights", admission.weights, spec)
        yield from _detector_faults(admission.detector, _staleness_s(spec.serving))


def _shedding_faults(admission: AdmissionSpec, used: list[int]) -> Iterator[Fault]:
    """What sheds requests of a priority below 0 needs some; `used` are those that there are."""
    if any(priority < SHEDDABLE_BELOW for priority in used):
        return
    none = "no request has a priority below 0"
    hint = "give a source a class such as `batch`"
    because = (("slo",),)
    if isinstance(admission, SaturationSpec):
        what = f"{none}, so that 'saturation' lets everybody in"
        yield Fault((*SECTION, "policy"), what, hint=hint, because_of=because)
    if admission.budgets and admission.over_budget != "reject-all":
        what = f"{none}, so that nobody would be turned away over a budget"
        hint += ", or set over_budget: reject-all"
        yield Fault((*SECTION, "budgets"), what, hint=hint, because_of=because)


def _named_tenants(key: str, named: Mapping[str, float] | None, spec: Scenario) -> Iterator[Fault]:
    if named is None:
        return
    if not named:
        yield Fault((*SECTION, key), "no tenant is named", "at least one, or leave it out")
    if any(entry.tenant is None for entry in spec.workload):
        return  # a trace may have any
    known = list(dict.fromkeys(text for entry in spec.workload for text in _tenants(entry)))
    for name in named:
        if name not in known and not any(_is_member(name, entry) for entry in spec.workload):
            what = f"no source has the tenant {name!r}"
            yield Fault((*SECTION, key, name), what, ", ".join(known), nearest(name, known))


def _tenants(entry: WorkloadEntry) -> list[str]:
    """Those of an entry; of a large population the first and the last."""
    tenant = entry.tenant
    assert tenant is not None
    members = _tenant_members(entry)
    return [f"{tenant}-{number}" for number in sorted({0, members - 1})] if members else [tenant]


def _tenant_members(entry: WorkloadEntry) -> int:
    """How many tenants the population of an entry is; 0: it has one, and that is no member."""
    population = entry.population if isinstance(entry, SourceSpec) else None
    return population.members if population and population.tenants == "per-member" else 0


def _is_member(name: str, entry: WorkloadEntry) -> bool:
    tenant, _, number = name.rpartition("-")
    if tenant != entry.tenant or not (number.isascii() and number.isdecimal()):
        return False
    return str(int(number)) == number and int(number) < _tenant_members(entry)


def _classes(spec: Scenario, priorities: Mapping[str, int]) -> set[str]:
    """Those that requests can have; a trace that is given none may have any."""
    used: set[str] = set()
    for entry in spec.workload:
        used.update(priorities if entry.slo is None else [entry.slo])
    return used


def _order_faults(admission: FlowControlSpec, spec: Scenario, used: set[str]) -> Iterator[Fault]:
    order = admission.order
    because = ((*SECTION, "order"),)
    if admission.weights is not None and order != "priority":
        what = f"the order {order!r} has no use for it"
        allowed = "only with order: priority"
        yield Fault((*SECTION, "weights"), what, allowed, because_of=because)
    if admission.eviction and order != "priority":
        what = f"the order {order!r} may give the place to somebody else"
        allowed = "only with order: priority"
        yield Fault((*SECTION, "eviction"), what, allowed, because_of=because)
    targets = [slo.ttft for name, slo in spec.slo.items() if name in used]
    if order == "slo-deadline" and not any(ttft is not None for ttft in targets):
        what = "no class of a source has a ttft to go by"
        hint = "give one under `slo`, or take another order"
        yield Fault((*SECTION, "order"), what, hint=hint, because_of=(("slo",),))


def _band_faults(admission: FlowControlSpec, bands: set[int]) -> Iterator[Fault]:
    if admission.limit < 1 and len(bands) == 1:
        what = "all requests have the same priority, and the highest goes up to 1"
        yield Fault((*SECTION, "limit"), what, hint="leave it out")
    if admission.eviction and min(bands) >= 0:
        what = "no request has a priority below 0, so that none could be stopped"
        yield Fault((*SECTION, "eviction"), what, hint="leave it out")
    most, per_band = admission.max_waiting, admission.max_waiting_per_band
    if most is not None and per_band is not None and per_band > most:
        what = f"{per_band} is more than max_waiting, which is {most}"
        because = ((*SECTION, "max_waiting"),)
        yield Fault((*SECTION, "max_waiting_per_band"), what, because_of=because)


def _detector_faults(detector: DetectorSpec, staleness_s: float) -> Iterator[Fault]:
    if not isinstance(detector, UtilizationSpec) or detector.interval is None:
        return
    if detector.interval < staleness_s:
        stale = format_duration(staleness_s)
        what = f"less than the {stale} after which there is something new to see"
        hint = "lower serving.router.staleness, or leave it out"
        because = (("serving", "router", "staleness"),)
        yield Fault((*SECTION, "detector", "interval"), what, hint=hint, because_of=because)
