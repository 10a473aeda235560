"""The permissions of the operator and the gateway: the list that the chart's RBAC rules come from.

Tests run both with exactly these permissions, and fail if one is missing or unused.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from windtunnel.gangs.objects import CLIQUE, GANG, GROUP, NODE, POD, SET
from windtunnel.gangs.placement.claims import STORAGE_CLASS, VOLUME, VOLUME_CLAIM
from windtunnel.live.kubernetes.resources import (
    CONFIG_MAPS,
    ENDPOINT_SLICES,
    EVENTS,
    INFERENCE_POOLS,
    LEASES,
    NODE_CLAIMS,
    Resource,
)
from windtunnel.live.operate.evictions import BUDGETS
from windtunnel.live.operate.mirror import CLAIMS, LEASE, PRIORITY, RESOURCES, TOPOLOGY
from windtunnel.live.operate.scaling.caches import AUTOSCALERS, HPAS, KTHENA
from windtunnel.live.operate.webhooks import CONFIGURATIONS, NAME, SECRET
from windtunnel.scaling.kubernetes import kthena
from windtunnel.scaling.manifests.kthena import MODEL_SERVING

OPERATOR: Final = "operator"
"""Permissions that every operator needs."""
GANGS: Final = "gangs"
PLACE: Final = "place"
AUTOSCALE: Final = "autoscale"
FLEET: Final = "fleet"
HOOKS: Final = "webhooks"
GATEWAY: Final = "gateway"
SERVICES: Final = "services"
"""Permissions of a gateway that discovers its servers through a Service."""
POOLS: Final = "pools"
"""Permissions of a gateway that discovers its servers through an InferencePool."""

CLUSTER: Final = "cluster"
"""The scope of a permission on cluster-scoped kinds, or in all namespaces."""
WATCHED: Final = "namespaces"
"""The scope of the namespaces that it manages: `--namespace`, or all."""
HOME: Final = "home"
"""The scope of the operator's own namespace."""


class Right(NamedTuple):
    """Verbs on a kind, or on one of its subresources."""

    feature: str
    resource: Resource
    verbs: str
    """Separated by spaces."""
    subresource: str = ""
    name: str = ""
    """The name of the only object that it covers."""
    at_home: bool = False
    everywhere: bool = False
    """In all namespaces, even if it manages only one: nodes run pods of all namespaces."""

    @property
    def scope(self) -> str:
        if self.at_home:
            return HOME
        return CLUSTER if self.everywhere or not self.resource.namespaced else WATCHED

    @property
    def plural(self) -> str:
        return self.resource.plural + (f"/{self.subresource}" if self.subresource else "")


def _of_kinds(feature: str, kinds: Iterable[str], verbs: str, subresource: str = "") -> list[Right]:
    return [Right(feature, RESOURCES[kind], verbs, subresource) for kind in kinds]


OF_SETS: Final = ("ServiceAccount", "Role", "RoleBinding", "Secret")
"""Kubernetes deletes these with their set."""
OF_REPLICAS: Final = ("Service", "HorizontalPodAutoscaler", "ResourceClaim", "ComputeDomain")

SCALABLE: Final = (
    *(RESOURCES[kind] for kind in (SET, GROUP, CLIQUE)),
    Resource("apps", "v1", "deployments", "Deployment"),
    Resource("apps", "v1", "statefulsets", "StatefulSet"),
    Resource("leaderworkerset.x-k8s.io", "v1", "leaderworkersets", "LeaderWorkerSet"),
    *(Resource(group, kthena.VERSION, "modelservings", MODEL_SERVING) for group in kthena.GROUPS),
)
"""The kinds that autoscalers may scale; to scale another kind, users grant the same for it."""

