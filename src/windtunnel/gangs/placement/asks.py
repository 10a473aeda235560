"""What placement is asked for: gangs of groups of pods, what each pod needs, where it may go.

Keys are labels of nodes. A gang is a tree: the gang itself, parts of it (a replica of a scaling
group), and groups of pods; each of them may ask to be packed into one domain of a level.
"""

from dataclasses import dataclass, field
from typing import Final


@dataclass
class Requirement:
    """One condition on a label: In, NotIn, Exists, DoesNotExist, Gt or Lt."""

    key: str
    operator: str
    values: list[str]

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


@dataclass
class Selector:
    """Which nodes a pod may go to: any of the terms, all requirements of which hold."""

    terms: list[list[Requirement]]

    def matches(self, labels: dict[str, str]) -> bool:
        return any(all(one.holds(labels) for one in term) for term in self.terms)

    def says(self) -> str:
        return " or ".join(
            " and ".join(requirement.says() for requirement in term) for term in self.terms
        )


@dataclass(eq=False)
class PodShape:
    """What a pod needs of a node. The space hands out one object for equal needs."""

    number: int
    needs: list[tuple[int, int]]
    """Number of the resource and amount above 0, by number."""
    says: str
    selector: Selector | None


@dataclass
class PackConstraint:
    """Labels of the levels of which one domain must, or should, hold all pods of a unit."""

    required: str | None = None
    preferred: str | None = None


@dataclass
class Spread:
    """At most so many in one domain of a level: pods of a group, or gangs of a family."""

    key: str
    most: int = 1
    required: bool = True


@dataclass(eq=False)
class PodAsk:
    """A pod that has no node yet."""

    name: str
    shape: PodShape


@dataclass(eq=False)
class GroupAsk:
    """Pods of one clique: those that wait, in the order in which they shall be placed.

    `bound` has the node of each pod that has one and is not about to end.
    """

    name: str
    minimum: int
    pods: list[PodAsk]
    bound: list[str] = field(default_factory=list)
    pack: PackConstraint | None = None
    spread: Spread | None = None

    def missing(self) -> int:
        """How many pods the group lacks of its minimum."""
        return max(0, self.minimum - len(self.bound))


@dataclass
class PartAsk:
    """Some groups of a gang that are packed together: a replica of a scaling group."""

    name: str
    groups: list[str]
    pack: PackConstraint


Tie = tuple[str, int, int]
"""Orders gangs of one instant: their set, its replica, the length of the name (2 before 10)."""
NO_TIE: Final[Tie] = ("", 0, 0)


@dataclass(eq=False)
class GangAsk:
    """What must be placed together. Of equal priorities the lower `order` is first: when the gang
    was created, then `tie`, then the name.

    `family` names the gangs that `spread` keeps apart; `topology` the levels that its keys
    belong to; `reuse` an earlier gang, whose nodes are taken first. A `patient` gang rather waits
    for those nodes, while pods on them are about to end, than to go elsewhere. `near` are nodes in
    the neighbourhood of which it is placed if that can be.
    """

    name: str
    groups: list[GroupAsk]
    priority: int = 0
    order: float = 0.0
    tie: Tie = NO_TIE
    preempts: bool = True
    parts: list[PartAsk] = field(default_factory=list)
    pack: PackConstraint | None = None
    spread: Spread | None = None
    family: str = ""
    topology: str = ""
    reuse: str = ""
    patient: bool = False
    near: list[str] = field(default_factory=list)

    def rank(self) -> tuple[int, float, Tie, str]:
        """Who is placed first: higher priority, then earlier, then by name."""
        return (-self.priority, self.order, self.tie, self.name)

    def missing(self) -> int:
        """How many pods the gang lacks of its minimum."""
        return sum([group.missing() for group in self.groups])
