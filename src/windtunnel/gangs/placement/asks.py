"""What placement is asked for: gangs of groups of pods, what each pod needs, where it may go.

Keys are labels of nodes. A gang is a tree: the gang itself, parts of it (a replica of a scaling
group), and groups of pods; each of them may ask to be packed into one domain of a level.
"""

from typing import Final


class Requirement:
    """One condition on a label: In, NotIn, Exists, DoesNotExist, Gt or Lt."""

    def __init__(self, key: str, operator: str, values: list[str]) -> None:
        self.key: Final = key
        self.operator: Final = operator
        self.values: Final = values

    def holds(self, labels: dict[str, str]) -> bool:
        value = labels.get(self.key)
        if self.operator == "In":
            return value is not None and value in self.values
        if self.operator == "NotIn":
            return value is None or value not in self.values
        if self.operator == "Exists":
            return value is not None
        if self.operator == "DoesNotExist":
            return value is None
        if value is None or not value.lstrip("-").isdigit():
            return False
        bound = int(self.values[0])
        return int(value) > bound if self.operator == "Gt" else int(value) < bound

    def says(self) -> str:
        values = ", ".join(self.values)
        return f"{self.key} {self.operator}" + (f" ({values})" if values else "")


class Selector:
    """Which nodes a pod may go to: any of the terms, all requirements of which hold."""

    def __init__(self, terms: list[list[Requirement]]) -> None:
        self.terms: Final = terms

    def matches(self, labels: dict[str, str]) -> bool:
        for term in self.terms:
            fits = True
            for requirement in term:
                if not requirement.holds(labels):
                    fits = False
                    break
            if fits:
                return True
        return False

    def says(self) -> str:
        return " or ".join(
            " and ".join(requirement.says() for requirement in term) for term in self.terms
        )


class PodShape:
    """What a pod needs of a node. The space hands out one object for equal needs."""

    def __init__(
        self, number: int, needs: list[tuple[int, int]], says: str, selector: Selector | None
    ) -> None:
        self.number: Final = number
        self.needs: Final = needs  # (number of the resource, amount above 0), by number
        self.says: Final = says
        self.selector: Final = selector


class PackConstraint:
    """Labels of the levels of which one domain must, or should, hold all pods of a unit."""

    def __init__(self, required: str | None = None, preferred: str | None = None) -> None:
        self.required: Final = required
        self.preferred: Final = preferred


class Spread:
    """At most so many in one domain of a level: pods of a group, or gangs of a family."""

    def __init__(self, key: str, most: int = 1, *, required: bool = True) -> None:
        self.key: Final = key
        self.most: Final = most
        self.required: Final = required


class PodAsk:
    """A pod that has no node yet."""

    def __init__(self, name: str, shape: PodShape) -> None:
        self.name: Final = name
        self.shape: Final = shape


class GroupAsk:
    """Pods of one clique: those that wait, in the order in which they shall be placed.

    `bound` has the node of each pod that has one and is not about to end.
    """

    def __init__(
        self,
        name: str,
        minimum: int,
        pods: list[PodAsk],
        bound: list[str] | None = None,
        pack: PackConstraint | None = None,
        spread: Spread | None = None,
    ) -> None:
        self.name: Final = name
        self.minimum: Final = minimum
        self.pods: Final = pods
        self.bound: Final[list[str]] = bound if bound is not None else []
        self.pack: Final = pack
        self.spread: Final = spread

    def missing(self) -> int:
        """How many pods the group lacks of its minimum."""
        return max(0, self.minimum - len(self.bound))


class PartAsk:
    """Some groups of a gang that are packed together: a replica of a scaling group."""

    def __init__(self, name: str, groups: list[str], pack: PackConstraint) -> None:
        self.name: Final = name
        self.groups: Final = groups
        self.pack: Final = pack


Tie = tuple[str, int, int]
"""Orders gangs of one instant: their set, its replica, the length of the name (2 before 10)."""
NO_TIE: Final[Tie] = ("", 0, 0)


class GangAsk:
    """What must be placed together. Of equal priorities the lower `order` is first: when the gang
    was created, then `tie`, then the name.

    `family` names the gangs that `spread` keeps apart; `topology` the levels that its keys
    belong to; `reuse` an earlier gang, whose nodes are taken first. A `patient` gang rather waits
    for those nodes, while pods on them are about to end, than to go elsewhere. `near` are nodes in
    the neighbourhood of which it is placed if that can be.
    """

    def __init__(
        self,
        name: str,
        groups: list[GroupAsk],
        *,
        priority: int = 0,
        order: float = 0.0,
        tie: Tie = NO_TIE,
        preempts: bool = True,
        parts: list[PartAsk] | None = None,
        pack: PackConstraint | None = None,
        spread: Spread | None = None,
        family: str = "",
        topology: str = "",
        reuse: str = "",
        patient: bool = False,
        near: list[str] | None = None,
    ) -> None:
        self.name: Final = name
        self.groups: Final = groups
        self.priority: Final = priority
        self.order: Final = order
        self.tie: Final = tie
        self.preempts: Final = preempts
        self.parts: Final[list[PartAsk]] = parts if parts is not None else []
        self.pack: Final = pack
        self.spread: Final = spread
        self.family: Final = family
        self.topology: Final = topology
        self.reuse: Final = reuse
        self.patient: Final = patient
        self.near: Final[list[str]] = near if near is not None else []

    def rank(self) -> tuple[int, float, Tie, str]:
        """Who is placed first: higher priority, then earlier, then by name."""
        return (-self.priority, self.order, self.tie, self.name)

    def missing(self) -> int:
        """How many pods the gang lacks of its minimum."""
        return sum([group.missing() for group in self.groups])
