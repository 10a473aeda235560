"""Placement constraints of pod specs and annotations: node selectors, affinity, spread, reuse."""

from collections.abc import Mapping
from typing import Final

from windtunnel.core.errors import InputError
from windtunnel.gangs.placement.asks import Requirement, Selector, Spread

OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
_NO_VALUES = ("Exists", "DoesNotExist")
_ONE_NUMBER = ("Gt", "Lt")


def selector_of(pod_spec: Mapping[str, object]) -> Selector | None:
    """Which nodes pods of a spec may go to; None: to all."""
    always = [
        Requirement(key, "In", [str(value)])
        for key, value in sorted(_mapping(pod_spec, "nodeSelector").items())
    ]
    affinity = _mapping(_mapping(pod_spec, "affinity"), "nodeAffinity")
    required = _mapping(affinity, "requiredDuringSchedulingIgnoredDuringExecution")
    terms = [
        [*always, *_requirements(term, "matchExpressions")]
        for term in _list(required, "nodeSelectorTerms")
    ]
    if not terms and always:
        terms = [always]
    return Selector(terms) if terms else None


def not_looked_at(pod_spec: Mapping[str, object]) -> list[str]:
    """Wishes about nodes that this cluster does not know, in the words of the spec."""
    affinity = _mapping(pod_spec, "affinity")
    found = [f"affinity.{key}" for key in ("podAffinity", "podAntiAffinity") if affinity.get(key)]
    if _mapping(affinity, "nodeAffinity").get("preferredDuringSchedulingIgnoredDuringExecution"):
        found.append("affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution")
    return found


def _requirements(term: Mapping[str, object], key: str) -> list[Requirement]:
    return [_requirement(item) for item in _list(term, key)]


def _requirement(item: Mapping[str, object]) -> Requirement:
    where = "affinity.nodeAffinity"
    key, operator = item.get("key"), item.get("operator")
    values = item.get("values") or []
    if not isinstance(key, str) or not key:
        raise InputError("a match expression has no key", where=where)
    if not isinstance(operator, str) or operator not in OPERATORS:
        what = f"{operator!r} is not an operator"
        raise InputError(what, where=where, allowed=", ".join(OPERATORS))
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


def _mapping(owner: Mapping[str, object], key: str) -> Mapping[str, object]:
    found = owner.get(key)
    return found if isinstance(found, Mapping) else {}


def _list(owner: Mapping[str, object], key: str) -> list[Mapping[str, object]]:
    found = owner.get(key)
    return [item for item in found if isinstance(item, Mapping)] if isinstance(found, list) else []


SPREAD: Final = "windtunnel.dev/spread"
SPREAD_WISH: Final = "windtunnel.dev/spread-preferred"
"""Of a clique (its pods) and of a set (its replicas): a domain, or domain:most."""

REUSE: Final = "windtunnel.dev/reuse-placement"
"""Of a set: whether its gangs, and pods of them, go back to the nodes that they had."""

Levels = dict[str, dict[str, str]]


def spread_of(annotations: dict[str, str], topology: str, levels: Levels) -> Spread | None:
    """What the annotations ask for, by the label of a topology's level; None: nothing."""
    for annotation, required in ((SPREAD, True), (SPREAD_WISH, False)):
        text = annotations.get(annotation)
        if text is not None:
            domain, colon, most = text.partition(":")
            if colon and not (most.isdigit() and int(most) > 0):
                what = f"{text!r} does not say how many may be together"
                allowed = "a domain, or a domain and a number from 1, such as rack:2"
                raise InputError(what, where=annotation, allowed=allowed)
            key = _key(domain, topology, levels)
            if key is None:
                known = dict.fromkeys(name for one in levels.values() for name in one)
                what = f"no topology has the level {domain!r}"
                raise InputError(what, where=annotation, allowed=", ".join(known))
            return Spread(key, int(most) if colon else 1, required=required)
    return None


def reuses(annotations: dict[str, str]) -> bool:
    """Whether gangs of a set go back to where they were."""
    text = annotations.get(REUSE, "false")
    if text not in ("true", "false"):
        raise InputError(f"{text!r} is neither", where=REUSE, allowed="'true' or 'false'")
    return text == "true"


def _key(domain: str, topology: str, levels: Levels) -> str | None:
    """The label of a domain: in the gang's own topology, or in the first that has it."""
    for name in [topology, *levels]:
        key = levels.get(name, {}).get(domain)
        if key is not None:
            return key
    return None
