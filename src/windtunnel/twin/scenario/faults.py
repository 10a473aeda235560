"""The rules of `faults:` that tie several values together, and its plan."""

from collections.abc import Iterator

from windtunnel.core.errors import nearest
from windtunnel.settings.document import KeyPath
from windtunnel.settings.faults import Fault
from windtunnel.twin.faults.conditions import OF_RUNS
from windtunnel.twin.faults.plan import AtPlan, EveryPlan, FaultPlan, Timing, WhenPlan
from windtunnel.twin.scenario.fault_times_spec import FaultSpec, SelectSpec, WhenSpec
from windtunnel.twin.scenario.faults_spec import (
    CrashLoopSpec,
    MetricSpec,
    RestartSpec,
    SkewSpec,
)
from windtunnel.twin.scenario.ground_spec import MachinesSpec
from windtunnel.twin.scenario.machine_faults_spec import (
    MachineFaultSpec,
    MachineLossSpec,
    SpotReclaimSpec,
)
from windtunnel.twin.scenario.sections import Scenario

TIMES = ("at", "every", "when")


def faults_plan(spec: Scenario) -> tuple[FaultPlan, ...]:
    return tuple(
        FaultPlan(name_of(fault, number), fault.kind, _timing(fault), fault.length_s, fault.what())
        for number, fault in enumerate(spec.faults)
    )


def name_of(fault: FaultSpec, number: int) -> str:
    """Its own name, or its place in the list."""
    return str(number) if fault.name is None else fault.name


def _timing(fault: FaultSpec) -> Timing:
    if fault.at is not None:
        return AtPlan(fault.at)
    if fault.every is not None:
        every = fault.every
        return EveryPlan(every.mean, every.from_, every.until, every.most)
    when = fault.when
    assert when is not None
    return WhenPlan(
        when.metric, when.pool, when.above, when.below, when.for_, when.interval, when.most
    )


def fault_faults(spec: Scenario) -> Iterator[Fault]:
    """What is wrong with the list although each value is right by itself."""
    taken: dict[str, int] = {}
    for number, fault in enumerate(spec.faults):
        path = ("faults", number)
        name = name_of(fault, number)
        if name in taken:
            what = f"{name!r} is already the name of faults[{taken[name]}]"
            yield Fault((*path, "name"), what)
        taken.setdefault(name, number)
        yield from _time_faults(path, fault, spec.duration)
        yield from _kind_faults(path, fault, spec)
        if fault.when is not None:
            yield from _condition_faults((*path, "when"), fault.when, spec)
        if fault.selected is not None:
            yield from _select_faults((*path, "select"), fault.selected, spec)


def _kind_faults(path: KeyPath, fault: FaultSpec, spec: Scenario) -> Iterator[Fault]:
    """What a kind needs that the scenario has not, or cannot use."""
    if isinstance(fault, MetricSpec) and fault.readers is not None:
        if len(set(fault.readers)) < len(fault.readers):
            yield Fault((*path, "readers"), "one of them is there twice")
        if "autoscaler" in fault.readers and spec.scaling is None:
            yield _no_autoscaler((*path, "readers"))
    if isinstance(fault, SkewSpec):
        given = [name for name in ("ahead", "behind") if getattr(fault, name) is not None]
        if len(given) != 1:
            what = "ahead and behind are both written" if given else "neither ahead nor behind"
            yield Fault(path, what, "one of ahead and behind")
        if spec.scaling is None:
            yield _no_autoscaler((*path, "controller"))
    if isinstance(fault, RestartSpec):
        yield from _restart_faults(path, fault, spec)
    if isinstance(fault, CrashLoopSpec):
        yield from _loop_faults(path, fault, spec)
    if isinstance(fault, MachineFaultSpec):
        yield from _machine_faults(path, fault, spec)


