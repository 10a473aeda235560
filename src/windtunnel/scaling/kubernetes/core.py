"""All autoscaling objects of a cluster: their plans, claims on targets, and decisions. No I/O.

A driver reports facts (an object was edited, its record was read, its pods have answered) with
their times, and carries out the decisions. Facts and decisions can be recorded; replaying the same
facts to a new core yields the same decisions, which `windtunnel audit` checks.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, Final, NamedTuple

from windtunnel.core.telemetry import Record
from windtunnel.core.vocabulary import KEPT, RESIZED
from windtunnel.scaling.kubernetes import kthena
from windtunnel.scaling.kubernetes.autoscaler import AUTOSCALER
from windtunnel.scaling.kubernetes.canary import (
    CanaryAsk,
    CanaryGate,
    CanaryOutcome,
    WantedScaling,
    autoscaler_wants,
)
from windtunnel.scaling.kubernetes.control import (
    AutoscalerEvent,
    Order,
    ScaleOutcome,
    ScalingController,
    TickObservation,
    TickResult,
)
from windtunnel.scaling.kubernetes.plan import (
    Claimant,
    InvalidPlan,
    ObjectName,
    ScalingPlan,
    TargetKey,
    attempt,
    taken_targets,
)

# Facts.
BEGAN: Final = "scaling.began"
RECEIVED: Final = "autoscaler.received"
GONE: Final = "autoscaler.gone"
OTHERS: Final = "scaling.others"
PLANNED: Final = "scaling.planned"
RESTORED: Final = "autoscaler.restored"
RESUMED: Final = "autoscaler.resumed"
CHECKED: Final = "autoscaler.checked"
OBSERVED: Final = "autoscaler.observed"
CARRIED_OUT: Final = "autoscaler.carried-out"

# Decisions, in addition to those of every event log.
INVALID: Final = "autoscaler.invalid"
ORDERED: Final = "autoscaler.ordered"
EVENT: Final = "autoscaler.event"
DECISIONS: Final = (RESIZED, KEPT, INVALID, ORDERED, EVENT)


class StoredObject(NamedTuple):
    """An object that asks for autoscaling, as stored in the API server."""

    named: ObjectName
    uid: str
    created: str
    generation: int
    spec: Mapping[str, Any]
    canary: str | None = None
    """From its annotation: Kthena's kinds have no field for it."""


class AutoscaledObject:
    """One object, its plan, and the controller that carries out the plan."""

    def __init__(self, stored: StoredObject) -> None:
        self.named: Final = stored.named
        self.stored = stored
        self.gate: Final = CanaryGate()
        self.wanted: WantedScaling | None = None
        """None: another object has its targets."""
        self.control: ScalingController | None = None
        self.wrong: InvalidPlan | None = None
        """The fault in it, if any; the object is then not scaled, or keeps its earlier plan."""


