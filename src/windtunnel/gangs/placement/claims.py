"""Volume and device claims of pods: which nodes they allow, or why a pod has to wait for them.

A bound volume allows the nodes from which it can be reached. A volume that is provisioned for its
first pod (`WaitForFirstConsumer`) is requested for the node chosen for that pod, and the pod is
bound once the volume is. Only kube-scheduler allocates devices: a pod whose device claims are not
allocated waits, and says so.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from windtunnel.core.kubernetes import Received
from windtunnel.gangs import names
from windtunnel.gangs.api.resolve import full_name
from windtunnel.gangs.controllers.attachments import MNNVL_CLAIM, claims_of, mnnvl_group
from windtunnel.gangs.objects import Pod
from windtunnel.gangs.placement.constraints import selector_of_terms
from windtunnel.gangs.placement.requests import Requirement, Selector
from windtunnel.gangs.view import View

VOLUME_CLAIM: Final = "PersistentVolumeClaim"
VOLUME: Final = "PersistentVolume"
STORAGE_CLASS: Final = "StorageClass"
DEVICE_CLAIM: Final = "DeviceClaim"
"""A ResourceClaim, also one that the operator did not create."""
SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
"""The annotation that requests a volume for a node; a provisioner that fails there removes it."""
CLAIM_OF_POD: Final = "resource.kubernetes.io/pod-claim-name"
"""The annotation of a claim made from a template: the name of the claim within its pod."""
ZONES: Final = (
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
)
"""Labels of a volume that its nodes must match; several values are joined by `__`."""
BY_FIRST_POD: Final = "WaitForFirstConsumer"
NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"
ONE_POD: Final = "ReadWriteOncePod"

Fields = Mapping[str, Any]


class ClaimNeeds(NamedTuple):
    """What the claims of a pod require of its node."""

    selectors: tuple[Selector, ...] = ()
    """A node must match all of them to reach the volumes and devices."""
    why: str = ""
    """Why the pod cannot be bound to any node yet; empty: it can."""
    unmade: tuple[str, ...] = ()
    """Claims whose volumes are still to be provisioned, for the node that is chosen."""


NONE: Final = ClaimNeeds()


class PodClaims:
    """All claims, volumes and storage classes of a cluster."""

    def __init__(self, view: View) -> None:
        self._view: Final = view
        self._known: Final[dict[tuple[str, str], Received]] = {}
        self._generated: Final[dict[str, str]] = {}
        """The device claims made from templates, by the uid of their pod and what it calls them."""
        self._asked: Final[dict[tuple[str, str], None]] = {}
        self._without: Final[dict[tuple[str, str], bool]] = {}
        """By set and template: whether their pods have no claims."""
        self._changed = False
        self._is_crowded = False
        """Whether a pod waits as other pods name its claim, too."""

    def take(self, kind: str, name: str, after: Received | None) -> None:
        """Takes over an object that was added or changed, or, if None, is gone."""
        before = self._known.pop((kind, name), None)
        if after is not None:
            self._known[kind, name] = after
        for one in (before, after):
            if kind == DEVICE_CLAIM and one is not None and one.metadata.controller is not None:
                called = one.metadata.annotations.get(CLAIM_OF_POD, "")
                own = f"{one.metadata.controller.uid} {called}"
                self._generated[own] = name
                self._changed = self._changed or (kind, own) in self._asked
                if after is None:
                    del self._generated[own]
        self._changed = self._changed or (kind, name) in self._asked

    def changes(self) -> bool:
        """Whether an object that was looked up has changed since the last call."""
        found, self._changed = self._changed, False
        if found:
            self._is_crowded = False
            self._asked.clear()
            self._without.clear()
        return found

    def pods_changed(self) -> None:
        """Follows a change of pods: a claim that only one pod may use may be free."""
        self._changed = self._changed or self._is_crowded

    def any_of(self, pod: Pod) -> bool:
        """Whether a pod has claims."""
        key = (pod.set_name, pod.template_hash)
        without = self._without.get(key)
        if without is None:
            without = not any(True for _ in self._claims(pod))
            if pod.set_name in self._view.sets:
                self._without[key] = without
        return not without

    def of(self, pod: Pod) -> ClaimNeeds:
        if not self.any_of(pod):
            return NONE
        selectors: list[Selector] = []
        unmade: list[str] = []
        for kind, name in self._claims(pod):
            found = self._device(name) if kind == DEVICE_CLAIM else self._volume(name)
            if found.why:
                return found
            selectors += found.selectors
            unmade += found.unmade
        return ClaimNeeds(tuple(selectors), "", tuple(dict.fromkeys(unmade)))

    def _claims(self, pod: Pod) -> Iterator[tuple[str, str]]:
        """Kind and name of each claim of a pod."""
        spec, space = pod.template.pod_spec, names.namespace(pod.clique)
        for one in _list(spec, "volumes"):
            if one.get("ephemeral"):
                short = f"{names.short(pod.name)}-{one.get('name')}"
                yield VOLUME_CLAIM, full_name(short, space)
            elif one.get("persistentVolumeClaim"):
                short = str(one["persistentVolumeClaim"].get("claimName"))
                yield VOLUME_CLAIM, full_name(short, space)
        for one in _list(spec, "resourceClaims"):
            if one.get("resourceClaimName"):
                yield DEVICE_CLAIM, full_name(str(one["resourceClaimName"]), space)
            else:
                yield DEVICE_CLAIM, self._made_for(pod, str(one.get("name")))
        owner = self._view.sets.get(pod.set_name)
        if owner is not None and pod.template.name in owner.spec.roles:
            for name in claims_of(owner.spec, pod):
                yield DEVICE_CLAIM, name
            if mnnvl_group(owner.spec, pod.template.name):
                yield DEVICE_CLAIM, self._made_for(pod, MNNVL_CLAIM)

    def _made_for(self, pod: Pod, called: str) -> str:
        own = f"{pod.uid} {called}"
        self._asked[DEVICE_CLAIM, own] = None
        return self._generated.get(own, f"{called} of pod {pod.name}")

    def _find(self, kind: str, name: str) -> Received | None:
        self._asked[kind, name] = None
        return self._known.get((kind, name))

    def _device(self, name: str) -> ClaimNeeds:
        found = self._find(DEVICE_CLAIM, name)
        allocation = None if found is None else found.status.get("allocation")
        if not allocation:
            state = "does not exist" if found is None else "is not allocated"
            why = f"its ResourceClaim {name} {state}, and devices are allocated by kube-scheduler"
            return ClaimNeeds(why=f"{why} alone: pods that claim them need another schedulerName")
        return ClaimNeeds(_selectors(allocation.get("nodeSelector")))

    def _volume(self, name: str) -> ClaimNeeds:
        claim, called = self._find(VOLUME_CLAIM, name), f"its {VOLUME_CLAIM} {name}"
        if claim is None:
            return ClaimNeeds(why=f"{called} does not exist")
        if claim.metadata.deletion_timestamp is not None:
            return ClaimNeeds(why=f"{called} is being deleted")
        if ONE_POD in _strings(claim.spec, "accessModes"):
            users = sum(_names_claim(one, name) for one in self._view.pods.values() if one.active)
            if users > 1:
                self._is_crowded = True
                share = f"may be used by one pod ({ONE_POD})"
                return ClaimNeeds(why=f"{called} {share}, and {users} pods name it")
        volume = str(claim.spec.get("volumeName") or "")
        if not volume:
            return self._unbound(name, claim, called)
        made = self._find(VOLUME, volume)
        if made is None or claim.status.get("phase") != "Bound":
            return ClaimNeeds(why=f"{called} is not bound to {VOLUME} {volume} yet")
        reach = _selectors((made.spec.get("nodeAffinity") or {}).get("required"))
        zones = [
            Requirement(key, "In", made.metadata.labels[key].split("__"))
            for key in ZONES
            if key in made.metadata.labels
        ]
        return ClaimNeeds((*reach, Selector([zones])) if zones else reach)

    def _unbound(self, name: str, claim: Received, called: str) -> ClaimNeeds:
        kind = str(claim.spec.get("storageClassName") or "")
        found = self._find(STORAGE_CLASS, kind) if kind else None
        if kind and found is None:
            return ClaimNeeds(why=f"{called} is of {STORAGE_CLASS} {kind}, which does not exist")
        if found is None or found.spec.get("volumeBindingMode") != BY_FIRST_POD:
            return ClaimNeeds(why=f"{called} is not bound to a volume yet")
        if found.spec.get("provisioner") == NO_PROVISIONER:
            why = f"{called} is not bound, and volumes of {STORAGE_CLASS} {kind} are chosen by"
            return ClaimNeeds(why=f"{why} kube-scheduler alone: name one in its volumeName")
        node = claim.metadata.annotations.get(SELECTED_NODE)
        if node:
            return ClaimNeeds(why=f"the volume of {called} is being made for node {node}")
        terms = [
            [
                Requirement(str(one.get("key")), "In", _strings(one, "values"))
                for one in _list(term, "matchLabelExpressions")
            ]
            for term in _list(found.spec, "allowedTopologies")
        ]
        return ClaimNeeds((Selector(terms),) if terms else (), "", (name,))


def _names_claim(pod: Pod, claim: str) -> bool:
    """Whether a pod has a volume with this claim, other than one made for the pod alone."""
    space = names.namespace(pod.clique)
    return any(
        full_name(str(one["persistentVolumeClaim"].get("claimName")), space) == claim
        for one in _list(pod.template.pod_spec, "volumes")
        if one.get("persistentVolumeClaim")
    )


def _selectors(required: Fields | None) -> tuple[Selector, ...]:
    found = selector_of_terms(required) if required else None
    return () if found is None else (found,)


def _list(fields: Fields, key: str) -> list[Fields]:
    found = fields.get(key)
    return [one for one in found if isinstance(one, Mapping)] if isinstance(found, list) else []


def _strings(fields: Fields, key: str) -> list[str]:
    return [str(one) for one in fields.get(key) or []]
