"""Reads files of Grove's manifests. Whatever is wrong with one is an InputError of sentences."""

from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from windtunnel.core.errors import InputError, one_sentence_per
from windtunnel.gangs.api.grove import extension_notes, grove_faults
from windtunnel.gangs.api.other_kinds import (
    GangManifest,
    GroupManifest,
    PodCliqueManifest,
    TopologyManifest,
    binding_faults,
    clique_manifest_faults,
    gang_faults,
    group_manifest_faults,
    levels_of,
)
from windtunnel.gangs.api.resolve import full_name, set_spec_of
from windtunnel.gangs.api.set_rules import set_faults, warnings_of
from windtunnel.gangs.api.set_spec import SetManifest
from windtunnel.gangs.api.topology_rules import topology_warnings
from windtunnel.gangs.api.update_rules import unused_replicas, update_faults
from windtunnel.gangs.templates import SetSpec
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

GROVE = "grove.io/v1alpha1"
SCHEDULER_GROVE = "scheduler.grove.io/v1alpha1"

KINDS = {
    "PodCliqueSet": ManifestKind((GROVE,), SetManifest),
    "ClusterTopologyBinding": ManifestKind((GROVE,), TopologyManifest),
    "PodClique": ManifestKind((GROVE,), PodCliqueManifest),
    "PodCliqueScalingGroup": ManifestKind((GROVE,), GroupManifest),
    "PodGang": ManifestKind((SCHEDULER_GROVE,), GangManifest),
}


class NamedSet(NamedTuple):
    """A set that a file asks for."""

    name: str
    spec: SetSpec
    manifest: SetManifest
    warnings: tuple[str, ...]


class Manifests(NamedTuple):
    """What a file holds, in its order."""

    sets: tuple[NamedSet, ...]
    levels: dict[str, dict[str, str]]
    """The topologies by name: from domain to the key of the node label, broadest first."""
    kinds: tuple[str, ...]
    """Of every manifest its kind and name, such as `PodCliqueSet web`."""
    foreign: tuple[str, ...] = ()
    """Objects of other APIs in the file, which were skipped, as `kinds`."""


def load_manifests(
    path: str | Path, was: Manifests | None = None, *, grove: bool = False
) -> Manifests:
    """The manifests of a file; those of one file may refer to each other.

    A set that is in `was` is held to what may change, not to what a new one may be. With `grove`,
    what Grove's API server would refuse is a fault, too. Objects of other APIs are skipped.
    """
    return load_manifests_text(read_text(path, NOUN), str(path), was, grove=grove)


@lru_cache(maxsize=8)
def manifests_of_text(text: str, file: str) -> Manifests:
    """The same for a text that is asked for again and again: the rules of a scenario and its run.

    All callers share what is read, and do not change it.
    """
    return load_manifests_text(text, file)


def load_manifests_text(
    text: str,
    file: str = "manifest.yaml",
    was: Manifests | None = None,
    *,
    grove: bool = False,
) -> Manifests:
    """The same for a text at hand; faults take it to be in `file`."""
    documents = parse_documents(text, file, NOUN, KEYS)
    foreign = [document for document in documents if is_foreign(document, KINDS)]
    documents = [one for one in documents if one not in foreign] or documents
    checked = [(document, manifest_of(document, KINDS)) for document in documents]
    levels = {
        manifest.metadata.name: levels_of(manifest)
        for _, manifest in checked
        if isinstance(manifest, TopologyManifest)
    }
    # A file without a topology is for a cluster that has its own.
    known = levels or None
    before = {one.name: one.manifest for one in was.sets} if was is not None else {}
    errors: list[InputError] = []
    sets, kinds, names = [], [], set()
    for document, manifest in checked:
        old = before.get(_name_of(manifest))
        faults = _rule_faults(manifest, known, old)
        if grove and isinstance(manifest, SetManifest):
            faults += grove_faults(manifest)
        label = f"{document.data['kind']} {_name_of(manifest)}"
        if label in names:
            faults.append(Fault(("metadata", "name"), f"the file has two of {label}"))
        names.add(label)
        kinds.append(label)
        if faults:
            errors.append(input_error(document, faults))
        elif isinstance(manifest, SetManifest):
            warnings = set_warnings(manifest, levels, old)
            sets.append(
                NamedSet(_name_of(manifest), set_spec_of(manifest), manifest, tuple(warnings))
            )
    if errors:
        raise one_sentence_per(_flat(errors))
    return Manifests(tuple(sets), levels, tuple(kinds), tuple(map(_label, foreign)))


def _label(document: Document) -> str:
    metadata = document.data.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return f"{document.data['kind']} {name or 'without a name'}"


def _flat(errors: list[InputError]) -> list[InputError]:
    return [one for error in errors for one in getattr(error, "faults", (error,))]


def set_rule_faults(
    manifest: SetManifest, levels: dict[str, dict[str, str]] | None, old: SetManifest | None
) -> list[Fault]:
    """What is wrong with a set, or with a change of it."""
    if old is None:
        return set_faults(manifest, levels)
    return update_faults(old, manifest) or set_faults(manifest, new=False)


def set_warnings(
    manifest: SetManifest, levels: dict[str, dict[str, str]], old: SetManifest | None
) -> list[str]:
    """What is allowed and yet not as it may seem."""
    warnings = warnings_of(manifest) + extension_notes(manifest)
    warnings += topology_warnings(manifest.spec.template, levels)
    return warnings + (unused_replicas(old, manifest) if old is not None else [])


def _rule_faults(
    manifest: Manifest, levels: dict[str, dict[str, str]] | None, old: SetManifest | None
) -> list[Fault]:
    if isinstance(manifest, SetManifest):
        return set_rule_faults(manifest, levels, old)
    if isinstance(manifest, TopologyManifest):
        return binding_faults(manifest)
    if isinstance(manifest, PodCliqueManifest):
        return clique_manifest_faults(manifest)
    if isinstance(manifest, GroupManifest):
        return group_manifest_faults(manifest)
    assert isinstance(manifest, GangManifest)
    return gang_faults(manifest)


def _name_of(manifest: Any) -> str:
    return full_name(manifest.metadata.name, manifest.metadata.namespace)