class ScalingCore:
    """Decides for all objects. `acts`: orders are issued; otherwise sizes are only recommended."""

    def __init__(self, now_s: float, *, acts: bool, record: Record | None = None) -> None:
        self.objects: Final[dict[ObjectName, AutoscaledObject]] = {}
        self.taken: dict[ObjectName, dict[str, str]] = {}
        """By object and pool: what else scales the target."""
        self._acts: Final = acts
        self._record: Final = record
        self._others: Mapping[TargetKey, str] = {}
        self._edited: list[ObjectName] = []
        self._replanned: dict[ObjectName, AutoscaledObject] = {}
        self._claims_changed = True
        self._orders: Final[dict[tuple[ObjectName, str], tuple[ScalingController, Order]]] = {}
        """By object and pool: orders whose outcome is not known yet."""
        if record is not None:
            record(now_s, BEGAN, "scaling", "", {"acts": acts})

    # Which objects there are.

    def received(self, stored: StoredObject, now_s: float) -> None:
        """Takes an object that is new or was edited; call `plan` afterwards."""
        named = stored.named
        known = self.objects.get(named)
        if known is not None and _stamp(known.stored) == _stamp(stored):
            return
        data = stored._asdict()
        del data["named"]
        self._note(now_s, RECEIVED, named, data)
        if known is None or known.stored.uid != stored.uid:
            known = self.objects[named] = AutoscaledObject(stored)
        known.stored = stored
        self._edited.append(named)

    def gone(self, named: ObjectName, now_s: float) -> None:
        if named in self.objects:
            self._note(now_s, GONE, named, {})
            del self.objects[named]
            self._replanned.pop(named, None)
            self._claims_changed = True
            self._edited.append(named)

    def others(self, targets: Mapping[TargetKey, str], now_s: float) -> None:
        """Takes what else scales targets, such as HPAs, by target; call `plan` afterwards."""
        if targets != self._others:
            if self._record is not None:
                rows: list[Any] = [[*key, who] for key, who in targets.items()]
                self._record(now_s, OTHERS, "scaling", "", {"targets": rows})
            self._others = targets
            self._claims_changed = True

    def plan(self, now_s: float) -> None:
        """Plans the objects that are new or were edited; the others keep their plans."""
        if not self._edited and not self._claims_changed:
            return
        if self._record is not None:
            self._record(now_s, PLANNED, "scaling", "", {})
        edited, self._edited = self._edited, []
        for named in edited:
            if named.kind == AUTOSCALER and named in self.objects:
                one = self.objects[named]
                one.wanted = autoscaler_wants(named, one.stored.spec)
                self._plan(one, now_s)
        for version in sorted({one.api_version for one in edited if one.kind != AUTOSCALER}):
            self._plan_kthena(version, now_s)
        if self._claims_changed:
            self._claims_changed = False
            self.taken = taken_targets(self._claimants(), self._others)

    def take_replanned(self) -> list[AutoscaledObject]:
        """Returns the objects whose plan has changed since the last call."""
        replanned, self._replanned = self._replanned, {}
        return list(replanned.values())

    def _claimants(self) -> list[Claimant]:
        return [
            Claimant(one.named, one.stored.created, one.control.plan.targets, one.control.acts)
            for one in self.objects.values()
            if one.control is not None
        ]

    def _plan(self, one: AutoscaledObject, now_s: float) -> None:
        """Plans one object by its wanted policy, or by the policy in force."""
        assert one.wanted is not None
        plan = one.gate.plan(one.wanted)
        wrong = one.gate.wrong
        made: ScalingController | InvalidPlan
        if isinstance(plan, InvalidPlan):
            made = wrong = plan
        elif one.control is not None and one.control.plan == plan:
            made = one.control
        else:
            made = attempt(partial(self._controller, plan, one.control, now_s))
            wrong = made if isinstance(made, InvalidPlan) else wrong
        before, one.wrong = one.wrong, wrong
        if str(before or "") != str(wrong or ""):
            self._replanned[one.named] = one
            if wrong is not None:
                self._note(now_s, INVALID, one.named, {}, str(wrong))
        if made is not one.control:
            self._replanned[one.named] = one
            self._claims_changed = True
            one.control = None if isinstance(made, InvalidPlan) else made

    def _controller(
        self, plan: ScalingPlan, before: ScalingController | None, now_s: float
    ) -> ScalingController:
        made = ScalingController(plan, now_s, acts=self._acts)
        if before is not None:
            made.restore(before.record(), now_s)
        return made

    def _plan_kthena(self, api_version: str, now_s: float) -> None:
        """Plans all policies and bindings of an API version, since they refer to each other."""
        stored = [
            kthena.Stored(named, self.objects[named].stored.spec, self.objects[named].stored.canary)
            for named in sorted(self.objects)
            if named.api_version == api_version
        ]
        policies = [one for one in stored if one.named.kind == kthena.POLICY]
        bindings = [one for one in stored if one.named.kind == kthena.BINDING]
        wanted = dict(kthena.wanted_by(policies, bindings))
        for named in (one.named for one in stored):
            one = self.objects[named]
            one.wanted = wanted.get(named)
            if one.wanted is not None:
                self._plan(one, now_s)
            else:  # a policy whose targets are in a binding
                one.control = one.wrong = None
                self._replanned[named] = one
                self._claims_changed = True

    # What is remembered.

    def restore(self, named: ObjectName, record: Mapping[str, Any] | None, now_s: float) -> str:
        """Continues from a stored record, if any; returns what is wrong with it.

        Without `acts`, only the policy in force is taken from it.
        """
        self._note(now_s, RESTORED, named, {"record": None if record is None else dict(record)})
        one = self.objects[named]
        self._restore_gate(one, (record or {}).get("canary"), now_s)
        if record is None or one.control is None or not self._acts:
            return ""
        return one.control.restore(record, now_s)

    def _restore_gate(self, one: AutoscaledObject, record: object, now_s: float) -> None:
        one.gate.restore(record)
        if one.wanted is not None:
            self._plan(one, now_s)

    def checked(
        self, named: ObjectName, ask: CanaryAsk, outcome: CanaryOutcome, now_s: float
    ) -> AutoscalerEvent:
        """Records that the check for `ask` has ended; returns the event that reports it."""
        data = {"key": ask.key, "passed": outcome.passed, "message": outcome.message}
        self._note(now_s, CHECKED, named, data)
        one = self.objects[named]
        event = one.gate.conclude(ask, outcome, now_s, acts=self._acts)
        self._plan(one, now_s)
        self._note_event(now_s, named, event)
        return event

    # Decisions.

    def decide(self, named: ObjectName, seen: TickObservation, now_s: float) -> TickResult:
        """Decides about one object from an observation."""
        self._note(now_s, OBSERVED, named, {"seen": seen})
        control = self.objects[named].control
        assert control is not None
        made = control.decide(seen, now_s)
        for issued in made.decisions:
            decision = issued.decision
            if self._record is not None:
                kind = RESIZED if decision.changes else KEPT
                subject = f"{named} pool/{decision.variant}"
                data = {"id": issued.id, **decision.as_data()}
                self._record(now_s, kind, subject, decision.reason, data)
        for event in made.events:
            self._note_event(now_s, named, event)
        for order in made.orders:
            pool = order.target.pool
            self._orders[named, pool] = (control, order)
            data = {"pool": pool, "before": order.before, "replicas": order.replicas}
            self._note(now_s, ORDERED, named, data)
        return made

    def carried_out(
        self, named: ObjectName, pool: str, outcome: ScaleOutcome, says: str, now_s: float
    ) -> AutoscalerEvent | None:
        """Records the outcome of a pool's order; returns an event if it is worth reporting."""
        data: dict[str, Any] = {"pool": pool, "outcome": outcome.value, "says": says}
        self._note(now_s, CARRIED_OUT, named, data)
        control, order = self._orders.pop((named, pool))
        event = control.carried_out(order, outcome, says, now_s)
        if event is not None:
            self._note_event(now_s, named, event)
        return event

    # A log that begins in the middle.

    @property
    def awaits_outcomes(self) -> bool:
        """Whether the outcome of any order is still unknown."""
        return bool(self._orders)

    def log_anew(self, now_s: float) -> None:
        """Records everything that decisions depend on, to begin a new log. Not to be called while
        orders await an outcome."""
        assert not self._edited
        fresh = ScalingCore(now_s, acts=self._acts, record=self._record)
        for one in self.objects.values():
            fresh.received(one.stored, now_s)
        fresh.others(self._others, now_s)
        fresh.plan(now_s)
        for one in self.objects.values():
            control = one.control
            state = {
                "gate": one.gate.record() if one.gate.restored else None,
                "record": None if control is None else control.record(),
                "counters": None if control is None else control.counters(),
            }
            fresh.resume(one.named, state, now_s)
        fresh.plan(now_s)
        self.taken, self._claims_changed = fresh.taken, False

    def resume(self, named: ObjectName, state: Mapping[str, Any], now_s: float) -> None:
        """Continues exactly from another core's state."""
        self._note(now_s, RESUMED, named, {"state": dict(state)})
        one = self.objects[named]
        if state["gate"] is not None:
            self._restore_gate(one, state["gate"], now_s)
        if one.control is not None and state["record"] is not None:
            one.control.restore(state["record"], now_s)
            one.control.set_counters(state["counters"])

    def _note(
        self, now_s: float, kind: str, named: ObjectName, data: dict[str, Any], reason: str = ""
    ) -> None:
        if self._record is not None:
            self._record(now_s, kind, str(named), reason, {"object": list(named), **data})

    def _note_event(self, now_s: float, named: ObjectName, event: AutoscalerEvent) -> None:
        self._note(now_s, EVENT, named, {"type": event.type, "note": event.note}, event.reason)


def _stamp(stored: StoredObject) -> tuple[str, int, str | None]:
    """A value that changes with every edit; annotations do not change the generation."""
    return stored.uid, stored.generation, stored.canary
