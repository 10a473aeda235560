"""The autoscaler: a policy for each model, which decides the size of every variant at each tick."""

import math
from typing import Final

from windtunnel.core.errors import InputError
from windtunnel.scaling.decision import Decision, hold
from windtunnel.scaling.policy import Assessment, ModelPolicy
from windtunnel.scaling.snapshot import Model, Snapshot, believable


class Scaler:
    """Decides how many replicas every variant should have, and why. It has no clock of its own.

    A snapshot that is older than `oldest_s`, from the future, older than the last one or without a
    valid time is rejected: everything stays as it is. Impossible numbers count as missing.
    """

    def __init__(self, policies: dict[str, ModelPolicy], oldest_s: float) -> None:
        if not policies:
            raise InputError("no model has a policy", where="scaling")
        self.oldest_s: Final = oldest_s
        self._policies: Final = policies
        self._taken_s = -math.inf  # time of the latest snapshot with a decision

    def tick(self, snapshot: Snapshot, now_s: float) -> list[Decision]:
        """Returns one decision per variant, also for unchanged ones, in snapshot order."""
        age_s, before_s = now_s - snapshot.taken_s, self._taken_s - snapshot.taken_s
        if not math.isfinite(age_s):
            what = f"The time of the snapshot, {snapshot.taken_s:g} s, is invalid: no change."
            return _hold_all(snapshot, what)
        if age_s > self.oldest_s:
            return _hold_all(snapshot, f"The metrics are {age_s:g} s old: no change.")
        if age_s < 0:
            what = f"The snapshot is from {-age_s:g} s in the future: no change."
            return _hold_all(snapshot, what)
        if before_s > 0:
            what = f"The snapshot is {before_s:g} s older than the last one: no change."
            return _hold_all(snapshot, what)
        self._taken_s = snapshot.taken_s
        snapshot = believable(snapshot)
        assessed: list[Assessment] = []
        decisions: dict[str, list[Decision]] = {}
        for model in snapshot.models:
            policy = self._policies.get(model.name)
            if policy is None:
                decisions[model.name] = _hold(model, "The model has no policy.")
            else:
                assessed.append(policy.assess(model, now_s))
        free = None if snapshot.free is None else dict(snapshot.free)
        if free is not None:  # the most urgent models first
            assessed.sort(key=_by_urgency)
        for each in assessed:
            policy = self._policies[each.model.name]
            decisions[each.model.name] = policy.decide(each, free, now_s)
        ordered: list[Decision] = []
        for model in snapshot.models:
            ordered.extend(decisions[model.name])
        return ordered

    def state(self) -> dict[str, object]:
        """All memory, as plain data."""
        entries: list[object] = []
        for policy, models in self._shared():
            entries.append({"models": models, "parts": policy.state()})
        return {"policies": entries}

    def restore(self, state: dict[str, object]) -> None:
        """Restores a `state`, also if policies have been edited or are shared differently."""
        entries = state.get("policies")
        if not isinstance(entries, list):
            raise InputError("this is not the memory of an autoscaler", where="scaling")
        for policy, models in self._shared():
            for entry in entries:
                if any(model in models for model in entry["models"]):
                    policy.restore(entry["parts"])

    def _shared(self) -> list[tuple[ModelPolicy, list[str]]]:
        """Each policy once, with its models."""
        shared: list[tuple[ModelPolicy, list[str]]] = []
        numbers: dict[int, int] = {}
        for model, policy in self._policies.items():
            number = numbers.get(id(policy))
            if number is None:
                numbers[id(policy)] = len(shared)
                shared.append((policy, [model]))
            else:
                shared[number][1].append(model)
        return shared


def _by_urgency(assessed: Assessment) -> tuple[float, str]:
    return (-assessed.urgency, assessed.model.name)


def _hold_all(snapshot: Snapshot, reason: str) -> list[Decision]:
    held: list[Decision] = []
    for model in snapshot.models:
        held.extend(_hold(model, reason))
    return held


def _hold(model: Model, reason: str) -> list[Decision]:
    return [hold(model.name, variant, reason) for variant in model.variants]
