"""Reads files of autoscaling manifests; faults in them are raised as an InputError."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from windtunnel.core.errors import InputError, nearest, one_sentence_per
from windtunnel.scaling.manifests.aibrix import PodAutoscaler
from windtunnel.scaling.manifests.fields import Assignment, ScalingManifest, Scope
from windtunnel.scaling.manifests.hpa import HorizontalPodAutoscaler
from windtunnel.scaling.manifests.keda import HttpScaledObject, InterceptorRoute, ScaledObject
from windtunnel.scaling.manifests.knative import KnativeService
from windtunnel.scaling.manifests.kthena import (
    AutoscalingPolicy,
    AutoscalingPolicyBinding,
    KthenaReader,
    PolicyForm,
    PolicyTargets,
)
from windtunnel.scaling.manifests.names import ScenarioNames
from windtunnel.scaling.manifests.wva import (
    VariantAutoscaling,
    VariantManifest,
    WvaVariant,
    joined,
    wva_policy,
)
from windtunnel.scaling.settings import PolicySettings
from windtunnel.settings.document import Document, parse_documents, read_text
from windtunnel.settings.faults import Fault, input_error
from windtunnel.settings.manifests import (
    KEYS,
    NOUN,
    Manifest,
    ManifestKind,
    is_foreign,
    manifest_of,
)
from windtunnel.settings.section import Context, faults_of

KTHENA = ("workload.serving.volcano.sh/v1alpha1", "workload.volcano.sh/v1alpha1")
WVA = "workload-variant-autoscaler"
KINDS: dict[str, ManifestKind] = {
    "AutoscalingPolicy": ManifestKind(KTHENA, AutoscalingPolicy),
    "AutoscalingPolicyBinding": ManifestKind(KTHENA, AutoscalingPolicyBinding),
    "HorizontalPodAutoscaler": ManifestKind(("autoscaling/v2",), HorizontalPodAutoscaler),
    "ScaledObject": ManifestKind(("keda.sh/v1alpha1",), ScaledObject),
    "HTTPScaledObject": ManifestKind(("http.keda.sh/v1alpha1",), HttpScaledObject),
    "InterceptorRoute": ManifestKind(("http.keda.sh/v1beta1",), InterceptorRoute),
    "PodAutoscaler": ManifestKind(("autoscaling.aibrix.ai/v1alpha1",), PodAutoscaler),
    "VariantAutoscaling": ManifestKind(("llmd.ai/v1alpha1",), VariantAutoscaling),
    "Service": ManifestKind(("serving.knative.dev/v1",), KnativeService),
}
BESIDE = ("ModelServing", "ModelBooster", "TriggerAuthentication", "ClusterTriggerAuthentication")
"""Kinds that do not scale, from the same API groups as kinds that do."""


class ReadManifests(NamedTuple):
    """The policies read from manifests with the pools that each scales, and notes."""

    assignments: list[Assignment]
    notes: list[str]


class Written(NamedTuple):
    """A manifest, and the document that contains it."""

    document: Document
    manifest: Manifest

    @property
    def label(self) -> str:
        return f"{self.manifest.kind} {self.manifest.metadata.name}"


class Parsed(NamedTuple):
    """What files contain, and what is wrong with each by itself."""

    written: list[Written]
    beside: dict[str, int]
    """How many documents of kinds that do not scale, by kind."""
    errors: list[InputError]


def read_manifests(paths: Sequence[str | Path], names: ScenarioNames) -> ReadManifests:
    """Reads manifest files, which may refer to each other."""
    return _resolved(_parsed(paths), names)


def faults_of_files(paths: Sequence[str | Path]) -> list[InputError]:
    """What is wrong with each file by itself, whatever it refers to."""
    return _flat(_parsed(paths).errors)


def read(texts: Sequence[tuple[str, str]], names: ScenarioNames) -> ReadManifests:
    """Reads the texts of manifests, each with the file name to report in faults."""
    return _resolved(_parsed_texts(texts), names)


def _parsed(paths: Sequence[str | Path]) -> Parsed:
    texts: list[tuple[str, str]] = []
    errors: list[InputError] = []
    for path in paths:
        try:
            texts.append((read_text(path, NOUN), str(path)))
        except InputError as error:
            errors.append(error)
    found = _parsed_texts(texts)
    return found._replace(errors=[*errors, *found.errors])


def _parsed_texts(texts: Sequence[tuple[str, str]]) -> Parsed:
    found = Parsed([], {}, [])
    for text, file in texts:
        try:
            documents = parse_documents(text, file, NOUN, KEYS)
        except InputError as error:
            found.errors.append(error)
            continue
        for document in documents:
            if _scales_nothing(document):
                kind = str(document.data["kind"])
                found.beside[kind] = found.beside.get(kind, 0) + 1
                continue
            try:
                found.written.append(Written(document, manifest_of(document, KINDS)))
            except InputError as error:
                found.errors.append(error)
    return found


def _resolved(parsed: Parsed, names: ScenarioNames) -> ReadManifests:
    found = _Files(parsed.written, names, complete=not parsed.errors)
    errors = [*parsed.errors, *found.errors]
    if errors:
        raise one_sentence_per(_flat(errors))
    return ReadManifests(found.assignments, [*_said_of(parsed.beside), *found.notes])


def _scales_nothing(document: Document) -> bool:
    """Whether a document is of a kind that does not scale, often kept in the same file."""
    kind, version = document.data.get("kind"), document.data.get("apiVersion")
    is_plain_service = kind == "Service" and version == "v1"
    return is_foreign(document, KINDS) or is_plain_service or kind in BESIDE


def _said_of(beside: Mapping[str, int]) -> list[str]:
    if not beside:
        return []
    kinds = ", ".join(f"{count} {kind}" for kind, count in beside.items())
    return [
        f"scaling.manifests has {kinds} too, which are ignored: "
        "what servers there are at the start, and what they are like, is said under serving.pools"
    ]


class _Files:
    """All manifests together: each is checked on its own and against the others."""

    def __init__(self, written: Sequence[Written], names: ScenarioNames, *, complete: bool) -> None:
        self._names = names
        self._complete = complete
        """Whether all manifests could be read; others may refer to those that could not."""
        self.errors: list[InputError] = []
        self.assignments: list[Assignment] = []
        self.notes: list[str] = []
        self._owners: dict[str, str] = {}  # by pool: the manifest that scales it
        self._variants: dict[str, WvaVariant] = {}  # by pool: those that WVA scales
        policies: dict[str, AutoscalingPolicy] = {}
        manifests = [one.manifest for one in written]
        bindings = [one for one in manifests if isinstance(one, AutoscalingPolicyBinding)]
        bound = {binding.spec.policy_ref.name for binding in bindings}
        labels: set[str] = set()
        for one in written:
            if one.label in labels:
                what = f"there are two of {one.label}"
                self._note(one, [Fault(("metadata", "name"), what)])
            labels.add(one.label)
            if isinstance(one.manifest, AutoscalingPolicy):
                policies[one.manifest.metadata.name] = one.manifest
            elif isinstance(one.manifest, InterceptorRoute) and self._is_sound(one, Scope(names)):
                names.add_route(one.manifest.metadata.name, one.manifest.spec.targets())
        for one in written:
            manifest = one.manifest
            if isinstance(manifest, VariantManifest | ScalingManifest):
                if self._is_sound(one, Scope(names)):
                    self._read(one)
            elif isinstance(manifest, AutoscalingPolicy):
                name, spec = manifest.metadata.name, manifest.spec
                sound = self._is_sound(one, Scope(names, spec, bound=name in bound))
                if sound and name not in bound:
                    self._read_kthena(one, spec, spec)
            elif isinstance(manifest, AutoscalingPolicyBinding):
                self._read_binding(one, manifest, policies)
        if self._variants:
            self.assignments.append(Assignment(WVA, wva_policy(self._variants)))
        self._check_names()

    def _read(self, one: Written) -> None:
        """Reads a manifest that scales by itself or leaves the size to WVA."""
        manifest = one.manifest
        variant = manifest.variant(self._names) if isinstance(manifest, VariantManifest) else None
        if variant is not None:
            known = self._variants.get(variant.pool)
            if known is None or (known.hpa is None) == (variant.hpa is None):
                self._own(one, variant.pool)
            self._variants[variant.pool] = variant if known is None else joined(known, variant)
        elif isinstance(manifest, ScalingManifest):
            self._take(one, manifest.policy(self._names))
            self.notes += [f"{one.label}: {note}" for note in manifest.notes(self._names)]

    def _read_binding(
        self,
        one: Written,
        binding: AutoscalingPolicyBinding,
        policies: Mapping[str, AutoscalingPolicy],
    ) -> None:
        name = binding.spec.policy_ref.name
        if name not in policies:
            if not self._complete:
                return
            what, known = f"there is no AutoscalingPolicy {name!r}", list(policies)
            hint = nearest(name, known)
            path = ("spec", "policyRef", "name")
            self._note(one, [Fault(path, what, ", ".join(known) or None, hint)])
            return
        policy = policies[name].spec
        if self._is_sound(one, Scope(self._names, policy, earlier=True)):
            self._read_kthena(one, policy, binding.spec)

    def _read_kthena(self, one: Written, policy: PolicyForm, targets: PolicyTargets) -> None:
        reader = KthenaReader(policy, self._names)
        found = reader.read(targets, Context(None, Path(), ("spec",)))
        self._note(one, reader.faults)
        if found is not None:
            self._take(one, found)

    def _is_sound(self, one: Written, scope: Scope) -> bool:
        faults = list(faults_of(one.manifest, Context(scope, Path())))
        self._note(one, faults)
        return not faults

    def _take(self, one: Written, policy: PolicySettings) -> None:
        for pool in policy.pools:
            self._own(one, pool)
        self.assignments.append(Assignment(one.label, policy))

    def _own(self, one: Written, pool: str) -> None:
        """Claims a pool for a manifest; each pool has one owner."""
        owner = self._owners.setdefault(pool, one.label)
        if owner != one.label:
            what = f"the pool {pool!r} is scaled by {owner} already"
            self._note(one, [Fault(("spec",), what)])

    def _note(self, one: Written, faults: Sequence[Fault]) -> None:
        if faults:
            self.errors.append(input_error(one.document, faults))

    def _check_names(self) -> None:
        if self.errors or not self._complete:
            return
        if not self.assignments:
            self.errors.append(InputError("the manifests scale nothing", where="scaling.manifests"))
        for place, what in self._names.unused().items():
            self.errors.append(InputError(what, where=f"scaling.{place}"))


def _flat(errors: Sequence[InputError]) -> list[InputError]:
    return [fault for error in errors for fault in getattr(error, "faults", (error,))]
