"""A policy: analyzers, an optimizer and limiters, run for one model after another."""

from typing import Final

from mypy_extensions import mypyc_attr

from windtunnel.core.errors import InputError
from windtunnel.scaling.analyzers import Analyzer, Finding, Group, PolicyPart, groups_by_role
from windtunnel.scaling.decision import Decision, Limit, hold
from windtunnel.scaling.limiters import (
    AcceleratorLimiter,
    BoundsLimiter,
    LimitContext,
    Limiter,
    WorkLimiter,
)
from windtunnel.scaling.optimizers import Allocation, CostOrdered, Optimizer, take
from windtunnel.scaling.snapshot import Model

BY_ROLE: Final = "role"
"""The variants of a role are decided together."""
BY_VARIANT: Final = "variant"
"""Each variant is decided alone, like a Deployment with its own autoscaler."""
TOGETHER: Final = "model"
"""All variants of a model are decided together, whatever their roles."""


class PolicyParts:
    """The parts of a policy: analyzers, an optimizer, limiters, and how variants are grouped."""

    def __init__(
        self,
        analyzers: list[Analyzer],
        optimizer: Optimizer | None = None,
        limiters: list[Limiter] | None = None,
        *,
        grouping: str = BY_ROLE,
    ) -> None:
        self.analyzers: Final = analyzers
        self.optimizer: Final[Optimizer] = CostOrdered() if optimizer is None else optimizer
        self.limiters: Final[list[Limiter]] = [] if limiters is None else limiters
        self.grouping: Final = grouping


class Assessment:
    """A model, and the findings of its policy's analyzers."""

    def __init__(
        self,
        model: Model,
        groups: list[Group],
        findings: list[list[Finding]],
        urgency: float,
        parts: list["Assessment"] | None = None,
    ) -> None:
        self.model: Final = model
        self.groups: Final = groups
        self.findings: Final = findings  # by group, then by analyzer
        self.urgency: Final = urgency  # missing replicas
        self.parts: Final = parts  # one per policy, if the model has several


@mypyc_attr(allow_interpreted_subclasses=True)
class ModelPolicy:
    """Decides for a model in two steps: the most urgent models get free accelerators first."""

    def assess(self, model: Model, now_s: float) -> Assessment:
        raise NotImplementedError

    def decide(
        self, assessed: Assessment, free: dict[str, int] | None, now_s: float
    ) -> list[Decision]:
        """Returns one decision per variant, in order; growth takes accelerators from `free`."""
        raise NotImplementedError

    def state(self) -> dict[str, object]:
        raise NotImplementedError

    def restore(self, state: dict[str, object]) -> None:
        """Restores a `state`."""
        raise NotImplementedError


