"""Placement constraints of pod specs and annotations: node selectors, affinity, taints, spread."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from windtunnel.core.errors import InputError
from windtunnel.core.taints import NO_EXECUTE, Taint, toleration_of
from windtunnel.gangs import names
from windtunnel.gangs.objects import Pod
from windtunnel.gangs.placement.requests import (
    HOSTNAME,
    PodRules,
    Preference,
    Requirement,
    Selector,
    SpreadLimit,
)
from windtunnel.gangs.pod_manifest import pod_labels

NODES: Final = "affinity.nodeAffinity"
OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
_NO_VALUES = ("Exists", "DoesNotExist")
_ONE_NUMBER = ("Gt", "Lt")
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
NODE_NAME: Final = "metadata.name"
"""The only node field that `matchFields` supports; the space stores it among the labels."""
UNREACHABLE: Final[Taint] = ("node.kubernetes.io/unreachable", "", NO_EXECUTE)
"""The taint that Kubernetes puts on a failed node."""

EVERY_ADDRESS: Final = "0.0.0.0"  # noqa: S104 - a word of pod specs
NO_NAMESPACE: Final = ""
"""Namespace of a term that matches no pod."""

Fields = Mapping[str, object]


def rules_of(pod_spec: Fields) -> PodRules:
    """The node rules of a pod spec: required and preferred nodes, not pod (anti-)affinity."""
    node_affinity = _mapping(_mapping(pod_spec, "affinity"), "nodeAffinity")
    preferences = [
        Preference(_weight(one), Selector([_node_term(_mapping(one, "preference"))]))
        for one in _list(node_affinity, PREFERRED)
    ]
    tolerations = tuple(toleration_of(one) for one in _list(pod_spec, "tolerations"))
    return PodRules(selector_of(pod_spec), tolerations, tuple(preferences))


def selector_of(pod_spec: Fields) -> Selector | None:
    """Returns the node selector of a pod spec, required node affinity included; None: all nodes."""
    always = _equal(_mapping(pod_spec, "nodeSelector"))
    affinity = _mapping(_mapping(pod_spec, "affinity"), "nodeAffinity")
    terms = _list(_mapping(affinity, REQUIRED), "nodeSelectorTerms")
    found = [[*always, *_node_term(term)] for term in terms]
    if not found and always:
        found = [always]
    return Selector(found) if found else None


def selector_of_terms(required: Fields) -> Selector:
    """The node selector of a volume or of allocated devices."""
    return Selector([_node_term(term) for term in _list(required, "nodeSelectorTerms")])


def host_ports(pod_spec: Fields) -> list[tuple[str, str]]:
    """The ports of its node that a pod uses, each with its address; "" is every address."""
    own = bool(pod_spec.get("hostNetwork"))
    sidecars = [
        one for one in _mappings(pod_spec, "initContainers") if one.get("restartPolicy") == "Always"
    ]
    found: dict[tuple[str, str], None] = {}
    for container in [*_mappings(pod_spec, "containers"), *sidecars]:
        for port in _mappings(container, "ports"):
            number = port.get("hostPort") or (port.get("containerPort") if own else None)
            if number:
                address = str(port.get("hostIP") or "")
                where = "" if address == EVERY_ADDRESS else address
                found[f"{number}/{port.get('protocol') or 'TCP'}", where] = None
    return list(found)


def _mappings(owner: Fields, key: str) -> list[Fields]:
    """The mappings of a list, which is checked elsewhere."""
    found = owner.get(key)
    return [one for one in found if isinstance(one, Mapping)] if isinstance(found, list) else []


def node_terms(pod_spec: Fields) -> list[list[Requirement]]:
    """Returns the terms of a spec's required node affinity, without node names."""
    affinity = pod_spec.get("affinity")
    if not isinstance(affinity, dict) or not affinity.get("nodeAffinity"):
        return []
    found = selector_of({"affinity": {"nodeAffinity": affinity["nodeAffinity"]}})
    terms = found.terms if found is not None else []
    return [[one for one in term if one.key != NODE_NAME] for term in terms]


def _node_term(term: Fields) -> list[Requirement]:
    return _requirements(term, "matchExpressions") + _requirements(term, "matchFields")


def stay_s(pod_spec: Fields, usually_s: float) -> float:
    """Returns how long pods stay on a node after its failure is detected; may be infinite."""
    found = [toleration_of(one) for one in _list(pod_spec, "tolerations")]
    covering = [one.seconds for one in found if one.covers(UNREACHABLE)]
    if not covering:
        return usually_s
    return min([float("inf") if one is None else one for one in covering])


