"""The rules of `fleet:` and `gangs:`, their conflicts with server pools, and the manifests."""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from windtunnel.core.errors import InputError, nearest
from windtunnel.fleet.demand.requests import GPU
from windtunnel.fleet.settings import FleetPool, FleetSettings
from windtunnel.gangs.api.load import NamedSet, manifests_of_text
from windtunnel.gangs.objects import CLIQUE, GROUP, SET
from windtunnel.gangs.servers import slots_of
from windtunnel.gangs.templates import SetSpec
from windtunnel.settings.document import KeyPath, read_text
from windtunnel.settings.faults import Fault, faults_at
from windtunnel.settings.manifests import NOUN
from windtunnel.twin.fleet.pools import machine_price
from windtunnel.twin.infrastructure.settings import BackingObject, GangManifests
from windtunnel.twin.scenario.sections import Scenario
from windtunnel.twin.settings import PoolSettings


class PoolTarget(NamedTuple):
    """A manifest object that a pool can scale."""

    set_name: str
    kind: str
    name: str
    spec: SetSpec

    def accelerators(self) -> float:
        """The accelerators that all pods of one replica request."""
        return sum(
            count * self.spec.roles[role].requests.get(GPU, 0.0)
            for (role, _), count in slots_of(self.spec, self.kind, self.name).items()
        )

    def smallest(self) -> int:
        """The fewest replicas above zero."""
        if self.kind == CLIQUE:
            return self.spec.roles[self.name].min_available
        if self.kind == GROUP:
            return next(one.min_available for one in self.spec.groups if one.name == self.name)
        return 0

    def replicas(self) -> int:
        """The replicas in the manifest, over all replicas of the set."""
        if self.kind == SET:
            return self.spec.replicas
        if self.kind == CLIQUE:
            return self.spec.replicas * self.spec.roles[self.name].replicas
        group = next(one for one in self.spec.groups if one.name == self.name)
        return self.spec.replicas * group.replicas


def infrastructure_faults(spec: Scenario) -> Iterator[Fault]:
    """Reports faults of machines, and between them and pools; manifests are checked later."""
    if spec.fleet is not None:
        yield from _price_faults(spec.fleet)
        yield from _machine_faults(spec, spec.fleet)
    for index, pool in enumerate(spec.serving.pools):
        path: KeyPath = ("serving", "pools", index)
        if pool.clique is not None and spec.gangs is None:
            hint = "add `gangs` with the manifests, or leave it out: a replica is a pod then"
            yield Fault((*path, "clique"), "the scenario has no `gangs`", hint=hint, is_note=True)
        if pool.priority is not None and spec.fleet is None:
            what = "machines are without end: the scenario has no `fleet`"
            hint = "add `fleet`, or leave it out"
            yield Fault((*path, "priority"), what, hint=hint, is_note=True)
    gangs, startup = spec.gangs, spec.serving.startup
    if gangs and startup and "readiness" in gangs.times.model_fields_set:
        what = "`serving.startup` says how long a pod loads already"
        yield Fault(("gangs", "times", "readiness"), what, hint="leave out one of the two")


def _price_faults(fleet: FleetSettings) -> Iterator[Fault]:
    for index, pool in enumerate(fleet.pools):
        if machine_price(pool) is None:
            what = f"missing, and the catalog has no price for {pool.accelerator!r}"
            path = ("fleet", "pools", index, "price_per_hour")
            yield Fault(path, what, "dollars for an hour of one machine")


