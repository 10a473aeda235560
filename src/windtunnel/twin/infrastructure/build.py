"""Builds the simulated clusters and machines of a run: sets of gangs, nodes, fleet."""

from typing import Final, NamedTuple

import msgspec

from windtunnel.core.random import Streams
from windtunnel.fleet.demand.requests import ACCELERATOR, GPU, MachineKind
from windtunnel.gangs.api.load import Manifests, NamedSet, manifests_of_text
from windtunnel.gangs.objects import CLIQUE
from windtunnel.gangs.placement.requests import HOSTNAME
from windtunnel.gangs.servers import PoolPods, slots_of
from windtunnel.gangs.templates import CliqueTemplate, SetSpec
from windtunnel.gangs.view import View
from windtunnel.twin.fleet.machines import Machines, Tenant
from windtunnel.twin.fleet.pools import initial_machines
from windtunnel.twin.fleet.unlimited import UnlimitedMachines, unlimited_kind
from windtunnel.twin.infrastructure.cluster import ServingCluster
from windtunnel.twin.infrastructure.infrastructure import Infrastructure
from windtunnel.twin.infrastructure.replicas import PoolBacking
from windtunnel.twin.infrastructure.settings import MAIN, BackingObject
from windtunnel.twin.kubernetes.api_server import ApiServer
from windtunnel.twin.kubernetes.build import add_levels
from windtunnel.twin.kubernetes.cluster import SimCluster
from windtunnel.twin.scenario.plan import ScenarioPlan
from windtunnel.twin.servers.lifecycle import Lifecycle
from windtunnel.twin.servers.replicas import Pool
from windtunnel.twin.settings import PoolSettings

SERVER: Final = "server"
"""The role of the pods of a pool without a manifest."""
NO_HURRY_S: Final = 86_400.0
"""The grace period of those pods: long enough for any drain."""
CLUSTER_SEEDS: Final = 1_000_003


class Layout(NamedTuple):
    """The sets and pool backings of one cluster."""

    sets: dict[str, SetSpec]
    backings: list[BackingObject]


def build_infrastructure(
    plan: ScenarioPlan,
    pools: list[Pool],
    lifecycle: Lifecycle,
    streams: Streams,
) -> Infrastructure:
    """Builds clusters and machines in their initial state."""
    manifests = _manifests(plan)
    layouts = _layouts(plan, manifests)
    views = {name: _view(layout, plan, manifests) for name, layout in layouts.items()}
    keys = _keys([view.levels for view in views.values()])
    tenants: dict[str, Tenant] = {}
    fleet = plan.sections.fleet
    supply: Machines | UnlimitedMachines
    if fleet is not None:
        lost_after_s = plan.pod_times.node_lost_after_s
        initial = initial_machines(fleet, plan.pools)
        supply = Machines(fleet, initial, streams, keys, tenants, lost_after_s)
        kinds = supply.kinds()
    else:
        kinds = _unlimited_kinds(plan, layouts)
        supply = UnlimitedMachines(
            kinds, [key for named in keys.values() for key in named], tenants
        )
    serving_clusters = []
    backings: dict[str, tuple[ServingCluster, PoolBacking]] = {}
    own = {pool.name: pool for pool in pools}
    for number, (name, layout) in enumerate(layouts.items()):
        made = [
            PoolBacking(_pods_of(one, layout.sets[one.set_name]), own[one.pool])
            for one in layout.backings
        ]
        seed = plan.seed + number * CLUSTER_SEEDS
        pods = SimCluster(
            ApiServer(views[name]),
            seed=seed,
            times=plan.pod_times,
            load=plan.pod_load,
            serves=True,
        )
        for set_name, spec in layout.sets.items():
            pods.server.add_set(set_name, spec, 0.0)
        serving_cluster = ServingCluster(name, pods, made, kinds, lifecycle)
        backings |= {backing.pool.name: (serving_cluster, backing) for backing in made}
        serving_clusters.append(serving_cluster)
        tenants[name] = serving_cluster
    built = Infrastructure(serving_clusters, backings, supply)
    lifecycle.infrastructure = built
    if manifests.foreign:
        built.notes.append(f"not gangs, and skipped: {', '.join(manifests.foreign)}")
    return built


def _pods_of(backing: BackingObject, spec: SetSpec) -> PoolPods:
    slots = slots_of(spec, backing.kind, backing.name)
    return PoolPods(backing.pool, backing.set_name, backing.kind, backing.name, slots)