@dataclass(frozen=True)
class AffinityTerm:
    """One term of a pod (anti-)affinity: which pods, by labels and namespace, in which domains."""

    topology_key: str
    requirements: tuple[tuple[str, str, tuple[str, ...]], ...]
    """Requirements on pod labels: keys, operators and values."""
    namespaces: tuple[str, ...]
    """Empty: all namespaces."""
    required: bool
    near: bool
    """True for affinity, False for anti-affinity."""

    def matches(self, pod: Pod) -> bool:
        """Whether the term selects a pod."""
        if self.namespaces and names.namespace(pod.clique) not in self.namespaces:
            return False
        labels = pod_labels(pod)
        return all(
            Requirement(key, operator, list(values)).holds(labels)
            for key, operator, values in self.requirements
        )


def terms_of(pod: Pod) -> list[AffinityTerm]:
    """Returns the required and preferred (anti-)affinity terms of a pod."""
    return _terms(pod.template.pod_spec, pod_labels(pod), names.namespace(pod.clique))


def apart_by_host(pod: Pod) -> tuple[str, ...]:
    """Returns the terms that keep two pods of the same kind off one node."""
    spec = pod.template.pod_spec
    ports = tuple(f"host port {port}" for port, _ in host_ports(spec))
    if "affinity" not in spec:
        return ports
    return ports + tuple(
        f"{term.namespaces}{term.requirements}"
        for term in terms_of(pod)
        if term.required and not term.near and term.topology_key == HOSTNAME and term.matches(pod)
    )


def check_pod_spec(pod_spec: Fields) -> None:
    """Raises an InputError for invalid constraints."""
    rules_of(pod_spec)
    _terms(pod_spec, {}, "")


def _terms(pod_spec: Fields, own: dict[str, str], namespace: str) -> list[AffinityTerm]:
    found: list[AffinityTerm] = []
    for kind in ("podAntiAffinity", "podAffinity"):
        where, near = f"affinity.{kind}", kind == "podAffinity"
        affinity = _mapping(_mapping(pod_spec, "affinity"), kind)
        required = [
            _term(term, own, namespace, where, near=near) for term in _list(affinity, REQUIRED)
        ]
        if near and len(required) > 1:
            # As in Kubernetes: near pods that all terms select, by the key of each.
            wanted = tuple(dict.fromkeys(one for term in required for one in term.requirements))
            spaces = _common([term.namespaces for term in required])
            required = [replace(one, requirements=wanted, namespaces=spaces) for one in required]
        found += required
        for one in _list(affinity, PREFERRED):
            _weight(one)
            term = _mapping(one, "podAffinityTerm")
            found.append(_term(term, own, namespace, where, near=near, required=False))
    # A term that selects nothing keeps no pod away, and no pod can be near it.
    return [term for term in found if term.near or NO_NAMESPACE not in term.namespaces]


def _term(
    term: Fields,
    own: dict[str, str],
    namespace: str,
    where: str,
    *,
    near: bool,
    required: bool = True,
) -> AffinityTerm:
    key = term.get("topologyKey")
    if not isinstance(key, str) or not key:
        raise InputError("a term has no topologyKey", where=where)
    if not isinstance(term.get("labelSelector"), Mapping):
        return AffinityTerm(key, (), (NO_NAMESPACE,), required, near)
    wanted = requirements_of(_mapping(term, "labelSelector"), where)
    same = [str(label) for label in _plain_list(term, "matchLabelKeys")]
    wanted += _equal({label: own[label] for label in same if label in own})
    spaces = tuple(str(one) for one in _plain_list(term, "namespaces"))
    if not spaces and not isinstance(term.get("namespaceSelector"), Mapping):
        spaces = (namespace,)
    plain = tuple((one.key, one.operator, tuple(one.values)) for one in wanted)
    return AffinityTerm(key, plain, spaces, required, near)


def requirements_of(selector: Fields, where: str) -> list[Requirement]:
    """Returns the requirements of a label selector, all of which must hold."""
    wanted = _equal(_mapping(selector, "matchLabels"))
    return wanted + _requirements(selector, "matchExpressions", where)


def _common(spaces: list[tuple[str, ...]]) -> tuple[str, ...]:
    """Returns the namespaces common to all lists; an empty list stands for all namespaces."""
    named = [some for some in spaces if some]
    if not named:
        return ()
    return tuple(one for one in named[0] if all(one in some for some in named)) or (NO_NAMESPACE,)


