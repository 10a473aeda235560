"""The controller of one autoscaling object: its ticks, its orders, and its memory.

A driver supplies observations and carries out the orders, in this sequence:

    at next_s:   tick = controller.decide(seen, now_s)
                 store controller.record()                 # an order is on record before it is sent
                 for order in tick.orders: scale; controller.carried_out(order, outcome)

A size that is neither the one last ordered nor the one before it is a foreign change, made by a
person, another autoscaler, or another installation. It is respected: orders are held for a while,
which doubles with every further foreign change, and a condition reports it.
"""

import math
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, Final, NamedTuple

from msgspec import Struct, field

from windtunnel.core.errors import InputError
from windtunnel.core.units import format_duration
from windtunnel.scaling.actuation import IssuedDecision, ScalingLoop
from windtunnel.scaling.build import build_scaler
from windtunnel.scaling.decision import Decision
from windtunnel.scaling.kubernetes.pages import PodReading
from windtunnel.scaling.kubernetes.plan import ScaledTarget, ScalingPlan
from windtunnel.scaling.kubernetes.snapshots import PoolObservation, SnapshotBuilder
from windtunnel.scaling.snapshot import Snapshot
from windtunnel.settings.manifests import ConditionFields, StatusPart

FIRST_HOLD_S: Final = 120.0
LONGEST_HOLD_S: Final = 1800.0
QUIET_S: Final = 3600.0
"""After this long without a foreign change, the next one counts as the first again."""
TAKE_OVER_INTERVALS: Final = 3
TAKE_OVER_S: Final = 15.0
"""A record that stays unchanged for both together is taken over from its installation."""
LONGEST_MESSAGE: Final = 1000

ABLE: Final = "AbleToScale"
ACTIVE: Final = "ScalingActive"
LIMITED: Final = "ScalingLimited"
CONTESTED: Final = "Contested"
ACCEPTED: Final = "Accepted"
NORMAL: Final = "Normal"
WARNING: Final = "Warning"


class TargetFields(StatusPart, omit_defaults=False):
    """One target of the status: its current and its desired size."""

    name: str
    current: int
    desired: int
    recommended: int
    ready: int
    missing: int
    """Ready replicas that did not answer."""
    reason: str


class AutoscalerStatus(StatusPart):
    """The status of an Autoscaler."""

    observed_generation: int = -1
    last_scale_time: str | None = None
    targets: list[TargetFields] = field(default_factory=list)
    conditions: list[ConditionFields] = field(default_factory=list)


class AutoscalerCondition(NamedTuple):
    """A condition without its transition time."""

    type: str
    holds: bool
    reason: str
    message: str = ""


class AutoscalerEvent(NamedTuple):
    """A Kubernetes event about the object."""

    type: str
    reason: str
    note: str


class TickObservation(NamedTuple):
    """All that a driver observed for one tick."""

    pools: Mapping[str, PoolObservation | str]
    """By pool: the target, or why nothing is known about it."""
    readings: Mapping[str, PodReading] = {}
    queued: int | None = 0
    """Requests queued at a gateway; None: it did not answer."""
    problems: Sequence[str] = ()
    """Why some metrics are unavailable."""
    taken: Mapping[str, str] = {}
    """By pool: what else scales the target, such as an HPA."""


class Order(NamedTuple):
    """An order to set the size of a target."""

    target: ScaledTarget
    before: int
    replicas: int
    decision: Decision


class ScaleOutcome(Enum):
    """The outcome of an order."""

    DONE = "done"
    UNKNOWN = "unknown"
    """No answer was received; the next observation shows whether it took effect."""
    REFUSED = "refused"
    WITHDRAWN = "withdrawn"
    """It was not sent."""


class TickResult(NamedTuple):
    """The result of a tick."""

    decisions: Sequence[IssuedDecision]
    orders: Sequence[Order]
    events: Sequence[AutoscalerEvent]


class Published(NamedTuple):
    """The latest decision about a pool, for metrics and status."""

    at_s: float
    current: int
    desired: int
    recommended: int
    ready: int
    missing: int
    reason: str