RIGHTS: Final = (
    Right(OPERATOR, EVENTS, "create patch"),
    Right(OPERATOR, LEASES, "create", at_home=True),
    Right(OPERATOR, LEASES, "get update", name=LEASE, at_home=True),
    *_of_kinds(GANGS, (TOPOLOGY, PRIORITY, NODE), "list watch"),
    # Sets and groups are patched to remove Grove's finalizers.
    *_of_kinds(GANGS, (SET,), "list watch patch"),
    *_of_kinds(GANGS, (CLIQUE, GANG, POD), "list watch create patch delete"),
    *_of_kinds(GANGS, (GROUP,), "list watch create patch delete"),
    *_of_kinds(GANGS, OF_REPLICAS, "list watch create delete"),
    *_of_kinds(GANGS, OF_SETS, "list watch create"),
    *_of_kinds(GANGS, (SET, CLIQUE, GROUP, GANG), "patch", "status"),
    # The creator of a Role must have the permissions it grants: those of a set's init containers.
    Right(GANGS, RESOURCES[POD], "get"),
    Right(GANGS, RESOURCES[POD], "get list watch", "status"),
    Right(PLACE, RESOURCES[POD], "list watch", everywhere=True),
    Right(PLACE, RESOURCES[POD], "create", "binding"),
    Right(PLACE, RESOURCES[POD], "create", "eviction"),
    Right(PLACE, BUDGETS, "list"),
    Right(PLACE, RESOURCES[POD], "patch", "status"),
    # Volumes that are made for their first pod are made for the node that it gets.
    Right(PLACE, CLAIMS[VOLUME_CLAIM], "list watch patch"),
    *(Right(PLACE, CLAIMS[one], "list watch") for one in (VOLUME, STORAGE_CLASS)),
    *(Right(AUTOSCALE, one, "list watch") for one in (AUTOSCALERS, HPAS, *KTHENA)),
    *(Right(AUTOSCALE, one, "patch", "status") for one in (AUTOSCALERS, *KTHENA)),
    *(Right(AUTOSCALE, one, "get patch", "scale") for one in SCALABLE),
    # To name other writers of a scale.
    *(Right(AUTOSCALE, one, "get") for one in SCALABLE),
    Right(AUTOSCALE, RESOURCES[POD], "list"),
    Right(AUTOSCALE, CONFIG_MAPS, "get create patch"),
    Right(FLEET, RESOURCES[NODE], "list watch patch"),
    Right(FLEET, RESOURCES[POD], "list watch", everywhere=True),
    Right(FLEET, RESOURCES[POD], "create", "eviction", everywhere=True),
    Right(FLEET, EVENTS, "create patch", everywhere=True),
    Right(FLEET, NODE_CLAIMS, "get list watch create patch delete"),
    Right(FLEET, CONFIG_MAPS, "get create patch", at_home=True),
    # One Lease for each shard.
    Right(FLEET, LEASES, "get create update", at_home=True),
    *(Right(HOOKS, one, "get patch", name=NAME) for one in CONFIGURATIONS),
    Right(HOOKS, RESOURCES["Secret"], "create", at_home=True),
    Right(HOOKS, RESOURCES["Secret"], "get update", name=SECRET, at_home=True),
    # A dry run tests whether the API server reaches the webhooks.
    Right(HOOKS, RESOURCES[SET], "create", at_home=True),
)
FEATURES: Final = tuple(dict.fromkeys(one.feature for one in RIGHTS))
OF_GATEWAY: Final = (
    Right(SERVICES, ENDPOINT_SLICES, "list watch"),
    Right(POOLS, INFERENCE_POOLS, "list watch"),
    Right(POOLS, RESOURCES[POD], "list watch"),
)
"""In each namespace with a Service or an InferencePool whose pods are its servers."""


def rules(features: Iterable[str], *scopes: str) -> list[dict[str, Any]]:
    """The `rules` of an operator role for these features, in these scopes."""
    wanted = set(features)
    return rules_of(one for one in RIGHTS if one.feature in wanted and one.scope in scopes)


def gateway_rules(*features: str) -> list[dict[str, Any]]:
    """The `rules` of a gateway role, in a namespace where it watches these."""
    return rules_of(one for one in OF_GATEWAY if one.feature in features)


def rules_of(rights: Iterable[Right]) -> list[dict[str, Any]]:
    """Converts permissions to the `rules` of a role."""
    by_kind: dict[tuple[str, str, str], list[str]] = {}
    for one in rights:
        key = (one.resource.group, one.plural, one.name)
        by_kind.setdefault(key, []).extend(one.verbs.split())
    alike: dict[tuple[str, tuple[str, ...], str], list[str]] = {}
    for (group, plural, name), verbs in by_kind.items():
        alike.setdefault((group, tuple(dict.fromkeys(verbs)), name), []).append(plural)
    made = []
    for (group, same, name), plurals in alike.items():
        rule: dict[str, Any] = {"apiGroups": [group], "resources": plurals, "verbs": [*same]}
        made.append({**rule, "resourceNames": [name]} if name else rule)
    return made


def by_feature() -> dict[str, Any]:
    """The data for the chart: the rules of each operator feature, and those of the gateway."""
    operator = {
        scope: {one: found for one in FEATURES if (found := rules([one], scope))}
        for scope in (CLUSTER, WATCHED, HOME)
    }
    return {**operator, GATEWAY: {one: gateway_rules(one) for one in (SERVICES, POOLS)}}
