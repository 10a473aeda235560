"""The rules that tie several values together, checked after defaults are filled in."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from windtunnel.settings.faults import Fault, dotted
from windtunnel.settings.section import Context, faults_of
from windtunnel.twin.faults.kind import InjectedFault
from windtunnel.twin.scenario.gateway import gateway_faults
from windtunnel.twin.scenario.ground import ground_faults
from windtunnel.twin.scenario.lora import lora_faults
from windtunnel.twin.scenario.models import model_faults
from windtunnel.twin.scenario.sections import Scenario
from windtunnel.twin.scenario.workload_rules import BUILT_IN_PRIORITIES, workload_faults


def rule_faults(spec: Scenario, folder: Path) -> list[Fault]:
    """Everything that is wrong although each value is right by itself."""
    where = Context(spec, folder)
    return [*faults_of(spec, where), *_all_faults(spec, where)]


def _all_faults(spec: Scenario, where: Context) -> Iterator[Fault]:
    yield from workload_faults(spec)
    yield from model_faults(spec)
    for name, slo in spec.slo.items():
        if slo.priority is None and name not in BUILT_IN_PRIORITIES:
            what = f"missing, and {name!r} is not a built-in class that has one"
            yield Fault(("slo", name, "priority"), what, "a whole number, higher goes first")
    yield from ground_faults(spec)
    yield from _repeated_names(spec.faults)
    yield from lora_faults(spec)
    yield from gateway_faults(spec, _priorities(spec), where)


def _priorities(spec: Scenario) -> dict[str, int]:
    """Of every class that has one, built-in and the file's own."""
    own = {name: slo.priority for name, slo in spec.slo.items() if slo.priority is not None}
    return {**BUILT_IN_PRIORITIES, **own}


def _repeated_names(faults: Sequence[InjectedFault]) -> Iterator[Fault]:
    first: dict[str, int] = {}
    for index, name in enumerate(fault.name_at(place) for place, fault in enumerate(faults)):
        if name in first:
            taken = dotted(("faults", first[name]))
            yield Fault(("faults", index, "name"), f"{name!r} is already the name of {taken}")
        first.setdefault(name, index)
