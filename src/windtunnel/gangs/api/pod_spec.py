"""The pod spec of a clique: its validation, its resource requests and its stable hash.

A pod spec belongs to Kubernetes and is passed on as written. Only its outer keys are known here, so
that typos are found, and the values that the gang layer and its placement use.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from windtunnel.core.errors import InputError, nearest
from windtunnel.gangs.placement.constraints import check_pod_spec
from windtunnel.settings.document import KeyPath
from windtunnel.settings.faults import Fault
from windtunnel.settings.fields import is_not, shown
from windtunnel.settings.manifests import DNS_LABEL, quantity

DEFAULT_SCHEDULER = "default-scheduler"
HASH_FORM = "1"
"""Version of the hash input, part of every hash; changing it would mark every pod as changed."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


POD_KEYS = _words(
    "activeDeadlineSeconds affinity automountServiceAccountToken containers dnsConfig dnsPolicy "
    "enableServiceLinks ephemeralContainers hostAliases hostIPC hostNetwork hostPID hostUsers "
    "hostname hostnameOverride imagePullSecrets initContainers nodeName nodeSelector os overhead "
    "preemptionPolicy priority priorityClassName readinessGates resourceClaims resources "
    "restartPolicy runtimeClassName schedulerName schedulingGates securityContext serviceAccount "
    "serviceAccountName setHostnameAsFQDN shareProcessNamespace subdomain "
    "terminationGracePeriodSeconds tolerations topologySpreadConstraints volumes "
    "workloadRef"
)
CONTAINER_KEYS = _words(
    "args command env envFrom image imagePullPolicy lifecycle livenessProbe name ports "
    "readinessProbe resizePolicy resources restartPolicy restartPolicyRules securityContext "
    "startupProbe stdin stdinOnce terminationMessagePath terminationMessagePolicy tty "
    "volumeDevices volumeMounts workingDir"
)
FORBIDDEN_ON_CREATE = ("topologySpreadConstraints", "nodeName")
_ENV_NAME = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")


def pod_spec_faults(pod: Mapping[str, Any], path: KeyPath, *, new: bool) -> Iterator[Fault]:
    """Lists the faults of a pod spec; some apply only where the set is `new`."""
    yield from _unknown(pod, POD_KEYS, path)
    if new:
        what = "not allowed in a clique: placement is decided for the whole gang"
        yield from (Fault((*path, key), what) for key in FORBIDDEN_ON_CREATE if key in pod)
    for key in ("containers", "initContainers"):
        yield from _list_faults(pod.get(key), (*path, key), needed=key == "containers")
    yield from _amount_faults(pod.get("overhead"), (*path, "overhead"))
    try:
        check_pod_spec(pod)
    except InputError as error:
        inside = (error.where or "").split(".")
        yield Fault((*path, *inside), error.what, error.allowed)
    scheduler = pod.get("schedulerName")
    if scheduler is not None and not isinstance(scheduler, str):
        yield Fault((*path, "schedulerName"), is_not(scheduler, "text"), "a name")
    gates = pod.get("schedulingGates") or []
    if not isinstance(gates, list) or not all(_is_named(gate) for gate in gates):
        what = "these are not scheduling gates"
        yield Fault((*path, "schedulingGates"), what, "a list of mappings with a name")


def _is_named(entry: object) -> bool:
    return isinstance(entry, dict) and isinstance(entry.get("name"), str)


def _list_faults(containers: object, path: KeyPath, *, needed: bool) -> Iterator[Fault]:
    allowed = "a list of containers" + (", at least one" if needed else "")
    if isinstance(containers, list):
        if needed and not containers:
            yield Fault(path, "the list has no item", allowed)
        for number, container in enumerate(containers):
            yield from _container_faults(container, (*path, number))
    elif containers is not None:
        yield Fault(path, is_not(containers, "a list"), allowed)
    elif needed:
        yield Fault(path, "missing", allowed)


def _unknown(section: Mapping[str, Any], known: frozenset[str], path: KeyPath) -> Iterator[Fault]:
    for key in section:
        if key not in known:
            hint = nearest(key, known) if len(key) < 100 else None
            yield Fault((*path, key), "unknown key", hint=hint)


