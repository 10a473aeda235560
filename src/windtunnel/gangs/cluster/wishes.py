"""The annotations about placement: what is kept apart, and who returns to where it was."""

from typing import Final

from windtunnel.core.errors import InputError
from windtunnel.gangs.placement.asks import Spread

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
