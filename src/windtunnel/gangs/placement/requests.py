"""Placement requests: gangs of pod groups, what each pod needs, and where it may go.

Keys are node labels. A gang is a tree: the gang itself, its parts (replicas of a scaling group),
and groups of pods; each of them may have to be packed into one domain of a level.
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
    """The nodes that a pod may go to: those that satisfy all requirements of any term."""

    terms: list[list[Requirement]]

    def matches(self, labels: dict[str, str]) -> bool:
        return any(all(one.holds(labels) for one in term) for term in self.terms)

    def says(self) -> str:
        return " or ".join(
            " and ".join(requirement.says() for requirement in term) for term in self.terms
        )


SOFT_TAINT: Final = 1_000
"""Score penalty of a PreferNoSchedule taint on a node: more than affinity can add."""


@dataclass
class Preference:
    """Nodes that a pod prefers: those matched by a selector, with a weight."""

    weight: int
    selector: Selector


@dataclass(eq=False)
class PodTerm:
    """Pods to avoid or to be near, in the same domain of the node label `key`."""

    number: int
    key: str
    near: bool = False
    says: str = ""
    """What keeps them apart, where that is not an affinity."""
    matching: dict[str, int] = field(default_factory=dict)
    """By domain, the pods that match the term."""
    holding: dict[str, int] = field(default_factory=dict)
    """By domain, the pods that avoid matching pods."""
    domains: int = 0
    """The number of domains with matching pods."""


@dataclass(eq=False)
class PodRules:
    """The nodes that a pod may go to, and those it prefers."""

    selector: Selector | None = None
    tolerations: tuple[Toleration, ...] = ()
    preferences: tuple[Preference, ...] = ()
    least: int | None = None
    """Minimum score of a node."""
    avoids: tuple[PodTerm, ...] = ()
    shuns: tuple[PodTerm, ...] = ()
    """Pods it prefers to avoid."""
    matches: tuple[PodTerm, ...] = ()
    """Terms of other pods that match it, by which they avoid it or want to be near it."""
    joins: tuple[PodTerm, ...] = ()
    """Pods it must be near."""
    likes: tuple[PodTerm, ...] = ()
    """Pods it prefers to be near."""

    def __post_init__(self) -> None:
        own = [term for term in self.avoids if term in self.matches]
        self.alone = bool(own)
        """Whether such pods avoid each other."""
        self.apart = any(term.key != HOSTNAME for term in own)
        """Whether they do so in domains wider than a node."""

    def key(self) -> str:
        """Returns a key that is equal for equal rules."""
        selector = "" if self.selector is None else self.selector.says()
        kinds = (self.avoids, self.shuns, self.joins, self.likes, self.matches)
        terms = [[one.number for one in some] for some in kinds]
        return f"{selector}{self.tolerations}{self.preferences}{self.least}{terms}"

    def may_be_first(self, term: PodTerm) -> bool:
        """Whether such a pod may be placed first: it matches the term, and no placed pod does."""
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
        """Returns a pod's preference for a node with these labels and taints."""
        found = sum([one.weight for one in self.preferences if one.selector.matches(labels)])
        soft = [one for one in taints if one[2] == PREFER_NO_SCHEDULE and not self.tolerates(one)]
        return found - SOFT_TAINT * len(soft)


@dataclass(eq=False)
class PodShape:
    """The requirements of a pod on a node. The space shares one object among equal requirements."""

    number: int
    needs: list[tuple[int, int]]
    """Number of the resource and amount above 0, sorted by number."""
    says: str
    rules: PodRules


def both(one: Selector | None, other: Selector) -> Selector:
    """What both select."""
    if one is None:
        return other
    return Selector([[*left, *right] for left in one.terms for right in other.terms])


@dataclass
class PackConstraint:
    """Label keys of the levels of which one domain must, or should, hold all pods of a unit."""

    required: str | None = None
    preferred: str | None = None


@dataclass
class SpreadLimit:
    """The most pods of a group, or gangs of a family, in one domain of a level."""

    key: str
    most: int = 1
    required: bool = True


@dataclass(eq=False)
class UnboundPod:
    """A pod without a node; `blocked` says what it waits for other than room."""

    name: str
    shape: PodShape
    blocked: str = ""


@dataclass(eq=False)
class GroupRequest:
    """The pods of one clique: the waiting ones, in placement order.

    `bound` has the node of each pod that has one and is not terminating, `blocked` the pods that
    wait for something other than room.
    """

    name: str
    minimum: int
    pods: list[UnboundPod]
    bound: list[str] = field(default_factory=list)
    pack: PackConstraint | None = None
    spread: SpreadLimit | None = None
    blocked: list[UnboundPod] = field(default_factory=list)

    def missing(self) -> int:
        """Returns how many pods the group lacks to reach its minimum."""
        return max(0, self.minimum - len(self.bound))


@dataclass
class PartRequest:
    """Groups of a gang that are packed together: a replica of a scaling group."""

    name: str
    groups: list[str]
    pack: PackConstraint


Tie = tuple[str, int, int]
"""Orders gangs created at the same instant: set, replica, length of the name (2 before 10)."""
NO_TIE: Final[Tie] = ("", 0, 0)


@dataclass(eq=False)
class GangRequest:
    """A gang to place as a whole. Among equal priorities the lower `order` (creation time) comes
    first, then `tie`, then the name.

    `family` names the gangs that `spread` keeps apart, `topology` the levels of its keys, and
    `reuse` an earlier gang whose nodes are tried first. A `patient` gang waits for those nodes,
    while pods on them are terminating, rather than going elsewhere. It is placed close to the nodes
    in `near` if possible.
    """

    name: str
    groups: list[GroupRequest]
    priority: int = 0
    order: float = 0.0
    tie: Tie = NO_TIE
    preempts: bool = True
    parts: list[PartRequest] = field(default_factory=list)
    pack: PackConstraint | None = None
    spread: SpreadLimit | None = None
    family: str = ""
    topology: str = ""
    reuse: str = ""
    patient: bool = False
    near: list[str] = field(default_factory=list)

    def rank(self) -> tuple[int, float, Tie, str]:
        """Sort key of placement: higher priority, then earlier, then by name."""
        return (-self.priority, self.order, self.tie, self.name)

    def missing(self) -> int:
        """Returns how many pods the gang lacks to reach its minimum."""
        return sum([group.missing() for group in self.groups])
