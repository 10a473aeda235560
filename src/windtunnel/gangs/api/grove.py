"""Faults that Grove's API server would find in a set: our extensions, and fields it requires.

`kubectl apply` validates strictly and refuses a field that the CRD does not know; where strict
validation is off, the field is dropped.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from windtunnel.gangs.api.fields import NEVER_WORD
from windtunnel.gangs.api.set_spec import NotOfGrove, SetManifest
from windtunnel.gangs.templates import COHERENT, OFF
from windtunnel.settings.document import KeyPath
from windtunnel.settings.faults import Fault, dotted
from windtunnel.settings.manifests import DNS_NAME, LONGEST_DNS_NAME
from windtunnel.settings.section import Section

_NAME: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
KEY_RULE: Final = (
    "letters, digits, '-', '_' and '.', at most 63, the first and last a letter or digit; "
    "before it a DNS name and '/' if needed"
)
VALUE_RULE: Final = "nothing, or letters, digits, '-', '_' and '.', at most 63"


def extensions(manifest: SetManifest) -> list[tuple[KeyPath, str]]:
    """Lists the fields and values of a set that Grove does not have, with the reason for each."""
    found = [(path, "not a field of Grove") for path in _marked(manifest, ())]
    spec = manifest.spec
    if spec.update_strategy is not None and spec.update_strategy.type == COHERENT:
        found.append((("spec", "updateStrategy", "type"), f"{COHERENT} is not a value of Grove"))
    if spec.template.termination_delay == OFF:
        path = ("spec", "template", "terminationDelay")
        found.append((path, f"{NEVER_WORD} is not a value of Grove"))
    return found


def _marked(section: Section, path: KeyPath) -> Iterator[KeyPath]:
    for name, field in type(section).model_fields.items():
        value = getattr(section, name)
        if value is None:
            continue
        here = (*path, field.alias or name)
        if any(isinstance(mark, NotOfGrove) for mark in field.metadata):
            yield here
        elif isinstance(value, Section):
            yield from _marked(value, here)
        elif isinstance(value, list):
            for number, item in enumerate(value):
                if isinstance(item, Section):
                    yield from _marked(item, (*here, number))


def extension_notes(manifest: SetManifest) -> list[str]:
    return [f"{dotted(path)}: {what}: its API server would refuse it" for path, what in
            extensions(manifest)]  # fmt: skip


def grove_faults(manifest: SetManifest) -> Iterator[Fault]:
    """Lists all that Grove's CRDs and webhooks, or Kubernetes on their behalf, would refuse."""
    for path, what in extensions(manifest):
        yield Fault(path, what, hint="leave it out")
    metadata, template = manifest.metadata, manifest.spec.template
    yield from _label_faults(metadata.labels, ("metadata", "labels"), values=True)
    yield from _label_faults(metadata.annotations, ("metadata", "annotations"), values=False)
    for path, part in template.parts():
        yield from _label_faults(part.annotations, (*path, "annotations"), values=False)
    for number, clique in enumerate(template.cliques):
        place: KeyPath = ("spec", "template", "cliques", number)
        yield from _label_faults(clique.labels, (*place, "labels"), values=True)
        needed = {"roleName": clique.spec.role_name, "replicas": clique.spec.replicas}
        for key, value in needed.items():
            if value is None:
                what = "missing: Grove's CRD requires it"
                yield Fault((*place, "spec", key), what)


def _label_faults(
    labels: Mapping[str, str] | None, path: KeyPath, *, values: bool
) -> Iterator[Fault]:
    for key, value in (labels or {}).items():
        prefix, slash, name = key.rpartition("/")
        fits = len(prefix) <= LONGEST_DNS_NAME and DNS_NAME.fullmatch(prefix)
        if (slash and not fits) or not _NAME.fullmatch(name):
            yield Fault((*path, key), f"{key!r} is not a key of a label or annotation", KEY_RULE)
        if values and value and not _NAME.fullmatch(value):
            yield Fault((*path, key), f"{value!r} is not the value of a label", VALUE_RULE)
