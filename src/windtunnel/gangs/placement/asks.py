"""What placement is asked for: gangs of groups of pods, what each pod needs, where it may go.

Keys are labels of nodes. A gang is a tree: the gang itself, parts of it (a replica of a scaling
group), and groups of pods; each of them may ask to be packed into one domain of a level.
"""

from dataclasses import dataclass, field
from typing import Final

from windtunnel.core.taints import PREFER_NO_SCHEDULE, Taint, Toleration, tolerates

HOSTNAME: Final = "kubernetes.io/hostname"


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


SOFT_TAINT: Final = 1_000
"""What a taint with PreferNoSchedule takes off the score of a node: more than affinity adds."""


@dataclass
class Preference:
    """Nodes that a pod prefers: those that a selector matches, by so much."""

    weight: int
    selector: Selector


@dataclass(eq=False)
class PodTerm:
    """Pods that others keep away from, or want to be near: in one domain, which a label names."""

    number: int
    key: str
    near: bool = False
    matching: dict[str, int] = field(default_factory=dict)
    """By domain: the pods there that it is about,"""
    holding: dict[str, int] = field(default_factory=dict)
    """and those that keep away from them."""
    domains: int = 0
    """In how many domains pods are that it is about."""


@dataclass(eq=False)
class PodRules:
    """Which nodes a pod may go to, and which it would rather go to."""

    selector: Selector | None = None
    tolerations: tuple[Toleration, ...] = ()
    preferences: tuple[Preference, ...] = ()
    least: int | None = None
    """Only nodes of this score or a better one."""
    avoids: tuple[PodTerm, ...] = ()
    shuns: tuple[PodTerm, ...] = ()
    """What it would rather keep away from."""
    matches: tuple[PodTerm, ...] = ()
    """What others keep away from it by, or want to be near it by."""
    joins: tuple[PodTerm, ...] = ()
    """What it has to be near,"""
    likes: tuple[PodTerm, ...] = ()
    """and what it would like to be near."""

    def __post_init__(self) -> None:
        own = [term for term in self.avoids if term in self.matches]
        self.alone = bool(own)
        """Whether such pods keep away from each other."""
        self.apart = any(term.key != HOSTNAME for term in own)
        """Whether they do in domains wider than a node."""

    def key(self) -> str:
        """Equal for equal rules."""
        selector = "" if self.selector is None else self.selector.says()
        kinds = (self.avoids, self.shuns, self.joins, self.likes, self.matches)
        terms = [[one.number for one in some] for some in kinds]
        return f"{selector}{self.tolerations}{self.preferences}{self.least}{terms}"

    def may_be_first(self, term: PodTerm) -> bool:
        """Whether such a pod may be the first of those that it has to be near itself."""
        return term.domains == 0 and term in self.matches

    def tolerates(self, taint: Taint) -> bool:
        return any(one.covers(taint) for one in self.tolerations)

    def admits(self, labels: dict[str, str], taints: tuple[Taint, ...]) -> bool:
        """Whether a pod may go to a node with these labels and taints."""
        if self.selector is not None and not self.selector.matches(labels):
            return False
        if not tolerates(self.tolerations, taints):
            return False
        return self.least is None or self.score(labels, taints) >= self.least

    def score(self, labels: dict[str, str], taints: tuple[Taint, ...]) -> int:
        """How much a pod would like to go there."""
        found = sum([one.weight for one in self.preferences if one.selector.matches(labels)])
        soft = [one for one in taints if one[2] == PREFER_NO_SCHEDULE and not self.tolerates(one)]
        return found - SOFT_TAINT * len(soft)


@dataclass(eq=False)
class PodShape:
    """What a pod needs of a node. The space hands out one object for equal needs."""

    number: int
    needs: list[tuple[int, int]]
    """Number of the resource and amount above 0, by number."""
    says: str
    rules: PodRules


@dataclass
class PackConstraint:
    """Labels of the levels of which one domain must, or should, hold all pods of a unit."""

    required: str | None = None
    preferred: str | None = None


@dataclass
class SpreadLimit:
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
    spread: SpreadLimit | None = None

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
    spread: SpreadLimit | None = None
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
