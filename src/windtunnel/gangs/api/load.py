"""Reads files of Grove's manifests. All faults of a file are raised in one InputError."""

from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from windtunnel.core.errors import InputError, one_sentence_per
from windtunnel.gangs.api.grove import extension_notes, grove_faults
from windtunnel.gangs.api.other_kinds import (
    GangManifest,
    GroupManifest,
    OtherManifest,
    PodCliqueManifest,
    TopologyManifest,
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
    """A set declared in a file."""

    name: str
    spec: SetSpec
    manifest: SetManifest
    warnings: tuple[str, ...]


class Manifests(NamedTuple):
    """The contents of a file, in file order."""

    sets: tuple[NamedSet, ...]
    levels: dict[str, dict[str, str]]
    """Topologies by name, each mapping a domain to its node label key, broadest first."""
    kinds: tuple[str, ...]
    """Kind and name of every manifest, such as `PodCliqueSet web`."""
    foreign: tuple[str, ...] = ()
    """Objects of other APIs in the file, which were skipped; in the same form as `kinds`."""


def load_manifests(
    path: str | Path, was: Manifests | None = None, *, grove: bool = False
) -> Manifests:
    """Reads the manifests of a file, which may refer to each other.

    A set that is also in `was` is checked as an update of that set rather than as a new one. With
    `grove`, anything that Grove's API server would refuse is a fault, too. Objects of other APIs
    are skipped.
    """
    return load_manifests_text(read_text(path, NOUN), str(path), was, grove=grove)


@lru_cache(maxsize=8)
def manifests_of_text(text: str, file: str) -> Manifests:
    """Reads the manifests of a text, cached because a scenario's rules and its run read the same
    text.

    All callers share the result and must not change it.
    """
    return load_manifests_text(text, file)


def load_manifests_text(
    text: str,
    file: str = "manifest.yaml",
    was: Manifests | None = None,
    *,
    grove: bool = False,
) -> Manifests:
    """Reads the manifests of a text; faults name `file` as its origin."""
    documents = parse_documents(text, file, NOUN, KEYS)
    foreign = [document for document in documents if is_foreign(document, KINDS)]
    documents = [one for one in documents if one not in foreign] or documents
    errors: list[InputError] = []
    checked = []
    for document in documents:
        try:
            checked.append((document, manifest_of(document, KINDS)))
        except InputError as error:
            errors.append(error)
    levels = {
        manifest.metadata.name: manifest.levels()
        for _, manifest in checked
        if isinstance(manifest, TopologyManifest)
    }
    # A file without a topology is for a cluster that has its own.
    known = None if errors else levels or None
    before = {one.name: one.manifest for one in was.sets} if was is not None else {}
    sets, kinds, names = [], [], set()
    for document, manifest in checked:
        old = before.get(_name_of(manifest))
        faults: list[Fault] = []
        if isinstance(manifest, SetManifest):
            faults += set_rule_faults(manifest, known, old)
            faults += grove_faults(manifest) if grove else ()
        elif isinstance(manifest, OtherManifest):
            faults += manifest.rule_faults()
        label = f"{document.data['kind']} {_name_of(manifest)}"
        if label in names:
            faults.append(Fault(("metadata", "name"), f"the file has {label} twice"))
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
    """Lists the faults of a set or, where `old` is given, of an update to it."""
    if old is None:
        return set_faults(manifest, levels)
    return update_faults(old, manifest) or set_faults(manifest, new=False)


def set_warnings(
    manifest: SetManifest, levels: dict[str, dict[str, str]], old: SetManifest | None
) -> list[str]:
    """Lists warnings: settings that are allowed but may not do what their author expects."""
    warnings = warnings_of(manifest) + extension_notes(manifest)
    warnings += topology_warnings(manifest.spec.template, levels)
    return warnings + (unused_replicas(old, manifest) if old is not None else [])


def _name_of(manifest: Any) -> str:
    return full_name(manifest.metadata.name, manifest.metadata.namespace)
