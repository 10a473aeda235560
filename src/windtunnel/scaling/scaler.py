"""The autoscaler: a policy for each model, asked at every tick for the size of every variant."""

from typing import Final

from windtunnel.core.errors import InputError
from windtunnel.scaling.checks import at_least
from windtunnel.scaling.decision import Decision
from windtunnel.scaling.policy import Decider, Look
from windtunnel.scaling.snapshot import Model, Snapshot


class Timing:
    """When an autoscaler looks, and how late it sees and acts. Seconds.

    A driver takes a snapshot every `interval_s`, hands it over `scrape_delay_s` later, and carries
    out what was decided after a delay that it draws. A snapshot older than `freshness_s` is not
    believed: everything stays as it is.
    """

    def __init__(
        self,
        interval_s: float = 15.0,
        *,
        scrape_delay_s: float = 0.0,
        actuation_delay_s: float = 0.0,
        actuation_stddev_s: float = 0.0,
        freshness_s: float | None = None,
    ) -> None:
        at_least("interval_s", interval_s, above=True)
        at_least("scrape_delay_s", scrape_delay_s)
        at_least("actuation_delay_s", actuation_delay_s)
        at_least("actuation_stddev_s", actuation_stddev_s)
        fresh_s = scrape_delay_s + 3 * interval_s if freshness_s is None else freshness_s
        at_least("freshness_s", fresh_s, above=True)
        if fresh_s < scrape_delay_s:
            what = f"{fresh_s:g} s is less than the scrape delay of {scrape_delay_s:g} s"
            raise InputError(what, where="freshness_s", hint="every snapshot would be too old")
        self.interval_s: Final = interval_s
        self.scrape_delay_s: Final = scrape_delay_s
        self.actuation_delay_s: Final = actuation_delay_s
        self.actuation_stddev_s: Final = actuation_stddev_s
        self.freshness_s: Final = fresh_s


class Scaler:
    """Answers how many replicas every variant should have, and why. It has no clock of its own."""

    def __init__(self, policies: dict[str, Decider], timing: Timing) -> None:
        if not policies:
            raise InputError("no model has a policy", where="scaling")
        self.timing: Final = timing
        self._policies: Final = policies

    def tick(self, snapshot: Snapshot, now_s: float) -> list[Decision]:
        """One decision a variant, in the order of the snapshot, also for those that stay."""
        age_s = now_s - snapshot.taken_s
        if age_s > self.timing.freshness_s:
            return _hold_all(snapshot, f"What is known is {age_s:g} s old: nothing is changed.")
        looks: list[Look] = []
        decisions: dict[str, list[Decision]] = {}
        for model in snapshot.models:
            policy = self._policies.get(model.name)
            if policy is None:
                decisions[model.name] = _hold(model, "The model has no policy.")
            else:
                looks.append(policy.look(model, now_s))
        free = None if snapshot.free is None else dict(snapshot.free)
        if free is not None:  # those that miss most come first to what there is
            looks.sort(key=_by_urgency)
        for look in looks:
            policy = self._policies[look.model.name]
            decisions[look.model.name] = policy.decide(look, free, now_s)
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
        """Takes back what `state` gave, also where policies were edited or shared otherwise."""
        entries = state.get("policies")
        if not isinstance(entries, list):
            raise InputError("this is not the memory of an autoscaler", where="scaling")
        for policy, models in self._shared():
            for entry in entries:
                if any(model in models for model in entry["models"]):
                    policy.restore(entry["parts"])

    def _shared(self) -> list[tuple[Decider, list[str]]]:
        """Each policy once, with its models."""
        shared: list[tuple[Decider, list[str]]] = []
        numbers: dict[int, int] = {}
        for model, policy in self._policies.items():
            number = numbers.get(id(policy))
            if number is None:
                numbers[id(policy)] = len(shared)
                shared.append((policy, [model]))
            else:
                shared[number][1].append(model)
        return shared


def _by_urgency(look: Look) -> tuple[float, str]:
    return (-look.urgency, look.model.name)


def _hold_all(snapshot: Snapshot, reason: str) -> list[Decision]:
    held: list[Decision] = []
    for model in snapshot.models:
        held.extend(_hold(model, reason))
    return held


def _hold(model: Model, reason: str) -> list[Decision]:
    return [
        Decision(
            model.name,
            variant.name,
            role=variant.role,
            current=variant.target,
            recommended=variant.target,
            target=variant.target,
            reason=reason,
            metrics={},
            limits=[],
        )
        for variant in model.variants
    ]
