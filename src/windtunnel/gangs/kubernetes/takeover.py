"""Takes over the objects of Grove's own operator, without restarting any pod.

Grove's hashes of pod templates cannot be computed here. The stored ones are adopted as long as the
templates are unchanged: the set remembers which of our hashes corresponds to which of Grove's
(`SetStatus.adopted`), and its pods, cliques and statuses keep theirs. Each clique gets the note
that cliques made here have, and Grove's finalizers are removed. The set's memory is written last:
until then the set is hidden from controllers, and the takeover can be repeated.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from windtunnel.core.kubernetes import Metadata, Received
from windtunnel.gangs.api.pod_spec import requests_of, scheduler_of
from windtunnel.gangs.api.resolve import pod_spec_of
from windtunnel.gangs.controllers.startup import starts_after
from windtunnel.gangs.kubernetes.calls import PATCH, STATUS, ApiCall
from windtunnel.gangs.kubernetes.reading import name_of, place_of
from windtunnel.gangs.kubernetes.status_fields import MEMORY
from windtunnel.gangs.objects import CLIQUE, GROUP, SET, PodClique
from windtunnel.gangs.pod_manifest import CLIQUE_NOTE, PART_OF, TEMPLATE_HASH, clique_note
from windtunnel.gangs.statuses import Revision, SetStatus
from windtunnel.gangs.templates import CliqueTemplate, SetSpec

FINALIZERS: Final = {
    SET: "grove.io/podcliqueset.grove.io",
    GROUP: "grove.io/podcliquescalinggroup.grove.io",
    CLIQUE: "grove.io/podclique.grove.io",
}
"""By kind, the finalizer that holds an object until Grove's operator has handled its deletion."""
INJECTED: Final = "GROVE_"
"""Prefix of the environment variables that Grove adds to cliques of scaling groups."""
OWN_LABELS: Final = (
    "app.kubernetes.io/managed-by",
    "app.kubernetes.io/name",
    "app.kubernetes.io/component",
    PART_OF,
)
TOPOLOGY: Final = "grove.io/topology-name"

Json = dict[str, Any]


def is_groves(kind: str, raw: Received) -> bool:
    """Whether an object is still as Grove's operator, which no longer manages it, left it."""
    if FINALIZERS.get(kind, "") in raw.metadata.finalizers:
        return True
    return kind == SET and is_unknown(raw)


def is_unknown(raw: Received) -> bool:
    """Whether Grove's operator has worked on a set and this one has not."""
    return bool(raw.status.get("currentGenerationHash")) and MEMORY not in raw.status


def release(kind: str, raw: Received) -> ApiCall | None:
    """Returns the call that removes Grove's finalizer; None if there is none."""
    kept = [one for one in raw.metadata.finalizers if one != FINALIZERS[kind]]
    if len(kept) == len(raw.metadata.finalizers):
        return None
    return _patch(kind, raw, {"finalizers": kept})


def _patch(kind: str, raw: Received, metadata: Json) -> ApiCall:
    meta = raw.metadata
    body = {"metadata": metadata}
    return ApiCall(PATCH, kind, name_of(meta), (), body, meta.uid, meta.resource_version)


def take_over(raw: Received, spec: SetSpec, cliques: Iterable[Received]) -> list[ApiCall]:
    """Returns the calls that turn a set of Grove's operator into ours; `cliques` are those of the
    set."""
    found = _Adoption(raw, spec)
    for one in sorted(cliques, key=lambda one: one.metadata.name):
        found.add(one)
    return found.calls()


