"""The traffic that a scenario's gateway can expect."""

from collections.abc import Iterator, Mapping

from windtunnel.admission.gateway.settings import ExpectedTraffic, traffic_faults
from windtunnel.settings.faults import Fault
from windtunnel.settings.section import Context
from windtunnel.twin.scenario.sections import Scenario
from windtunnel.workload.settings.sources import SourceSettings, WorkloadEntry


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