def _machine_faults(path: KeyPath, fault: MachineFaultSpec, spec: Scenario) -> Iterator[Fault]:
    if spec.fleet is None:
        what = "there are no machines: the scenario has no `fleet`"
        yield Fault((*path, "kind"), what, hint="add `fleet`, or leave the fault out")
        return
    pools = {pool.name: pool for pool in spec.fleet.pools}
    select = fault.where
    pool = getattr(select, "pool", None)
    known = sorted({one.zone for one in pools.values()})
    for key, word, words in (
        ("pool", pool, list(pools)),
        ("zone", getattr(select, "zone", None), known),
    ):
        if word is not None and word not in words:
            what = f"the fleet has no {key} {word!r}"
            yield Fault((*path, "select", key), what, ", ".join(words), nearest(word, words))
    rack = getattr(select, "rack", None)
    if rack is not None and pool is None:
        what = "a number, and no pool that it counts in"
        yield Fault((*path, "select", "rack"), what, hint="add pool")
    elif rack is not None and pool in pools:
        own = pools[pool]
        racks = -(-own.machines.max // own.machines_per_rack) if own.machines_per_rack else 1
        if rack >= racks:
            what = f"{rack}, and the pool has {racks}, counted from 0"
            yield Fault((*path, "select", "rack"), what, f"a whole number from 0 to {racks - 1}")
    yield from _single_faults(path, fault, pools)
    spot = [one.name for one in pools.values() if one.capacity == "spot"]
    if isinstance(fault, SpotReclaimSpec) and pool not in (*spot, *([None] if spot else [])):
        what = f"{pool} has no spot machines" if pool in pools else "there are no spot machines"
        yield Fault((*path, "select", "pool") if pool else (*path, "kind"), what)


def _single_faults(
    path: KeyPath, fault: MachineFaultSpec, pools: dict[str, MachinesSpec]
) -> Iterator[Fault]:
    """A machine that is named is one, and one that there can be."""
    if not isinstance(fault, MachineLossSpec | SpotReclaimSpec):
        return
    select = fault.select
    if select.machine is not None:
        if not _can_be(select.machine, pools):
            most = [(one.name, one.machines.max) for one in pools.values() if one.machines.max]
            names = [f"{name}-0" if n == 1 else f"{name}-0 to {name}-{n - 1}" for name, n in most]
            what = f"the fleet never has a machine {select.machine!r}"
            yield Fault((*path, "select", "machine"), what, ", ".join(names) or "none")
        for key in ("count", "pool", "zone", "rack"):
            if key in select.model_fields_set:
                what = "one machine is named"
                yield Fault((*path, "select", key), what, hint=f"leave out {key} or machine")


def _can_be(machine: str, pools: dict[str, MachinesSpec]) -> bool:
    """Whether a pool can have a machine of this name: those that replace others have a slash."""
    if machine.partition("/")[0] in pools and "/" in machine:
        return True
    pool, _, number = machine.rpartition("-")
    own = pools.get(pool)
    return own is not None and number in map(str, range(own.machines.max))


def _restart_faults(path: KeyPath, fault: RestartSpec, spec: Scenario) -> Iterator[Fault]:
    if fault.controller == "autoscaler" and spec.scaling is None:
        yield _no_autoscaler((*path, "controller"))
    if fault.controller == "gangs" and spec.gangs is None and spec.fleet is None:
        what = "there are no gangs: the scenario has neither `gangs` nor `fleet`"
        yield Fault((*path, "controller"), what)
    if fault.controller == "fleet" and spec.fleet is None:
        yield Fault((*path, "controller"), "the scenario has no `fleet`")
    if fault.controller != "autoscaler" and fault.for_ is not None:
        what = f"the controller of {fault.controller} is back at once"
        yield Fault((*path, "for"), what, hint="leave it out")


def _loop_faults(path: KeyPath, fault: CrashLoopSpec, spec: Scenario) -> Iterator[Fault]:
    if spec.gangs is not None or spec.fleet is not None:
        for key in ("after", "backoff"):
            if key in fault.model_fields_set:
                what = "on gangs it is the cluster that says when pods crash and start again"
                yield Fault((*path, key), what, hint="leave it out")
    if fault.backoff.most < fault.backoff.first:
        what = f"{fault.backoff.most:g} s is less than `first`, which is {fault.backoff.first:g} s"
        yield Fault((*path, "backoff", "most"), what)


def _no_autoscaler(path: KeyPath) -> Fault:
    return Fault(path, "there is no autoscaler: the scenario has no `scaling`")


def _time_faults(path: KeyPath, fault: FaultSpec, duration: float | None) -> Iterator[Fault]:
    given = [name for name in TIMES if getattr(fault, name) is not None]
    if len(given) != 1:
        what = f"{' and '.join(given)} are written" if given else "it has no time"
        yield Fault(path, what, "one of at, every and when")
    begins: list[tuple[str, ...]] = []
    if fault.at is not None and duration is not None and fault.at > duration:
        begins.append(("at",))
    if fault.every is not None:
        every = fault.every
        if duration is not None and every.from_ > duration:
            begins.append(("every", "from"))
        if every.until is not None and every.until <= every.from_:
            what = f"{every.until:g} s is not after `from`, which is {every.from_:g} s"
            yield Fault((*path, "every", "until"), what)
    for key in begins:
        what = f"the run has ended by then: its duration is {duration:g} s"
        yield Fault((*path, *key), what, because_of=(("duration",),))


def _condition_faults(path: KeyPath, when: WhenSpec, spec: Scenario) -> Iterator[Fault]:
    given = [name for name in ("above", "below") if getattr(when, name) is not None]
    if len(given) != 1:
        what = "above and below are both written" if given else "it says neither above nor below"
        yield Fault(path, what, "one of above and below")
    if when.below == 0:
        yield Fault((*path, "below"), "nothing is ever below 0", "a number above 0")
    if when.pool is not None and when.metric in OF_RUNS:
        yield Fault((*path, "pool"), f"{when.metric} has no pool", hint="leave it out")
    else:
        yield from _pool_faults((*path, "pool"), when.pool, spec)


def _select_faults(path: KeyPath, select: SelectSpec, spec: Scenario) -> Iterator[Fault]:
    yield from _pool_faults((*path, "pool"), select.pool, spec)
    if select.server is None:
        return
    if "count" in select.model_fields_set:
        yield Fault((*path, "count"), "one server is named", hint="leave out count or server")
    if select.pool is None:
        what = "a number, and no pool that it counts in"
        yield Fault((*path, "server"), what, hint="add pool")
    sizes = {pool.name: pool.replicas for pool in spec.serving.pools}
    size = sizes.get(select.pool or "")
    if spec.scaling is None and size is not None and select.server >= size:
        what = f"{select.server}, and the pool has {size}, counted from 0"
        yield Fault((*path, "server"), what, f"a whole number from 0 to {size - 1}")


def _pool_faults(path: KeyPath, pool: str | None, spec: Scenario) -> Iterator[Fault]:
    names = [one.name for one in spec.serving.pools]
    if pool is not None and pool not in names:
        yield Fault(path, f"there is no pool {pool!r}", ", ".join(names), nearest(pool, names))
