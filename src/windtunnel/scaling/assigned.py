"""Several policies for one model, each with variants of its own; the others stay as they are."""

from collections.abc import Mapping
from typing import Final

from windtunnel.scaling.decision import Decision
from windtunnel.scaling.policy import Decider, Look, Policy
from windtunnel.scaling.snapshot import Model, Variant


class Assigned(Decider):
    """Policies by what asks for them; each names the variants that it decides."""

    def __init__(self, policies: Mapping[str, Policy]) -> None:
        self._policies: Final = dict(policies)

    def look(self, model: Model, now_s: float) -> Look:
        parts = [policy.look(model, now_s) for policy in self._policies.values()]
        return Look(model, [], [], sum(part.urgency for part in parts), parts)

    def decide(self, look: Look, free: dict[str, int] | None, now_s: float) -> list[Decision]:
        assert look.parts is not None
        decided: dict[str, Decision] = {}
        for policy, part in zip(self._policies.values(), look.parts, strict=True):
            for decision in policy.decide(part, free, now_s):
                decided[decision.variant] = decision
        return [
            decided.get(variant.name) or _hold(look.model, variant)
            for variant in look.model.variants
        ]

    def state(self) -> dict[str, object]:
        return {source: policy.state() for source, policy in self._policies.items()}

    def restore(self, state: dict[str, object]) -> None:
        for source, policy in self._policies.items():
            saved = state.get(source)
            if isinstance(saved, dict):
                policy.restore(saved)


def _hold(model: Model, variant: Variant) -> Decision:
    return Decision(
        model.name,
        variant.name,
        role=variant.role,
        current=variant.target,
        recommended=variant.target,
        target=variant.target,
        reason="No policy scales it.",
        metrics={},
        limits=[],
    )
