"""Reads files of autoscaling manifests; what is wrong with them is an InputError of sentences."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from windtunnel.core.errors import InputError, nearest, one_sentence_per
from windtunnel.scaling.manifests.fields import ManifestForm
from windtunnel.scaling.manifests.hpa import HorizontalPodAutoscaler
from windtunnel.scaling.manifests.keda import ScaledObject
from windtunnel.scaling.manifests.knative import KnativeService
from windtunnel.scaling.manifests.kthena import Reader
from windtunnel.scaling.manifests.kthena_forms import AutoscalingPolicy, AutoscalingPolicyBinding
from windtunnel.scaling.manifests.kthena_rules import policy_faults, target_faults
from windtunnel.scaling.manifests.pools import Assignment, PoolNames
from windtunnel.scaling.settings import PolicySettings
from windtunnel.settings.document import Document, parse_documents, read_text
from windtunnel.settings.faults import Fault, checker_faults, dotted, input_error
from windtunnel.settings.fields import shown

NOUN = "manifest"
KEYS = "apiVersion, kind, metadata and spec"
KTHENA = "workload.serving.volcano.sh/v1alpha1"
EARLIER_KTHENA = "workload.volcano.sh/v1alpha1"


class ManifestKind(NamedTuple):
    """A kind of manifest: where it belongs, and the form that it has."""

    versions: tuple[str, ...]
    form: type[ManifestForm]


KINDS: dict[str, ManifestKind] = {
    "AutoscalingPolicy": ManifestKind((KTHENA, EARLIER_KTHENA), AutoscalingPolicy),
    "AutoscalingPolicyBinding": ManifestKind((KTHENA, EARLIER_KTHENA), AutoscalingPolicyBinding),
    "HorizontalPodAutoscaler": ManifestKind(("autoscaling/v2",), HorizontalPodAutoscaler),
    "ScaledObject": ManifestKind(("keda.sh/v1alpha1",), ScaledObject),
    "Service": ManifestKind(("serving.knative.dev/v1",), KnativeService),
}


BESIDE: dict[str, str] = {
    "Deployment": "apps",
    "StatefulSet": "apps",
    "ReplicaSet": "apps",
    "LeaderWorkerSet": "leaderworkerset.x-k8s.io",
    "ModelServing": "workload.serving.volcano.sh",
    "ModelBooster": "workload.serving.volcano.sh",
    "Service": "",
    "ConfigMap": "",
    "Secret": "",
    "ServiceAccount": "",
    "Namespace": "",
    "PersistentVolumeClaim": "",
    "PodDisruptionBudget": "policy",
    "Ingress": "networking.k8s.io",
    "ServiceMonitor": "monitoring.coreos.com",
    "PodMonitor": "monitoring.coreos.com",
    "TriggerAuthentication": "keda.sh",
    "ClusterTriggerAuthentication": "keda.sh",
}
"""Kinds that people keep in the same file, with the group of their API; none of them scales."""


class ReadManifests(NamedTuple):
    """Who scales which pool, and what to say of the rest."""

    assignments: list[Assignment]
    notes: list[str]


class Written(NamedTuple):
    """A manifest, and where it stands."""

    document: Document
    manifest: ManifestForm

    @property
    def label(self) -> str:
        return f"{self.manifest.kind} {self.manifest.metadata.name}"


def read_manifests(paths: Sequence[str | Path], pools: PoolNames) -> ReadManifests:
    """Who scales which pool; manifests of several files may refer to each other."""
    return read([(read_text(path, NOUN), str(path)) for path in paths], pools)


def read(texts: Sequence[tuple[str, str]], pools: PoolNames) -> ReadManifests:
    """The same for texts at hand, each with the file that faults take it to be in."""
    errors: list[InputError] = []
    written: list[Written] = []
    beside: dict[str, int] = {}
    for text, file in texts:
        for document in parse_documents(text, file, NOUN, KEYS):
            kind = _kind_beside(document)
            if kind:
                beside[kind] = beside.get(kind, 0) + 1
                continue
            try:
                written.append(Written(document, _checked(document)))
            except InputError as error:
                errors.append(error)
    if not errors:
        found = _Files(written, pools)
        errors = found.errors
    if errors:
        raise one_sentence_per(_flat(errors))
    return ReadManifests(found.assignments, _said_of(beside))


def _kind_beside(document: Document) -> str:
    """The kind of a document that has nothing to do with scaling; empty where it may have."""
    kind, version = document.data.get("kind"), document.data.get("apiVersion")
    if not isinstance(kind, str) or not isinstance(version, str) or kind not in BESIDE:
        return ""
    return kind if version.rpartition("/")[0] == BESIDE[kind] else ""


def _said_of(beside: Mapping[str, int]) -> list[str]:
    if not beside:
        return []
    kinds = ", ".join(f"{count} {kind}" for kind, count in beside.items())
    return [
        f"scaling.manifests has {kinds} too, which nobody reads: "
        "what servers there are at the start, and what they are like, is said under serving.pools"
    ]


class _Files:
    """All manifests together: each is held to its rules, and to what the others say."""

    def __init__(self, written: Sequence[Written], pools: PoolNames) -> None:
        self._pools = pools
        self.errors: list[InputError] = []
        self.assignments: list[Assignment] = []
        self._policies: dict[str, tuple[Written, AutoscalingPolicy]] = {}
        self._bindings: list[tuple[Written, AutoscalingPolicyBinding]] = []
        self._owners: dict[str, str] = {}  # by pool: who scales it
        labels: set[str] = set()
        for one in written:
            if one.label in labels:
                fault = Fault(("metadata", "name"), f"there are two of {one.label}")
                self.errors.append(input_error(one.document, [fault]))
            labels.add(one.label)
            self._sort(one)
        self._read_kthena()
        self._check_pools()

    def _sort(self, one: Written) -> None:
        if isinstance(one.manifest, AutoscalingPolicy):
            self._policies[one.manifest.metadata.name] = (one, one.manifest)
        elif isinstance(one.manifest, AutoscalingPolicyBinding):
            self._bindings.append((one, one.manifest))
        elif isinstance(one.manifest, HorizontalPodAutoscaler | ScaledObject | KnativeService):
            manifest = one.manifest
            self._take(one, lambda: manifest.assignment(one.label, self._pools))

    def _read_kthena(self) -> None:
        bound = {binding.spec.policy_ref.name for _, binding in self._bindings}
        for name, (one, policy) in self._policies.items():
            faults = policy_faults(policy.spec, bound=name in bound)
            if not faults and name not in bound:
                reader = Reader(one.label, policy.spec, self._pools)
                self._take(one, partial(reader.read, policy.spec))
            self._note(one, faults)
        for one, binding in self._bindings:
            name = binding.spec.policy_ref.name
            if name not in self._policies:
                what, known = f"there is no AutoscalingPolicy {name!r}", list(self._policies)
                hint = nearest(name, known)
                fault = Fault(("spec", "policyRef", "name"), what, ", ".join(known) or None, hint)
                self._note(one, [fault])
                continue
            policy = self._policies[name][1]
            faults = list(target_faults(binding.spec, policy.spec.metrics))
            if not faults:
                reader = Reader(one.label, policy.spec, self._pools)
                self._take(one, partial(reader.read, binding.spec))
            self._note(one, faults)

    def _take(
        self, one: Written, read: Callable[[], tuple[Assignment | None, list[Fault]]]
    ) -> None:
        found: Assignment | None = None
        try:
            found, faults = read()
        except ValidationError as error:  # a value beyond what is simulated
            faults = [
                Fault(("spec",), f"{dotted(fault.path)}: {fault.what}", fault.allowed)
                for fault in checker_faults(error, PolicySettings)
            ]
        self._note(one, faults)
        if found is None:
            return
        for pool in found.policy.pools:
            owner = self._owners.setdefault(pool, found.source)
            if owner != found.source:
                what = f"the pool {pool!r} is scaled by {owner} already"
                self._note(one, [Fault(("spec",), what)])
        self.assignments.append(found)

    def _note(self, one: Written, faults: Sequence[Fault]) -> None:
        if faults:
            self.errors.append(input_error(one.document, faults))

    def _check_pools(self) -> None:
        if self.errors:
            return
        if not self.assignments:
            self.errors.append(InputError("the manifests scale nothing", where="scaling.manifests"))
        for name in self._pools.unused():
            what = "no manifest has such a target"
            self.errors.append(InputError(what, where=f"scaling.targets.{name}"))


def _checked(document: Document) -> ManifestForm:
    """A manifest of the right form."""
    kind = document.data.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        word = kind if isinstance(kind, str) else ""
        what = f"{shown(kind)} is not a kind that is read here" if "kind" in document.data else ""
        fault = Fault(("kind",), what or "missing", ", ".join(KINDS), nearest(word, KINDS))
        raise input_error(document, [fault])
    version = document.data.get("apiVersion")
    if version not in KINDS[kind].versions:
        what = f"{shown(version)} is not an apiVersion of {kind}"
        fault = Fault(("apiVersion",), what, ", ".join(KINDS[kind].versions))
        raise input_error(document, [fault])
    form = KINDS[kind].form
    try:
        return form.model_validate(document.data)
    except ValidationError as error:
        raise input_error(document, checker_faults(error, form)) from None


def _flat(errors: Sequence[InputError]) -> list[InputError]:
    return [fault for error in errors for fault in getattr(error, "faults", (error,))]