class Claim(Struct):
    """The size last ordered for a target, and how often another writer has changed it since."""

    uid: str = ""
    written: int | None = None
    before: int | None = None
    """The size before an order whose outcome is not known."""
    foreign: int = 0
    foreign_s: float = -math.inf
    until_s: float = -math.inf
    """Orders are held until this time."""

    def look(self, uid: str, size: int, now_s: float) -> int | None:
        """Records an observed size; if another writer set it, returns the expected size."""
        expected = self.written
        if self.uid != uid or expected is None:
            self.uid, self.written, self.before = uid, size, None
            self.foreign, self.until_s = 0, -math.inf
            return None
        arrived = size == expected
        not_arrived = self.before is not None and size == self.before
        self.written, self.before = size, None
        if arrived or not_arrived:
            return None
        self.foreign = 1 if now_s - self.foreign_s > QUIET_S else min(self.foreign + 1, 32)
        self.foreign_s = now_s
        hold_s = min(FIRST_HOLD_S * 2.0 ** (self.foreign - 1), LONGEST_HOLD_S)
        self.until_s = now_s + hold_s
        return expected


class RecordHolder:
    """Which of several installations acts for an object: the one that keeps its record fresh.

    The others measure on their own clocks how long the record stays unchanged.
    """

    def __init__(self, installation: str, interval_s: float) -> None:
        self.installation: Final = installation
        self._patience_s: Final = TAKE_OVER_INTERVALS * interval_s + TAKE_OVER_S
        self._version = ""
        self._changed_s = -math.inf

    def may_act(self, holder: str, version: str, now_s: float) -> bool:
        if holder in ("", self.installation):
            return True
        if version != self._version:
            self._version, self._changed_s = version, now_s
            return False
        return now_s - self._changed_s >= self._patience_s