class Policy(ModelPolicy):
    """How a model is scaled. Memory is kept by model, so that models may share a policy.

    `wake`: while there is work, the last replica stays or the first starts. `only`: the names of
    the variants that it decides; default: all.
    """

    def __init__(
        self,
        name: str,
        parts: PolicyParts,
        *,
        wake: bool = True,
        only: list[str] | None = None,
    ) -> None:
        if not parts.analyzers:
            raise InputError("a policy without an analyzer decides nothing", where=name)
        self.name: Final = name
        self.grouping: Final = parts.grouping
        self._only: Final = only
        self._analyzers: Final = parts.analyzers
        self._optimizer: Final = parts.optimizer
        limiters = parts.limiters
        self._chain: Final[list[Limiter]] = [*limiters, AcceleratorLimiter(), BoundsLimiter()]
        self._wake: Final = wake
        if wake:
            self._chain.append(WorkLimiter())
        self._parts: Final[list[PolicyPart]] = [*parts.analyzers, parts.optimizer, *limiters]
        seen: dict[str, bool] = {}
        for part in self._parts:
            if part.name in seen:
                raise InputError(f"two parts are called {part.name!r}", where=name)
            seen[part.name] = True

    def assess(self, model: Model, now_s: float) -> Assessment:
        """Analyzes a model."""
        groups = self._groups(model)
        findings: list[list[Finding]] = [[] for _ in groups]
        for analyzer in self._analyzers:
            found = analyzer.analyze(groups, now_s)
            for number in range(len(groups)):
                findings[number].append(found[number])
        urgency = 0.0
        for of_group in findings:
            for finding in of_group:
                if finding.known and finding.required > 0:
                    capacity = max(finding.per_replica)
                    urgency += finding.required / capacity if capacity > 0 else 1.0
        return Assessment(model, groups, findings, urgency)

    def decide(
        self, assessed: Assessment, free: dict[str, int] | None, now_s: float
    ) -> list[Decision]:
        """Runs optimizer and limiters; accelerators for growth are taken from `free`."""
        groups, findings = assessed.groups, assessed.findings
        allocations = self._optimizer.allocate(groups, findings, free)
        held = [not any(finding.known for finding in of_group) for of_group in findings]
        context = LimitContext(now_s, groups, findings, allocations, held)
        wanted = []
        for number, group in enumerate(groups):
            wanted.append(group.current if held[number] else allocations[number].total)
        steps = [wanted]
        for limiter in self._chain:
            steps.append(limiter.limit(steps[-1], context))
        decided = steps[-1]
        decisions: list[Decision] = []
        for number in range(len(groups)):
            decisions.extend(self._explain(number, steps, context, free))
        for limiter in self._chain:
            limiter.record(wanted, decided, context)
        return decisions

    def state(self) -> dict[str, object]:
        return {part.name: part.state() for part in self._parts}

    def restore(self, state: dict[str, object]) -> None:
        for part in self._parts:
            saved = state.get(part.name)
            if isinstance(saved, dict):
                part.restore(saved)

    def _groups(self, model: Model) -> list[Group]:
        chosen = model.variants
        if self._only is not None:
            chosen = [variant for variant in chosen if variant.name in self._only]
        if self.grouping == BY_VARIANT:
            return [
                Group(model, variant.role, [variant], f"{model.name}/{variant.role}/{variant.name}")
                for variant in chosen
            ]
        if self.grouping == TOGETHER and chosen:
            return [Group(model, "both", chosen, model.name)]
        return groups_by_role(model, chosen)

    def _explain(
        self,
        number: int,
        steps: list[list[int]],
        context: LimitContext,
        free: dict[str, int] | None,
    ) -> list[Decision]:
        """The decision for each variant of a group, with the limits that changed it."""
        group, allocation = context.groups[number], context.allocations[number]
        counts = allocation.counts_at(steps[0][number])
        recommended = counts
        limits: list[list[Limit]] = []  # by variant, once there is one
        for position, limiter in enumerate(self._chain):
            before, after = steps[position][number], steps[position + 1][number]
            if before == after:
                continue
            limited = allocation.counts_at(after)
            without = allocation.counts_at(self._without(position, steps, context)[number])
            why = limiter.why(before, after, number, context) + _of_all(group, before, after)
            _note(limits, limiter.name, counts, limited, without, why)
            counts = limited
        if self.grouping == TOGETHER and self._wake:
            limited = _each_role_awake(group, counts)
            why = "Its role has work but would have no replica."
            _note(limits, "work", counts, limited, counts, why)
            counts = limited
        kept = _kept(group, counts) if self._wake else -1
        if kept >= 0:
            limited = list(counts)
            limited[kept] += 1
            why = f"It is the last ready replica, and {group.work()} requests are in the system."
            _note(limits, "last ready", counts, limited, counts, why)
            counts = limited
        if free is not None:
            take(free, group, counts)
        return _decisions(group, context.findings[number], recommended, counts, limits, allocation)

    def _without(self, position: int, steps: list[list[int]], context: LimitContext) -> list[int]:
        totals = steps[position]
        for limiter in self._chain[position + 1 :]:
            totals = limiter.limit(totals, context)
        return totals