def _machine_faults(spec: Scenario, fleet: FleetSettings) -> Iterator[Fault]:
    """Reports servers that no machine could ever hold."""
    kinds = list(dict.fromkeys(one.accelerator for one in fleet.pools))
    for index, pool in enumerate(spec.serving.pools):
        path: KeyPath = ("serving", "pools", index)
        if pool.accelerator is None:
            what = "missing, but `fleet` has machines by accelerator"
            yield Fault((*path, "accelerator"), what, ", ".join(kinds))
            continue
        matching = _matching(fleet, pool)
        if not matching:
            what = f"no pool of `fleet` has {pool.accelerator!r}"
            hint = nearest(pool.accelerator, kinds)
            yield Fault((*path, "accelerator"), what, ", ".join(kinds), hint)
            continue
        largest = max(one.accelerators for one in matching)
        if spec.gangs is None and pool.gpus > largest:
            what = f"{pool.gpus} accelerators, and a machine has {largest} at most"
            hint = "describe the pods of a server that spans machines by `gangs` and `clique`"
            yield Fault((*path, "tensor_parallel"), what, hint=hint)
            continue
        most = sum(_room(one, pool.gpus) * one.machines.max for one in matching)
        if pool.replicas > most:
            what = f"{pool.replicas} servers, and the machines of `fleet` can hold {most}"
            yield Fault((*path, "replicas"), what, hint="raise machines.max, or lower replicas")


def _matching(fleet: FleetSettings, pool: PoolSettings) -> list[FleetPool]:
    return [one for one in fleet.pools if one.accelerator == pool.accelerator]


def _room(machines: FleetPool, accelerators: int) -> float:
    """How many servers one machine holds; a fraction for a server that spans machines."""
    whole = machines.accelerators // accelerators
    return whole or 1.0 / math.ceil(accelerators / machines.accelerators)


# Manifests.


class ReadSets(NamedTuple):
    """The sets of all manifests, the texts of the files, and what is wrong with them."""

    sets: list[NamedSet]
    files: list[tuple[str, str]]
    faults: list[Fault]


def read_sets(spec: Scenario, folder: Path) -> ReadSets:
    """Reads the manifests of a scenario; names of sets must be unique."""
    assert spec.gangs is not None
    sets: dict[str, NamedSet] = {}
    files, faults = [], []
    for number, name in enumerate(spec.gangs.manifests):
        file, path = str(folder / name), ("gangs", "manifests", number)
        try:
            text = read_text(file, NOUN)
            own = manifests_of_text(text, file).sets
        except InputError as error:
            faults += faults_at(path, error)
            continue
        for one in own:
            if one.name in sets:
                what = f"{file}: the set {one.name} is defined twice"
                hint = "write each manifest once, and give every set its own name"
                faults.append(Fault(path, what, hint=hint))
            sets[one.name] = one
        files.append((file, text))
    return ReadSets(list(sets.values()), files, faults)


def everything(sets: Sequence[NamedSet]) -> dict[str, PoolTarget | None]:
    """All targets that a pool can name; an ambiguous name maps to None."""
    found: dict[str, PoolTarget | None] = {}
    for one in sets:
        parts = [PoolTarget(one.name, SET, one.name, one.spec)]
        parts += [PoolTarget(one.name, GROUP, group.name, one.spec) for group in one.spec.groups]
        parts += [PoolTarget(one.name, CLIQUE, role.name, one.spec) for role in one.spec.alone]
        for part in parts:
            if part.kind != SET:
                found[f"{one.name}/{part.name}"] = part
            found[part.name] = None if part.name in found else part
    return found


def backing_faults(spec: Scenario, read: ReadSets) -> Iterator[Fault]:
    """Reports contradictions between pools and the manifests of gangs."""
    sets = read.sets
    known = everything(sets)
    names = ", ".join(name for name, one in known.items() if one is not None) or "none"
    owners: dict[tuple[str, str], str] = {}
    homes: dict[str, str] = {}
    members = {
        role: f"{one.name}/{group.name}"
        for one in sets
        for group in one.spec.groups
        for role in group.roles
    }
    for index, pool in enumerate(spec.serving.pools):
        path: KeyPath = ("serving", "pools", index)
        if pool.clique is None:
            what = "no clique backs the pool: the scenario has `gangs`"
            yield Fault((*path, "clique"), what, None if read.faults else names)
            continue
        found = known.get(pool.clique)
        if found is None:
            if read.faults and pool.clique not in known:
                continue  # it may be in a file that could not be read
            what = f"the manifests have no {pool.clique!r}"
            hint = nearest(pool.clique, list(known))
            if pool.clique in known:
                what, hint = f"{pool.clique!r} is in more than one set", "write SET/NAME"
            elif pool.clique.rpartition("/")[2] in members:
                group = members[pool.clique.rpartition("/")[2]]
                what = f"the clique {pool.clique!r} is scaled with its scaling group"
                hint = f"name the group: {group}"
            yield Fault((*path, "clique"), what, names, hint)
            continue
        home = homes.setdefault(found.set_name, pool.cluster)
        if home != pool.cluster:
            what = f"{pool.cluster!r}, and the set {found.set_name!r} is in {home!r}"
            yield Fault((*path, "cluster"), what, hint="a set is in one cluster; write another set")
        yield from _owner_faults((*path, "clique"), pool, found, owners)
        yield from _size_faults(path, pool, found, spec)


