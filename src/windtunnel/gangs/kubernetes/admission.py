"""Answers admission reviews of PodCliqueSets: validates them and fills in defaults.

The rules are those for files (`gangs validate`), for updates those with `--was`. Defaults are the
ones that the controllers would assume. Pod templates stay as written, since a changed template
replaces every pod.
"""

import base64
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from windtunnel.core.errors import MALFORMED, InputError
from windtunnel.gangs.api.load import set_rule_faults, set_warnings
from windtunnel.gangs.api.resolve import set_spec_of
from windtunnel.gangs.api.set_rules import set_faults
from windtunnel.gangs.api.set_spec import SetManifest
from windtunnel.gangs.kubernetes.reading import set_manifest
from windtunnel.gangs.templates import SetSpec
from windtunnel.settings.faults import input_error

REVIEW: Final = "admission.k8s.io/v1"
PROBE: Final = "windtunnel.dev/webhook-probe"
"""Annotation by which the operator tests whether the API server reaches the webhook: a set that has
it is refused, with its value in the message."""
MOST_WARNINGS: Final = 12
LONGEST_WARNING: Final = 250
"""The API server truncates longer warnings, and those beyond 4,096 characters in total."""
LONGEST_MESSAGE: Final = 8_000

Json = dict[str, Any]
Levels = dict[str, dict[str, str]]


class Review(msgspec.Struct, rename="camel"):
    """The fields used from the request of an AdmissionReview."""

    uid: str
    operation: str = ""
    namespace: str = ""
    object: Json | None = None
    old_object: Json | None = None


class AdmissionReview(msgspec.Struct):
    request: Review


def validated(asked: Review, levels: Levels | None) -> Json:
    """Returns the response of the validating webhook; `levels` are the cluster's topologies."""
    new = asked.object or {}
    meta = new.get("metadata") or {}
    probe = (meta.get("annotations") or {}).get(PROBE)
    if probe is not None:
        return _refused(asked, f"probe {probe}")
    old = asked.old_object
    if asked.operation not in ("CREATE", "UPDATE") or meta.get("deletionTimestamp"):
        return _allowed(asked)
    if old is not None and _judged(old) == _judged(new):
        return _allowed(asked)  # sets admitted while the webhook was down can still be labelled
    try:
        warnings = _check(asked.namespace, new, old, levels)
    except InputError as error:
        return _refused(asked, str(error)[:LONGEST_MESSAGE])
    return {**_allowed(asked), "warnings": warnings} if warnings else _allowed(asked)


def _check(namespace: str, new: Json, old: Json | None, levels: Levels | None) -> list[str]:
    document, manifest = set_manifest(_placed(new, namespace), new.get("spec"))
    before = None if old is None else _taken_over(_placed(old, namespace), old.get("spec"))
    faults = set_rule_faults(manifest, levels, before)
    if faults:
        raise input_error(document, faults)
    said = set_warnings(manifest, levels or {}, before)
    return [one[:LONGEST_WARNING] for one in said[:MOST_WARNINGS]]


def _taken_over(metadata: Json, spec: object) -> SetManifest | None:
    """Parses the old set; None if it is invalid, as no objects exist for it and its update counts
    as new."""
    try:
        _, manifest = set_manifest(metadata, spec)
    except InputError:
        return None
    return None if set_faults(manifest, new=False) else manifest


def _placed(thing: Json, namespace: str) -> Json:
    return {"namespace": namespace, **(thing.get("metadata") or {})}


def _judged(thing: Json) -> tuple[object, object]:
    return thing.get("spec"), (thing.get("metadata") or {}).get("annotations")


def defaulted(asked: Review) -> Json:
    """The response of the mutating webhook; reporting faults is left to the validating one."""
    new, old = asked.object or {}, asked.old_object
    if old is not None and _judged(old) == _judged(new):
        return _allowed(asked)
    try:
        _, manifest = set_manifest(_placed(new, asked.namespace), new.get("spec"))
        patch = list(_defaults(new["spec"], set_spec_of(manifest)))
    except (InputError, *MALFORMED):  # such as containers that are not a list
        patch = []
    if not patch:
        return _allowed(asked)
    encoded = base64.b64encode(msgspec.json.encode(patch)).decode()
    return {**_allowed(asked), "patchType": "JSONPatch", "patch": encoded}


def _defaults(written: Json, spec: SetSpec) -> Iterator[Json]:
    """Yields the steps of a JSON patch that adds the defaults the controllers assume."""
    template: Json = written["template"]
    root = "/spec/template"
    delay = f"{spec.termination_delay_s / 3600:g}h"
    yield from _fill(template, root, "terminationDelay", delay)
    service = {"publishNotReadyAddresses": spec.publish_not_ready}
    yield from _fill(template, root, "headlessServiceConfig", service)
    for number, clique in enumerate(spec.cliques):
        where, part = f"{root}/cliques/{number}/spec", template["cliques"][number]["spec"]
        yield from _fill(part, where, "replicas", clique.replicas, empty=(None, 0))
        yield from _fill(part, where, "minAvailable", clique.min_available)
        if clique.scale is not None:
            where, part = f"{where}/autoScalingConfig", part["autoScalingConfig"]
            yield from _fill(part, where, "minReplicas", clique.scale.minimum)
    for number, group in enumerate(spec.groups):
        where = f"{root}/podCliqueScalingGroups/{number}"
        part = template["podCliqueScalingGroups"][number]
        yield from _fill(part, where, "replicas", group.replicas)
        yield from _fill(part, where, "minAvailable", group.min_available)
        if group.scale is not None:
            where, part = f"{where}/scaleConfig", part["scaleConfig"]
            yield from _fill(part, where, "minReplicas", group.scale.minimum)


def _fill(
    part: Mapping[str, Any],
    where: str,
    key: str,
    value: object,
    empty: tuple[object, ...] = (None,),
) -> Iterator[Json]:
    if part.get(key) in empty:
        yield {"op": "add", "path": f"{where}/{key}", "value": value}


def answer(response: Json) -> Json:
    return {"apiVersion": REVIEW, "kind": "AdmissionReview", "response": response}


def _allowed(asked: Review) -> Json:
    return {"uid": asked.uid, "allowed": True}


def _refused(asked: Review, message: str) -> Json:
    status = {"code": 422, "reason": "Invalid", "message": message}
    return {"uid": asked.uid, "allowed": False, "status": status}


def probe_set(namespace: str, nonce: str) -> Json:
    """Builds a set whose only purpose is to be refused."""
    container = {"name": "none", "image": "none"}
    clique = {"name": "none", "spec": {"podSpec": {"containers": [container]}, "replicas": 1}}
    meta = {"name": "windtunnel-probe", "namespace": namespace, "annotations": {PROBE: nonce}}
    return {"metadata": meta, "spec": {"replicas": 0, "template": {"cliques": [clique]}}}