class ScalingController:
    """Decides for one object. `acts`: orders are issued; otherwise sizes are only recommended."""

    def __init__(self, plan: ScalingPlan, now_s: float, *, acts: bool = True) -> None:
        self.plan: Final = plan
        self.acts: Final = acts and not plan.recommends_only
        self._loop = self._new_loop()
        self._builder: Final = SnapshotBuilder(plan)
        self._targets: Final = {target.pool: target for target in plan.targets}
        self._claims: Final = {target.pool: Claim() for target in plan.targets}
        self._refused: Final[dict[str, str]] = {}
        self._trusted = True  # whether the memory is our own, not from a stored record
        self.next_s = now_s
        self._decided_s = now_s
        self.last_scale_s = -math.inf
        self.published: Final[dict[str, Published]] = {}
        self.conditions: Final[dict[str, AutoscalerCondition]] = {}
        self.ticks = 0
        self.orders: Final[dict[ScaleOutcome, int]] = {}

    def _new_loop(self) -> ScalingLoop:
        plan = self.plan
        return ScalingLoop(lambda: build_scaler(plan.setup, [plan.model]), plan.setup.timing)

    # What is remembered.

    def record(self) -> dict[str, Any]:
        """State to keep across a restart, as plain data.

        Every record differs from the one before; one that stays unchanged has lost its
        installation.
        """
        return {
            "decided_s": self._decided_s,
            "loop": self._loop.state(),
            "last_scale_s": self.last_scale_s if math.isfinite(self.last_scale_s) else None,
            "claims": {
                pool: [one.uid, one.written, one.before, one.foreign,
                       *(at_s if math.isfinite(at_s) else None
                         for at_s in (one.foreign_s, one.until_s))]
                for pool, one in self._claims.items()
            },
        }  # fmt: skip

    def restore(self, record: Mapping[str, Any], now_s: float) -> str:
        """Restores a `record`, also one of an earlier version of the policy.

        It may have been edited by hand: unreadable parts are ignored and reported. A `loop` of None
        was too large to store.
        """
        unreadable = (InputError, KeyError, TypeError, ValueError, AttributeError)
        try:
            claims = {
                str(pool): _claim(one, now_s)
                for pool, one in dict(record["claims"]).items()
                if pool in self._claims
            }
            last_s = record.get("last_scale_s")
            self.last_scale_s = -math.inf if last_s is None else min(float(last_s), now_s)
        except unreadable as error:
            return f"the record of earlier decisions cannot be read: {error}"
        self._claims.update(claims)
        try:
            if record["loop"] is None:
                return ""
            state = dict(record["loop"])
            # A stored clock ahead of ours would freeze this one.
            state["clock_s"] = min(float(state["clock_s"]), now_s)
            self._loop.restore(state)
        except unreadable as error:
            self._loop = self._new_loop()
            return f"the record of earlier decisions cannot be read: {error}"
        self._trusted = False
        return ""

    def counters(self) -> dict[str, Any]:
        """Server counters as of the last tick, as plain data."""
        return self._builder.state()

    def set_counters(self, counters: Mapping[str, Any]) -> None:
        """Restores `counters`."""
        self._builder.restore(counters)

    # One tick.

    def decide(self, seen: TickObservation, now_s: float) -> TickResult:
        """Decides for all targets; returns the decisions and the orders that may be sent."""
        self.ticks += 1
        self._decided_s = now_s
        self.next_s = self._loop.tick(now_s)
        events: list[AutoscalerEvent] = []
        pools = {pool: one for pool, one in seen.pools.items() if isinstance(one, PoolObservation)}
        unknown = [f"{pool}: {one}" for pool, one in seen.pools.items() if isinstance(one, str)]
        for pool, look in pools.items():
            expected = self._claims[pool].look(look.uid, look.size, now_s)
            if expected is not None:
                events.append(self._foreign(pool, expected, look.size, now_s))
        if unknown:
            self.published.clear()
            what = "nothing is known of a target"
            self._set_condition(
                AutoscalerCondition(ACTIVE, holds=False, reason="FailedGetScale", message=what)
            )
            self._set_contested(now_s)
            self._set_condition(AutoscalerCondition(ABLE, holds=False, reason="FailedGetScale",
                                 message="; ".join(unknown)))  # fmt: skip
            return TickResult((), (), events)
        queued = seen.queued
        if queued is None:  # without the gateway's answer the last replica neither stops nor starts
            queued = 1 if any(look.size for look in pools.values()) else 0
        snapshot = self._builder.take(pools, seen.readings, queued, now_s)
        issued = self._issued(snapshot, now_s, events)
        outcomes = [] if issued.order is None else self._loop.arrived(
            issued.order, {pool: look.size for pool, look in pools.items()}
        )  # fmt: skip
        self._publish(issued.decisions, snapshot, now_s)
        held = self._held(seen.taken, now_s)
        orders = [
            Order(self._targets[decision.variant], outcome.current, decision.target, decision)
            for outcome in outcomes
            if outcome.change and not held.get((decision := outcome.issued.decision).variant)
        ]
        for order in orders:
            claim = self._claims[order.target.pool]
            claim.before, claim.written = order.before, order.replicas
        self._conclude(seen, snapshot, issued.decisions, held, now_s)
        return TickResult(issued.decisions, orders, events)

    def _issued(self, snapshot: Snapshot, now_s: float, events: list[AutoscalerEvent]) -> Any:
        try:
            issued = self._loop.decide(snapshot, now_s)
        except Exception as error:
            if self._trusted:
                raise
            # The record may have been edited: a policy that fails on it starts without it.
            what = f"decisions fail with the record of earlier ones, and go on without: {error!r}"
            events.append(AutoscalerEvent(WARNING, "RecordUnreadable", what))
            self._loop = self._new_loop()
            issued = self._loop.decide(snapshot, now_s)
        self._trusted = True
        assert issued is not None
        return issued

    def carried_out(
        self, order: Order, outcome: ScaleOutcome, says: str, now_s: float
    ) -> AutoscalerEvent | None:
        """Records the outcome of an order; returns an event if it is worth reporting."""
        pool, claim = order.target.pool, self._claims[order.target.pool]
        self.orders[outcome] = self.orders.get(outcome, 0) + 1
        self._refused.pop(pool, None)
        if outcome is ScaleOutcome.DONE:
            claim.before = None
            self.last_scale_s = now_s
            why = _reason_of(order.decision)
            note = f"{order.target.named}: {order.before} -> {order.replicas} replicas. {why}"
            return AutoscalerEvent(NORMAL, "SuccessfulRescale", note)
        if outcome is ScaleOutcome.UNKNOWN:
            return None
        claim.written, claim.before = order.before, None
        if outcome is ScaleOutcome.WITHDRAWN:
            return None
        self._refused[pool] = says
        what = f"{order.target.named}: {order.before} -> {order.replicas} replicas is refused"
        self._set_condition(
            AutoscalerCondition(
                ABLE, holds=False, reason="FailedUpdateScale", message=f"{what}: {says}"
            )
        )
        return AutoscalerEvent(WARNING, "FailedRescale", f"{what}: {says}")

    # Conditions and events.

    def _held(self, taken: Mapping[str, str], now_s: float) -> dict[str, tuple[str, str]]:
        """By pool: the reason and the message why no order is issued."""
        held: dict[str, tuple[str, str]] = {}
        for pool, target in self._targets.items():
            claim = self._claims[pool]
            if not self.acts:
                held[pool] = ("RecommendsOnly", "sizes are only recommended, as metrics")
            elif target.cannot:
                held[pool] = ("NotScalable", target.cannot)
            elif pool in taken:
                held[pool] = ("TargetTaken", f"{target.named} is already scaled by {taken[pool]}")
            elif now_s < claim.until_s:
                left = format_duration(math.ceil(claim.until_s - now_s))
                what = f"{target.named} was changed by another writer: scaling is paused for {left}"
                held[pool] = ("ForeignChange", what)
        return held

    def _foreign(self, pool: str, expected: int, size: int, now_s: float) -> AutoscalerEvent:
        claim = self._claims[pool]
        hold = format_duration(claim.until_s - now_s)
        note = (
            f"{self._targets[pool].named} has {size} replicas instead of {expected}: another "
            f"writer scales it (change {claim.foreign}). Scaling is paused for {hold}."
        )
        return AutoscalerEvent(WARNING, "ForeignChange", note)

    def _publish(
        self, decisions: Sequence[IssuedDecision], snapshot: Snapshot, now_s: float
    ) -> None:
        variants = {one.name: one for model in snapshot.models for one in model.variants}
        for one in decisions:
            decision = one.decision
            variant = variants[decision.variant]
            self.published[decision.variant] = Published(
                now_s, decision.current, decision.target, decision.recommended,
                variant.ready, variant.counts.missing, _reason_of(decision),
            )  # fmt: skip

    def _conclude(
        self,
        seen: TickObservation,
        snapshot: Snapshot,
        decisions: Sequence[IssuedDecision],
        held: Mapping[str, tuple[str, str]],
        now_s: float,
    ) -> None:
        """Sets the conditions, named as those of a HorizontalPodAutoscaler."""
        if self._refused:
            says = "; ".join(f"{pool}: {one}" for pool, one in self._refused.items())
            self._set_condition(
                AutoscalerCondition(ABLE, holds=False, reason="FailedUpdateScale", message=says)
            )
        elif held:
            reasons = [reason for reason, _ in held.values()]
            says = "; ".join(dict.fromkeys(what for _, what in held.values()))
            self._set_condition(
                AutoscalerCondition(ABLE, holds=False, reason=reasons[0], message=says)
            )
        else:
            self._set_condition(AutoscalerCondition(ABLE, holds=True, reason="ReadyForNewScale"))
        variants = snapshot.models[0].variants
        ready = sum(one.ready for one in variants)
        missing = sum(one.counts.missing for one in variants)
        why = "; ".join(seen.problems)
        said = " ".join(f"{one.decision.variant}: {_reason_of(one.decision)}" for one in decisions)
        asked = {query.metric for query in self.plan.queries}
        answered = any(one.external for one in variants)
        sizes = [one.size for one in seen.pools.values() if not isinstance(one, str)]
        told = answered or (ready == 0 and self.plan.queue is not None)
        silent = missing == ready and (ready > 0 or any(sizes)) and not told
        # Without its queue, nothing says when to start the first replica.
        blind = seen.queued is None and not any(sizes)
        if silent or blind or (asked and not answered and why):
            silence = "no replica answered" if ready else "no replica is ready"
            what = f"No metrics: {why or silence}. {said}"
            self._set_condition(
                AutoscalerCondition(ACTIVE, holds=False, reason="FailedGetMetrics", message=what)
            )
        else:
            some = f"{missing} of {ready} ready replicas did not answer. " if missing else ""
            if seen.queued is None:
                some += f"The queue is not known: {why}. "
            self._set_condition(
                AutoscalerCondition(
                    ACTIVE, holds=True, reason="ValidMetricFound", message=some + said
                )
            )
        limits = [
            (one.decision.variant, limit) for one in decisions for limit in one.decision.limits
        ]
        if limits:
            reason = "".join(word.capitalize() for word in limits[-1][1].name.split())
            says = " ".join(f"{pool}: {limit.reason}" for pool, limit in limits)
            self._set_condition(
                AutoscalerCondition(LIMITED, holds=True, reason=reason, message=says)
            )
        else:
            self._set_condition(
                AutoscalerCondition(LIMITED, holds=False, reason="DesiredWithinRange")
            )
        self._set_contested(now_s)

    def _set_contested(self, now_s: float) -> None:
        contested = [pool for pool, one in self._claims.items() if now_s < one.until_s]
        if contested:
            names = ", ".join(str(self._targets[pool].named) for pool in contested)
            what = f"another writer changes the scale of {names}"
            self._set_condition(
                AutoscalerCondition(CONTESTED, holds=True, reason="ForeignChange", message=what)
            )
        elif CONTESTED in self.conditions or any(one.foreign for one in self._claims.values()):
            self._set_condition(
                AutoscalerCondition(CONTESTED, holds=False, reason="NoForeignChange")
            )

    def _set_condition(self, condition: AutoscalerCondition) -> None:
        message = condition.message[:LONGEST_MESSAGE]
        self.conditions[condition.type] = condition._replace(message=message)

    def target_fields(self) -> list[TargetFields]:
        """The `targets` of the status."""
        return [
            TargetFields(
                pool, one.current, one.desired, one.recommended, one.ready, one.missing,
                one.reason[:LONGEST_MESSAGE],
            )
            for pool, one in self.published.items()
        ]  # fmt: skip


