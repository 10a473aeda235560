"""Input and output of analyzers: groups of variants, and findings about what each group needs.

Collect -> Analyze -> Optimize -> Stabilise -> Actuate. A policy has one or more analyzers, an
optimizer (`optimizers.py`), and a chain of limiters (`limiters.py`); `policy.py` runs them,
`scaler.py` runs policies, and `actuation.py` carries out their decisions.
"""

import copy
from typing import Any, Final

from mypy_extensions import mypyc_attr

from windtunnel.scaling.snapshot import Model, Variant


@mypyc_attr(allow_interpreted_subclasses=True)
class PolicyPart:
    """A part of a policy, with memory that is plain JSON data, so that it survives a restart.

    A part keeps its memory in the dicts that `remember` returns, usually by the key of a group.
    `restore` takes what fits and ignores the rest, so memory also survives an edit of the policy.
    """

    def __init__(self, name: str) -> None:
        self.name: Final = name
        self._memory: Final[dict[str, dict[str, Any]]] = {}

    def remember(self, what: str, kept: dict[str, Any] | None = None) -> dict[str, Any]:
        """Adds a dict of plain data (`kept`, if given) to the memory and returns it."""
        self._memory[what] = {} if kept is None else kept
        return self._memory[what]

    def state(self) -> dict[str, object]:
        return {what: copy.deepcopy(kept) for what, kept in self._memory.items() if kept}

    def restore(self, state: dict[str, object]) -> None:
        """Restores a `state`."""
        for what, kept in self._memory.items():
            saved = state.get(what)
            if isinstance(saved, dict):
                kept.update(copy.deepcopy(saved))


class Group:
    """Variants of a model that are decided together: all those of a role, or a single one."""

    def __init__(self, model: Model, role: str, variants: list[Variant], key: str) -> None:
        assert variants
        self.model: Final = model
        self.role: Final = role
        self.variants: Final = variants
        self.key: Final = key
        current = 0
        ready = 0
        missing = 0
        minimum = 0
        maximum = 0
        for variant in variants:
            current += variant.target
            ready += variant.ready
            missing += variant.counts.missing
            minimum += variant.minimum
            maximum += variant.maximum
        self.current: Final = current  # the size last requested
        self.ready: Final = ready
        self.missing: Final = missing  # ready, but did not answer
        self.minimum: Final = minimum
        self.maximum: Final = maximum

    def work(self) -> int:
        """Requests to serve: in its replicas, on their way to them, and at the gateway."""
        work = self.model.queued
        for variant in self.variants:
            for replica in variant.replicas:
                work += replica.running + replica.waiting + replica.expected
        return work

    def may_have_work(self) -> bool:
        """Whether it has requests, or replicas that did not answer and so may have some."""
        return self.work() > 0 or (self.missing > 0 and self.current > 0)

    def counts(self) -> list[int]:
        return [variant.target for variant in self.variants]


def groups_by_role(model: Model, variants: list[Variant]) -> list[Group]:
    """Groups these variants by role."""
    by_role: dict[str, list[Variant]] = {}
    for variant in variants:
        of_role = by_role.get(variant.role)
        if of_role is None:
            by_role[variant.role] = [variant]
        else:
            of_role.append(variant)
    return [
        Group(model, role, of_role, f"{model.name}/{role}") for role, of_role in by_role.items()
    ]


class Finding:
    """An analyzer's assessment of a group: the demand on it, and its capacity.

    The unit is the analyzer's own (tokens, requests per second, replicas). At most one of
    `required` (capacity to add) and `spare` (capacity that could be removed) is above 0. A finding
    that is not `known` leaves the group as it is: missing data never counts as zero.
    """

    def __init__(
        self,
        *,
        demand: float,
        supply: float,
        required: float,
        spare: float,
        per_replica: list[float],
        evidence: dict[str, float],
        sentence: str,
        known: bool = True,
    ) -> None:
        self.demand: Final = demand
        self.supply: Final = supply  # capacity of the ready replicas that will stay
        self.required: Final = required
        self.spare: Final = spare
        self.per_replica: Final = per_replica  # capacity by variant, as in the group; 0: unknown
        self.evidence: Final = evidence  # the numbers that it is based on, for explanations
        self.sentence: Final = sentence
        self.known: Final = known


def unknown(group: Group, sentence: str, evidence: dict[str, float] | None = None) -> Finding:
    """A finding without data, which leaves the group as it is."""
    return Finding(
        demand=0.0,
        supply=float(group.ready),
        required=0.0,
        spare=0.0,
        per_replica=[1.0 for _ in group.variants],
        evidence=evidence if evidence is not None else {},
        sentence=sentence,
        known=False,
    )


def replicas_wanted(
    group: Group, wanted: int, evidence: dict[str, float], sentence: str
) -> Finding:
    """The finding of an analyzer that computes a number of replicas itself, as HPA does."""
    more = wanted - group.current
    return Finding(
        demand=float(wanted),
        supply=float(group.ready),
        required=float(max(0, more)),
        spare=float(max(0, -more)),
        per_replica=[1.0 for _ in group.variants],
        evidence=evidence,
        sentence=sentence,
    )


@mypyc_attr(allow_interpreted_subclasses=True)
class Analyzer(PolicyPart):
    """Assesses what each group needs."""

    def analyze(self, groups: list[Group], now_s: float) -> list[Finding]:
        """Returns one finding per group; override it where roles depend on each other."""
        return [self.analyze_group(group, now_s) for group in groups]

    def analyze_group(self, group: Group, now_s: float) -> Finding:
        raise NotImplementedError
