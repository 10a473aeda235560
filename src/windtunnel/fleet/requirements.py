"""Requirements of a need on its machines: on each one (In, Exists, ...), and on all together."""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from windtunnel.core.errors import InputError, nearest

IN: Final = "In"
NOT_IN: Final = "NotIn"
EXISTS: Final = "Exists"
DOES_NOT_EXIST: Final = "DoesNotExist"
SAME: Final = "Same"
OPERATORS: Final = (IN, NOT_IN, EXISTS, DOES_NOT_EXIST, SAME)
"""Same requires of each machine that it has the key (with one of the values, if any are given), and
of all machines of a need that they share one value."""

_LISTS: Final = (IN, NOT_IN)
_BARE: Final = (EXISTS, DOES_NOT_EXIST)


class MachineRequirement(msgspec.Struct, frozen=True, order=True):
    """A condition on one attribute of a machine."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def text(self) -> str:
        return f"{self.key}:{self.operator}:{','.join(self.values)}"

    def accepts(self, attributes: Mapping[str, str]) -> bool:
        """Whether a machine with these attributes qualifies."""
        value = attributes.get(self.key)
        if self.operator == IN:
            return value is not None and value in self.values
        if self.operator == NOT_IN:
            return value is None or value not in self.values
        if self.operator == DOES_NOT_EXIST:
            return value is None
        if self.operator == EXISTS:
            return value is not None
        return value is not None and (not self.values or value in self.values)


class MachineSpread(msgspec.Struct, frozen=True, order=True):
    """A spread: machine counts by value of a key may differ by at most `max_skew`."""

    key: str
    max_skew: int = 1

    def text(self) -> str:
        return f"{self.key}:{self.max_skew}"


def requirement(key: str, operator: str, values: Iterable[str] = ()) -> MachineRequirement:
    """Builds a checked requirement, with sorted and unique values."""
    where = f"requirement on {key!r}"
    if operator not in OPERATORS:
        raise InputError(
            f"there is no operator {operator!r}",
            where=where,
            allowed=", ".join(OPERATORS),
            hint=nearest(operator, OPERATORS),
        )
    listed = tuple(sorted(set(values)))
    for name in (key, *listed):
        _check_name(name, where)
    if operator in _LISTS and not listed:
        raise InputError(f"{operator} has no values", where=where, allowed="one or more values")
    if operator in _BARE and listed:
        raise InputError(f"{operator} has values", where=where, allowed="no values")
    return MachineRequirement(key, operator, listed)


def spread(key: str, max_skew: int = 1) -> MachineSpread:
    """Builds a checked spread."""
    _check_name(key, f"spread over {key!r}")
    if max_skew < 1:
        raise InputError(
            f"max_skew is {max_skew}", where=f"spread over {key!r}", allowed="1 or more"
        )
    return MachineSpread(key, max_skew)


def _check_name(name: str, where: str) -> None:
    """Checks a name for the punctuation of fingerprints, which could make two names out of one."""
    if not name or any(mark in name for mark in "|;:,"):
        raise InputError(
            f"{name!r} is not a name", where=where, allowed="names without | ; : , and not empty"
        )


def accepts_all(requirements: Iterable[MachineRequirement], attributes: Mapping[str, str]) -> bool:
    """Whether a machine with these attributes meets every requirement."""
    return all(one.accepts(attributes) for one in requirements)