def _reason_of(decision: Decision) -> str:
    return " ".join([decision.reason, *(limit.reason for limit in decision.limits)])


def _claim(one: Any, now_s: float) -> Claim:
    uid, written, before, foreign, foreign_s, until_s = one
    return Claim(
        str(uid),
        None if written is None else int(written),
        None if before is None else int(before),
        min(max(0, int(foreign)), 32),
        -math.inf if foreign_s is None else min(float(foreign_s), now_s),
        -math.inf if until_s is None else min(float(until_s), now_s + LONGEST_HOLD_S),
    )


def merged_conditions(
    known: Sequence[Any], told: Sequence[AutoscalerCondition], stamp: str, generation: int
) -> list[dict[str, Any]]:
    """Merges conditions: ours are replaced, others kept; times change only with the status."""
    ours = {one.type: one for one in told}
    before = {one.get("type"): one for one in known if isinstance(one, dict)}
    made = [one for kind, one in before.items() if kind not in ours]
    for kind, condition in ours.items():
        status = "True" if condition.holds else "False"
        old = before.get(kind, {})
        same = old.get("status") == status and isinstance(old.get("lastTransitionTime"), str)
        made.append(
            {
                "type": kind,
                "status": status,
                "reason": condition.reason,
                "message": condition.message,
                "lastTransitionTime": old["lastTransitionTime"] if same else stamp,
                "observedGeneration": generation,
            }
        )
    return made