class PolicyByPool(ModelPolicy):
    """Several policies for one model, by source; variants without a policy stay as they are."""

    def __init__(self, policies: dict[str, Policy]) -> None:
        self._policies: Final = policies  # each names the variants that it decides

    def assess(self, model: Model, now_s: float) -> Assessment:
        parts = [policy.assess(model, now_s) for policy in self._policies.values()]
        return Assessment(model, [], [], sum([part.urgency for part in parts]), parts)

    def decide(
        self, assessed: Assessment, free: dict[str, int] | None, now_s: float
    ) -> list[Decision]:
        assert assessed.parts is not None
        decided: dict[str, Decision] = {}
        for number, policy in enumerate(self._policies.values()):
            for decision in policy.decide(assessed.parts[number], free, now_s):
                decided[decision.variant] = decision
        model = assessed.model
        return [
            decided.get(variant.name) or hold(model.name, variant, "No policy scales this pool.")
            for variant in model.variants
        ]

    def state(self) -> dict[str, object]:
        return {source: policy.state() for source, policy in self._policies.items()}

    def restore(self, state: dict[str, object]) -> None:
        for source, policy in self._policies.items():
            saved = state.get(source)
            if isinstance(saved, dict):
                policy.restore(saved)


def _of_all(group: Group, before: int, after: int) -> str:
    """A limiter's change to the total, for a decision about one of several pools."""
    if len(group.variants) == 1:
        return ""
    which = "" if len(group.variants) == len(group.model.variants) else f"{group.role} "
    return f" That is {before} -> {after} of all {which}pools together."


def _note(
    limits: list[list[Limit]],
    name: str,
    before: list[int],
    after: list[int],
    without: list[int],
    why: str,
) -> None:
    if not limits:
        limits.extend([[] for _ in before])
    for number, of_variant in enumerate(limits):
        if before[number] != after[number]:
            of_variant.append(Limit(name, before[number], after[number], without[number], why))


def _each_role_awake(group: Group, counts: list[int]) -> list[int]:
    """If sized together, gives each role with work at least one replica of its cheapest variant."""
    awake = list(counts)
    for part in groups_by_role(group.model, group.variants):
        own = [n for n, variant in enumerate(group.variants) if variant.role == part.role]
        allowed = [n for n in own if group.variants[n].maximum > 0]
        if allowed and part.may_have_work() and not any(counts[n] > 0 for n in own):
            awake[min(allowed, key=lambda n: (group.variants[n].spec.price_per_hour, n))] = 1
    return awake


def _kept(group: Group, counts: list[int]) -> int:
    """The variant that must keep a replica although its count is 0; -1: none.

    If there is work and the decision would leave only replicas that are still starting, the
    cheapest ready variant keeps one until then.
    """
    best = -1
    for number, variant in enumerate(group.variants):
        if variant.ready == 0:
            continue
        if counts[number] > 0:
            return -1
        if variant.maximum > 0 and (
            best < 0 or variant.spec.price_per_hour < group.variants[best].spec.price_per_hour
        ):
            best = number
    return best if best >= 0 and group.may_have_work() else -1


def _decisions(
    group: Group,
    findings: list[Finding],
    recommended: list[int],
    counts: list[int],
    limits: list[list[Limit]],
    allocation: Allocation,
) -> list[Decision]:
    metrics, reason = findings[0].evidence, findings[0].sentence
    if len(findings) > 1:
        metrics = {}
        for finding in findings:
            metrics.update(finding.evidence)
        reason = " ".join([finding.sentence for finding in findings])
    if allocation.reason:
        reason += f" {allocation.reason}"
    none: list[Limit] = []
    return [
        Decision(
            group.model.name,
            variant.name,
            current=variant.target,
            recommended=recommended[number],
            target=counts[number],
            reason=reason,
            metrics=metrics,
            limits=limits[number] if limits else none,
        )
        for number, variant in enumerate(group.variants)
    ]