def _owner_faults(
    path: KeyPath, pool: PoolSettings, found: PoolTarget, owners: dict[tuple[str, str], str]
) -> Iterator[Fault]:
    """Reports cliques with two owners: a pool that scales a set owns all its cliques."""
    mine = (found.set_name, "" if found.kind == SET else found.name)
    for (set_name, name), owner in owners.items():
        if set_name == mine[0] and (name == mine[1] or not name or not mine[1]):
            what = f"it is scaled by two owners: {owner} has {name or set_name!r} already"
            yield Fault(path, what, hint="let each pool name something of its own")
    owners[mine] = f"pool {pool.name}"


def _size_faults(
    path: KeyPath, pool: PoolSettings, found: PoolTarget, spec: Scenario
) -> Iterator[Fault]:
    asked = found.accelerators()
    if asked != pool.gpus and (asked or spec.fleet is not None):
        what = f"a replica has {pool.gpus}, and the pods of {pool.clique} ask for"
        hint = f"of {GPU}; set one to the other"
        yield Fault((*path, "tensor_parallel"), f"{what} {asked:g}", hint=hint)
    smallest = found.smallest()
    written = "replicas" in pool.model_fields_set
    if written and 0 < pool.replicas < smallest * found.spec.replicas:
        what = f"{pool.replicas} is less than the minAvailable of {pool.clique}, {smallest}"
        yield Fault((*path, "replicas"), what, f"0, or {smallest} and more")
    bounds = getattr(spec.scaling, "pools", {}) if spec.scaling is not None else {}
    lowest = getattr(bounds.get(pool.name), "min", None)
    if lowest is not None and 0 < lowest < smallest:
        what = f"{lowest} is less than the minAvailable of {pool.clique}, {smallest}"
        yield Fault(("scaling", "pools", pool.name, "min"), what, f"0, or {smallest} and more")
    if spec.fleet is not None:
        yield from _pod_faults(path, pool, found, spec.fleet)


def _pod_faults(
    path: KeyPath, pool: PoolSettings, found: PoolTarget, fleet: FleetSettings
) -> Iterator[Fault]:
    largest = max((one.accelerators for one in _matching(fleet, pool)), default=0)
    for role, _ in slots_of(found.spec, found.kind, found.name):
        asks = found.spec.roles[role].requests.get(GPU, 0.0)
        if largest and asks > largest:
            what = f"a pod of {role} asks for {asks:g} accelerators, a machine has {largest}"
            yield Fault((*path, "clique"), what)


# Results.


def as_manifests_say(spec: Scenario, sets: Sequence[NamedSet]) -> Scenario:
    """The scenario with the replicas of the manifests for pools that do not set their own."""
    known = everything(sets)
    pools = []
    for pool in spec.serving.pools:
        found = known.get(pool.clique) if pool.clique is not None else None
        if found is not None and "replicas" not in pool.model_fields_set:
            pools.append(pool.model_copy(update={"replicas": found.replicas()}))
        else:
            pools.append(pool)
    return spec.model_copy(update={"serving": spec.serving.model_copy(update={"pools": pools})})


def gang_manifests(spec: Scenario, read: ReadSets) -> GangManifests:
    """The manifests of a scenario without faults."""
    known = everything(read.sets)
    backings = []
    for pool in spec.serving.pools:
        found = known.get(pool.clique) if pool.clique is not None else None
        if found is not None:
            backings.append(BackingObject(pool.name, found.set_name, found.kind, found.name))
    return GangManifests(tuple(read.files), tuple(backings))