class _Adoption:
    """The takeover of one set, and what is known of Grove's hashes."""

    def __init__(self, raw: Received, spec: SetSpec) -> None:
        self._raw: Final = raw
        self._spec: Final = spec
        self._name: Final = name_of(raw.metadata)
        self._cliques: Final[list[tuple[Received, CliqueTemplate]]] = []
        """Cliques, each with the current template of its role in the set."""
        self._hashes: Final[dict[str, str]] = {}
        """By role, Grove's hash of the set's current template, where a clique shows it."""
        progress = raw.status.get("updateProgress") or {}
        seen = raw.status.get("observedGeneration") == raw.metadata.generation
        ended = not progress.get("updateStartedAt") or bool(progress.get("updateEndedAt"))
        self._ended: Final = ended
        self._vouched: Final = seen and ended
        """Whether Grove has finished rolling out what the set declares."""

    def add(self, clique: Received) -> None:
        place = place_of(clique.metadata)
        around = f"{place.group}-{place.group_replica}-" if place.group else ""
        around = around or f"{self._name}-{place.replica}-"
        role = self._spec.roles.get(name_of(clique.metadata).removeprefix(around))
        if place.set_name != self._name or role is None:
            return
        self._cliques.append((clique, role))
        if self._vouched or self._same(clique, role):
            self._hashes.setdefault(role.name, clique.metadata.labels.get(TEMPLATE_HASH, ""))

    def _same(self, clique: Received, role: CliqueTemplate) -> bool:
        """Whether a clique was made from the current template of its role."""
        meta, pod_spec = clique.metadata, pod_spec_of(clique.spec.get("podSpec") or {})
        return (
            _without_injected(pod_spec) == _without_injected(role.pod_spec)
            and _own_labels(meta) == _chosen(role.labels)
            and _own_annotations(meta) == _without_topology(role.annotations)
        )

    def calls(self) -> list[ApiCall]:
        made = [
            call
            for clique, role in self._cliques
            if (call := self._note(clique, self._template(clique, role))) is not None
        ]
        released = release(SET, self._raw)
        return [*made, *([] if released is None else [released]), self._remember()]

    def _template(self, clique: Received, role: CliqueTemplate) -> CliqueTemplate:
        """Returns the template of a clique's pods."""
        hashed = clique.metadata.labels.get(TEMPLATE_HASH, "")
        if hashed == self._hashes.get(role.name):
            return msgspec.structs.replace(role, hash=hashed)
        pod_spec = clique.spec.get("podSpec") or {}
        return msgspec.structs.replace(
            role,
            pod_spec=pod_spec,
            requests=requests_of(pod_spec),
            hash=hashed,
            labels=_own_labels(clique.metadata),
            annotations=_own_annotations(clique.metadata),
            scheduler=scheduler_of(pod_spec),
            gates=tuple(one["name"] for one in pod_spec.get("schedulingGates") or []),
        )

    def _note(self, raw: Received, template: CliqueTemplate) -> ApiCall | None:
        metadata: Json = {}
        released = release(CLIQUE, raw)
        if released is not None and released.body is not None:
            metadata |= released.body["metadata"]
        if CLIQUE_NOTE not in raw.metadata.annotations:
            place = place_of(raw.metadata)
            after = starts_after(
                self._spec, self._name, place.replica, template.name, place.group_replica
            )
            replicas = raw.spec.get("replicas", 1)
            made = PodClique(name_of(raw.metadata), place, template, replicas, after)
            metadata["annotations"] = {CLIQUE_NOTE: clique_note(made)}
        return _patch(CLIQUE, raw, metadata) if metadata else None

    def _remember(self) -> ApiCall:
        """Returns the call that writes the set's status, with the revision that Grove had rolled
        out."""
        spec, meta = self._spec, self._raw.metadata
        current = str(self._raw.status["currentGenerationHash"])
        adopted = {spec.roles[role].hash: hashed for role, hashed in self._hashes.items()}
        templates = {role.name: self._template(raw, role) for raw, role in self._cliques}
        changed = [
            raw
            for raw, role in self._cliques
            if raw.metadata.labels.get(TEMPLATE_HASH, "") != self._hashes.get(role.name)
        ]
        if self._ended and not changed:
            adopted[spec.hash] = current
        revision = Revision(1, current, {**spec.roles, **templates}, spec.priority_class)
        status = SetStatus(revision=current, revisions=(revision,), adopted=adopted)
        remembered = msgspec.to_builtins(status, str_keys=True)
        body = {"status": {MEMORY: remembered}}
        return ApiCall(STATUS, SET, self._name, (), body, meta.uid, meta.resource_version)


def _own_labels(meta: Metadata) -> dict[str, str]:
    return _chosen(meta.labels)


def _chosen(labels: Mapping[str, str]) -> dict[str, str]:
    """Returns labels without those that Grove adds."""
    return {
        key: word
        for key, word in labels.items()
        if key not in OWN_LABELS and not key.startswith("grove.io/")
    }


def _own_annotations(meta: Metadata) -> dict[str, str]:
    return _without_topology(
        {key: word for key, word in meta.annotations.items() if key != CLIQUE_NOTE}
    )


def _without_topology(annotations: Mapping[str, str]) -> dict[str, str]:
    return {key: word for key, word in annotations.items() if key != TOPOLOGY}


def _without_injected(pod_spec: Mapping[str, Any]) -> Json:
    """Returns a pod spec without the environment variables that Grove adds."""
    made = dict(pod_spec)
    for key in ("initContainers", "containers"):
        if made.get(key):
            made[key] = [_without_env(one) for one in made[key]]
    return made


def _without_env(container: Mapping[str, Any]) -> Json:
    made = dict(container)
    kept = [
        one for one in made.pop("env", None) or [] if not str(one.get("name")).startswith(INJECTED)
    ]
    return {**made, "env": kept} if kept else made