def _keys(topologies: list[dict[str, dict[str, str]]]) -> dict[str, list[str]]:
    """The node labels that name racks, and those that name wider domains: zones."""
    keys: dict[str, list[str]] = {"rack": [], "zone": []}
    for levels in topologies:
        for known in levels.values():
            for domain, key in known.items():
                if key != HOSTNAME:
                    keys["rack" if domain == "rack" else "zone"].append(key)
    return keys


def _manifests(plan: ScenarioPlan) -> Manifests:
    read = [manifests_of_text(text, path) for path, text in plan.manifests.files]
    return Manifests(
        tuple(one for each in read for one in each.sets),
        {name: levels for each in read for name, levels in each.levels.items()},
        tuple(kind for each in read for kind in each.kinds),
        tuple(kind for each in read for kind in each.foreign),
    )


def _layouts(plan: ScenarioPlan, manifests: Manifests) -> dict[str, Layout]:
    """The layout of each cluster: a set is on the cluster of the pools that it backs."""
    by_pool = {backing.pool: backing for backing in plan.manifests.backings}
    layouts: dict[str, Layout] = {}
    selectors: dict[str, dict[str, dict[str, str]]] = {}  # by set and role
    homes: dict[str, str] = {}
    classes: dict[str, str] = {}  # priority classes of sets whose pools have a priority
    for pool in plan.pools:
        layout = layouts.setdefault(pool.cluster, Layout({}, []))
        backing = by_pool.get(pool.name)
        if backing is None:
            layout.sets[pool.name] = _plain(pool)
            layout.backings.append(BackingObject(pool.name, pool.name, CLIQUE, SERVER))
            continue
        layout.backings.append(backing)
        homes[backing.set_name] = pool.cluster
        if pool.priority is not None:
            classes[backing.set_name] = f"pool/{pool.name}"
        spec = next(one.spec for one in manifests.sets if one.name == backing.set_name)
        for role, _ in slots_of(spec, backing.kind, backing.name):
            wanted = {ACCELERATOR: pool.accelerator} if pool.accelerator else {}
            selectors.setdefault(backing.set_name, {})[role] = wanted
    for one in manifests.sets:
        home = layouts.setdefault(homes.get(one.name, MAIN), Layout({}, []))
        home.sets[one.name] = _directed(
            one, selectors.get(one.name, {}), classes.get(one.name, one.spec.priority_class)
        )
    return layouts


def _plain(pool: PoolSettings) -> SetSpec:
    """A set for a pool without a manifest: one pod per replica."""
    selector = {ACCELERATOR: pool.accelerator} if pool.accelerator else {}
    pod_spec: dict[str, object] = {
        "containers": [{"name": SERVER, "image": "server"}],
        "nodeSelector": selector,
        "terminationGracePeriodSeconds": NO_HURRY_S,
    }
    requests = {GPU: float(pool.gpus)}
    template = CliqueTemplate(SERVER, pool.replicas, 1, pod_spec, requests, f"plain-{pool.name}")
    return SetSpec(1, (template,), priority_class=f"pool/{pool.name}")


def _directed(
    named: NamedSet, selectors: dict[str, dict[str, str]], priority_class: str
) -> SetSpec:
    """The set, with node selectors for the accelerators of each pool."""
    spec = named.spec
    cliques = tuple(_with_selector(one, selectors.get(one.name, {})) for one in spec.cliques)
    return msgspec.structs.replace(spec, cliques=cliques, priority_class=priority_class)


def _with_selector(template: CliqueTemplate, selector: dict[str, str]) -> CliqueTemplate:
    if not selector:
        return template
    known = template.pod_spec.get("nodeSelector")
    labels = {**(known if isinstance(known, dict) else {}), **selector}
    return msgspec.structs.replace(
        template,
        pod_spec={**template.pod_spec, "nodeSelector": labels},
        hash=f"{template.hash}/{'/'.join(selector.values())}",
    )


def _view(layout: Layout, plan: ScenarioPlan, manifests: Manifests) -> View:
    view = View()
    here = tuple(one for one in manifests.sets if one.name in layout.sets)
    add_levels(view, {}, manifests._replace(sets=here))
    view.priorities.update(plan.priority_classes)
    for pool, priority in plan.pool_priorities.items():
        view.priorities[f"pool/{pool}"] = priority
    return view


def _unlimited_kinds(plan: ScenarioPlan, layouts: dict[str, Layout]) -> list[MachineKind]:
    asked = [
        role.requests.get(GPU, 0.0)
        for layout in layouts.values()
        for spec in layout.sets.values()
        for role in spec.cliques
    ]
    names = dict.fromkeys(pool.accelerator or "" for pool in plan.pools)
    return [unlimited_kind(name, max(asked, default=0.0)) for name in names]
