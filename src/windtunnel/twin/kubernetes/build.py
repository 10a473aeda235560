"""Builds a simulated cluster from its file, with the sets of its manifests, and runs it."""

from collections.abc import Mapping
from typing import Final

from windtunnel.core.errors import InputError, nearest
from windtunnel.core.loop import Loop
from windtunnel.core.taints import taint_of
from windtunnel.gangs.api.load import Manifests, NamedSet
from windtunnel.gangs.controllers.controller import Controller
from windtunnel.gangs.objects import CLIQUE, GROUP, SET, Node
from windtunnel.gangs.placement.constraints import (
    reuses,
    spread_of,
)
from windtunnel.gangs.placement.requests import HOSTNAME
from windtunnel.gangs.scaling import scale
from windtunnel.gangs.view import View
from windtunnel.twin.kubernetes.api_server import ApiServer
from windtunnel.twin.kubernetes.cluster import SimCluster
from windtunnel.twin.kubernetes.driver import Driver
from windtunnel.twin.kubernetes.render import pods_of, refuse_too_many
from windtunnel.twin.kubernetes.settings import NODE_DEEDS, Happening, NodeGroup, SimClusterSettings

PLAIN_LEVELS = {
    "zone": "topology.kubernetes.io/zone",
    "block": "topology.kubernetes.io/block",
    "rack": "topology.kubernetes.io/rack",
    "host": HOSTNAME,
}
"""The levels of a topology that neither the manifests nor the cluster's file describe."""

LONGEST_S: Final = 7 * 86_400.0
"""The longest run without a given end, for example one whose containers keep crashing."""


def build(spec: SimClusterSettings, manifests: Manifests, *, seed: int = 0) -> SimCluster:
    """Builds the cluster with all sets applied, at time 0."""
    server = ApiServer()
    view = server.view
    add_levels(view, spec.topologies, manifests)
    view.priorities.update(spec.priorities)
    one_by_one = spec.scheduler == "one-by-one"
    cluster = SimCluster(server, seed=seed, times=spec.times, one_by_one=one_by_one)
    for nodes in spec.nodes:
        for node in machines(nodes, view.levels):
            cluster.add_node(node, 0.0)
    for named in manifests.sets:
        _check(named, view.levels)
        refuse_too_many(f"the set {named.name}", named.spec.replicas * pods_of(named.spec))
        server.add_set(named.name, named.spec, 0.0)
    return cluster


def _check(named: NamedSet, levels: dict[str, dict[str, str]]) -> None:
    """Reports faults that a scheduler would find only once the pods exist."""
    try:
        spread_of(named.spec.annotations, "", levels)
        reuses(named.spec.annotations)
        for clique in named.spec.cliques:
            spread_of(clique.annotations, "", levels)
    except InputError as error:
        error.say_of(f"PodCliqueSet {named.name}")
        raise


def add_levels(
    view: View, topologies: Mapping[str, Mapping[str, str]], manifests: Manifests
) -> None:
    """Adds the levels of every topology: those that are described, and plain ones for the
    others."""
    view.levels.update({name: dict(levels) for name, levels in topologies.items()})
    view.levels.update(manifests.levels)
    for named in manifests.sets:
        packs = [named.spec.pack]
        packs += [group.pack for group in named.spec.groups]
        packs += [clique.pack for clique in named.spec.cliques]
        for pack in packs:
            if pack is None or not pack.topology:
                continue
            levels = view.levels.setdefault(pack.topology, dict(PLAIN_LEVELS))
            for domain in (pack.required, pack.preferred):
                if domain and domain not in levels:
                    raise _no_level(named.name, pack.topology, domain, levels)
    if not view.levels:
        view.levels["plain"] = dict(PLAIN_LEVELS)


def _no_level(owner: str, topology: str, domain: str, levels: dict[str, str]) -> InputError:
    return InputError(
        f"PodCliqueSet {owner}: the topology {topology!r} has no level {domain!r} here",
        allowed=", ".join(levels),
        hint=nearest(domain, levels)
        or f"describe {topology} by a ClusterTopologyBinding, or in the cluster's topologies",
    )


