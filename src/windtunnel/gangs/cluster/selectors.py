"""What a pod spec says about nodes: its selector, its affinity, and what is not looked at."""

from collections.abc import Mapping

from windtunnel.core.errors import InputError
from windtunnel.gangs.placement.asks import Requirement, Selector

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