def _container_faults(container: object, path: KeyPath) -> Iterator[Fault]:
    if not isinstance(container, dict):
        yield Fault(path, is_not(container, "a mapping"), "a container")
        return
    yield from _unknown(container, CONTAINER_KEYS, path)
    name = container.get("name")
    if not isinstance(name, str) or not DNS_LABEL.fullmatch(name):
        what = "missing" if name is None else is_not(name, "a DNS label")
        yield Fault((*path, "name"), what, "small letters, digits and '-', at most 63")
    yield from _env_faults(container.get("env") or [], (*path, "env"))
    resources, path = container.get("resources"), (*path, "resources")
    if isinstance(resources, dict):
        for kind in ("requests", "limits"):
            yield from _amount_faults(resources.get(kind), (*path, kind))
    elif resources is not None:
        yield Fault(path, is_not(resources, "a mapping"), "requests and limits")


def _amount_faults(amounts: object, path: KeyPath) -> Iterator[Fault]:
    if amounts is None:
        return
    allowed = "a quantity such as 2, 500m, 80Mi, 16Gi"
    if not isinstance(amounts, dict):
        yield Fault(path, is_not(amounts, "a mapping"), f"resources, each with {allowed}")
        return
    for resource, amount in amounts.items():
        try:
            found = quantity(amount)
            size = "small" if found < 0 else "large" if found == float("inf") else ""
            wrong = f"{shown(amount)} is too {size}" if size else None
        except InputError as error:
            wrong = error.what
        if wrong:
            yield Fault((*path, resource), wrong, allowed)


def _env_faults(env: object, path: KeyPath) -> Iterator[Fault]:
    if not isinstance(env, list):
        yield Fault(path, is_not(env, "a list"), "a list of names with values")
        return
    seen: set[str] = set()
    for number, entry in enumerate(env):
        name = entry.get("name") if isinstance(entry, dict) else None
        if not isinstance(name, str) or not _ENV_NAME.fullmatch(name):
            allowed = "letters, digits, '-', '_' and '.', the first no digit"
            what = is_not(name, "a name of an environment variable")
            yield Fault((*path, number), what, allowed)
        elif name in seen:
            yield Fault((*path, number, "name"), f"{name!r} is there twice")
        else:
            seen.add(name)


def requests_of(pod: Mapping[str, Any]) -> dict[str, float]:
    """Returns the resource requests of one pod: the sum over its containers, or its largest init
    container if that is larger, plus the pod's overhead.

    A sidecar (an init container with `restartPolicy: Always`) counts as a container. A resource
    with only a limit requests that limit, as in Kubernetes.
    """
    total: dict[str, float] = {}
    early = pod.get("initContainers") or []
    beside = [container for container in early if container.get("restartPolicy") == "Always"]
    for container in [*(pod.get("containers") or []), *beside]:
        for resource, amount in _asked(container).items():
            total[resource] = total.get(resource, 0.0) + amount
    for container in early:
        for resource, amount in _asked(container).items():
            total[resource] = max(total.get(resource, 0.0), amount)
    for resource, amount in (pod.get("overhead") or {}).items():
        total[resource] = total.get(resource, 0.0) + quantity(amount)
    return dict(sorted(total.items()))


def _asked(container: Mapping[str, Any]) -> dict[str, float]:
    resources = container.get("resources") or {}
    asked = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return {resource: quantity(amount) for resource, amount in asked.items()}


def scheduler_of(pod: Mapping[str, Any]) -> str:
    return str(pod.get("schedulerName") or DEFAULT_SCHEDULER)


def stable_hash(value: object) -> str:
    """Returns ten characters that depend only on the content written, not on key order, process or
    date.

    The hash is taken before defaults are filled in, so that a new default does not change existing
    pods.
    """
    text = json.dumps([HASH_FORM, value], sort_keys=True, separators=(",", ":"))
    number = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
    letters = "bcdfghjklmnpqrstvwxz2456789"
    word = ""
    for _ in range(10):
        number, digit = divmod(number, len(letters))
        word += letters[digit]
    return word