def machines(nodes: NodeGroup, levels: dict[str, dict[str, str]]) -> list[Node]:
    """The machines of one group, with the labels of their domains."""
    made = []
    keys = {domain: keys_of(domain, levels) for domain in nodes.per}
    for number in range(nodes.count):
        labels = {HOSTNAME: f"{nodes.name}-{number}", **_broader(nodes.per, levels), **nodes.labels}
        for domain, count in nodes.per.items():
            for key in keys[domain]:
                labels[key] = f"{nodes.name}-{domain}-{number // count}"
        taints = tuple(taint_of(text) for text in nodes.taints)
        made.append(Node(f"{nodes.name}-{number}", dict(nodes.capacity), labels, taints))
    return made


def _broader(per: dict[str, int], levels: dict[str, dict[str, str]]) -> dict[str, str]:
    """Labels of the broader levels in a plain topology: racks without a block are all in one."""
    if PLAIN_LEVELS not in levels.values() or not any(domain in PLAIN_LEVELS for domain in per):
        return {}
    narrowest = max(list(PLAIN_LEVELS).index(domain) for domain in per if domain in PLAIN_LEVELS)
    return {key: domain for domain, key in list(PLAIN_LEVELS.items())[:narrowest]}


def keys_of(domain: str, levels: dict[str, dict[str, str]]) -> list[str]:
    """The labels of a domain in all topologies; without a topology, the domain itself."""
    found = [known[domain] for known in levels.values() if domain in known]
    return list(dict.fromkeys(found)) or [domain]


def happen(cluster: SimCluster, happening: Happening, now_s: float) -> None:
    """Applies a scheduled event of the cluster's file."""
    for deed in NODE_DEEDS:
        node = getattr(happening, deed)
        if node is not None:
            getattr(cluster, deed)(node, now_s)
            return
    if happening.crash is not None:
        cluster.crash_loop(_clique(cluster.view, happening.crash), now_s)
    elif happening.mend is not None:
        cluster.mend(_clique(cluster.view, happening.mend))
    elif happening.delete is not None:
        clique = cluster.view.cliques[_clique(cluster.view, happening.delete.clique)]
        pods = sorted(clique.pods.values(), key=lambda pod: (pod.index, pod.created_s, pod.name))
        active = [pod for pod in pods if pod.active]
        for pod in active[: happening.delete.count]:
            cluster.delete_pod(pod.name, now_s)
    else:
        assert happening.scale is not None
        name, replicas = happening.scale.of, happening.scale.to
        kind, each = _scaled(cluster.view, name)
        refuse_too_many(name, replicas * each)
        cluster.apply([scale(cluster.view, kind, name, replicas)], now_s)


def _clique(view: View, name: str) -> str:
    if name not in view.cliques:
        raise InputError(f"there is no clique {name!r}", hint=nearest(name, view.cliques))
    return name


def _scaled(view: View, name: str) -> tuple[str, int]:
    """The kind of the scaled object, and the pods of one of its replicas."""
    if name in view.sets:
        return SET, pods_of(view.sets[name].spec)
    if name in view.groups:
        group = view.groups[name]
        roles = view.sets[group.set_name].spec.roles
        return GROUP, sum(roles[role].replicas for role in group.members)
    if name in view.cliques:
        return CLIQUE, 1
    everything = [*view.sets, *view.groups, *view.cliques]
    hint = nearest(name, everything)
    raise InputError(f"there is no set, scaling group or clique {name!r}", hint=hint)


def play(
    spec: SimClusterSettings,
    manifests: Manifests,
    *,
    at_s: float | None = None,
    seed: int = 0,
    check: bool = False,
) -> tuple[SimCluster, Loop]:
    """Runs a cluster to a given time; returns it with its loop.

    By default it runs until nothing is left to happen, until something was recycled too often to
    ever be ready, or for a week.
    """
    cluster = build(spec, manifests, seed=seed)
    loop = Loop(Driver(cluster, Controller, check=check))
    loop.wake()
    end_s = LONGEST_S if at_s is None else at_s
    for happening in sorted(spec.happens, key=lambda happening: happening.at):
        if happening.at > end_s:
            break
        loop.run(happening.at)
        happen(cluster, happening, loop.now_s)
        loop.wake()
    checked = 0
    while loop.step(end_s):
        events = len(cluster.view.events)
        if at_s is None and events != checked and cluster.recycle_loops():
            break
        checked = events
    if at_s is not None:
        loop.run(at_s)
    return cluster, loop