def _weight(item: Fields) -> int:
    weight = item.get("weight")
    if not isinstance(weight, int) or not 1 <= weight <= 100:
        raise InputError(f"{weight!r} is not a weight", where="affinity", allowed="1 to 100")
    return weight


def _equal(labels: Fields) -> list[Requirement]:
    return [Requirement(key, "In", [str(value)]) for key, value in sorted(labels.items())]


def _requirements(term: Fields, key: str, where: str = NODES) -> list[Requirement]:
    return [_requirement(item, where) for item in _list(term, key)]


def _requirement(item: Fields, where: str) -> Requirement:
    key, operator = item.get("key"), item.get("operator")
    values = item.get("values") or []
    if not isinstance(key, str) or not key:
        raise InputError("a match expression has no key", where=where)
    known = OPERATORS if where == NODES else OPERATORS[:4]  # Gt and Lt are for nodes only
    if not isinstance(operator, str) or operator not in known:
        what = f"{operator!r} is not an operator"
        raise InputError(what, where=where, allowed=", ".join(known))
    if not isinstance(values, list):
        raise InputError(f"the values of {key} are not a list", where=where)
    texts = [str(value) for value in values]
    if operator in _NO_VALUES and texts:
        raise InputError(f"{operator} of {key} takes no values", where=where)
    if operator in _ONE_NUMBER and not (len(texts) == 1 and texts[0].lstrip("-").isdigit()):
        raise InputError(f"{operator} of {key} takes one whole number", where=where)
    if operator in ("In", "NotIn") and not texts:
        raise InputError(f"{operator} of {key} has no values", where=where)
    return Requirement(key, operator, texts)


def _mapping(owner: Fields, key: str) -> Fields:
    found = owner.get(key)
    if found is not None and not isinstance(found, Mapping):
        raise InputError(f"{key} is not a mapping", where=_section(key))
    return found if isinstance(found, Mapping) else {}


def _list(owner: Fields, key: str) -> list[Fields]:
    found = [item for item in _plain_list(owner, key) if isinstance(item, Mapping)]
    if len(found) < len(_plain_list(owner, key)):
        raise InputError(f"{key} has an item that is not a mapping", where=_section(key))
    return found


def _plain_list(owner: Fields, key: str) -> list[object]:
    found = owner.get(key)
    if found is not None and not isinstance(found, list):
        raise InputError(f"{key} is not a list", where=_section(key))
    return found if isinstance(found, list) else []


def _section(key: str) -> str:
    return key if key in ("tolerations", "nodeSelector") else "affinity"


SPREAD: Final = "windtunnel.dev/spread"
SPREAD_WISH: Final = "windtunnel.dev/spread-preferred"
"""Annotations of a clique (its pods) and of a set (its replicas): a domain, or domain:most."""

REUSE: Final = "windtunnel.dev/reuse-placement"
"""Annotation of a set: whether its gangs, and their pods, return to their previous nodes."""

Levels = dict[str, dict[str, str]]


def spread_of(annotations: dict[str, str], topology: str, levels: Levels) -> SpreadLimit | None:
    """Returns the spread limit in the annotations, by the label of a topology's level; None if
    none."""
    for annotation, required in ((SPREAD, True), (SPREAD_WISH, False)):
        text = annotations.get(annotation)
        if text is not None:
            domain, colon, most = text.partition(":")
            if colon and not (most.isdigit() and int(most) > 0):
                what = f"{text!r} is not a spread limit"
                allowed = "a domain, or a domain and a number from 1, such as rack:2"
                raise InputError(what, where=annotation, allowed=allowed)
            key = _key(domain, topology, levels)
            if key is None:
                known = dict.fromkeys(name for one in levels.values() for name in one)
                what = f"no topology has the level {domain!r}"
                raise InputError(what, where=annotation, allowed=", ".join(known))
            return SpreadLimit(key, int(most) if colon else 1, required=required)
    return None


def reuses(annotations: dict[str, str]) -> bool:
    """Whether the gangs of a set return to their previous nodes."""
    text = annotations.get(REUSE, "false")
    if text not in ("true", "false"):
        raise InputError(f"{text!r} is not a boolean", where=REUSE, allowed="'true' or 'false'")
    return text == "true"


def _key(domain: str, topology: str, levels: Levels) -> str | None:
    """Returns the label of a domain: in the gang's own topology, or in the first that has it."""
    for name in [topology, *levels]:
        key = levels.get(name, {}).get(domain)
        if key is not None:
            return key
    return None
