"""The autoscaler on an API server: reads scales, pods and metrics, and writes scales.

Nothing is decided here. Each object has its own task, so that a slow Prometheus delays only its own
policies. Orders go to `/scale` and nowhere else, after the record of the decision is stored in a
ConfigMap beside the object. A restart continues from that record, and two installations notice each
other by its version.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from windtunnel.core.loop import INFINITY
from windtunnel.core.telemetry import Record
from windtunnel.live.kubernetes.client import Client, ObjectSelection
from windtunnel.live.kubernetes.errors import (
    ApiError,
    Conflict,
    KubernetesError,
    NoAnswer,
    NotFound,
    NotLeader,
    ServerError,
)
from windtunnel.live.kubernetes.events import EventRecorder, Subject
from windtunnel.live.kubernetes.resources import (
    CONFIG_MAPS,
    Object,
    Plain,
    micro_time,
    owner_reference,
)
from windtunnel.live.operate.received import Received
from windtunnel.live.operate.scaling.caches import ScaleKinds, ScalingCaches, pods_of
from windtunnel.live.operate.scaling.canary import CanaryChecks, CanaryOptions
from windtunnel.live.operate.scaling.scaled import FAILED_S, RunningCheck, ScaledEntry, decoded
from windtunnel.live.operate.scaling.sources import MetricSources
from windtunnel.live.system import unwrapped
from windtunnel.scaling.decision import Decision
from windtunnel.scaling.kubernetes.autoscaler import AUTOSCALER
from windtunnel.scaling.kubernetes.canary import (
    ANNOTATION,
    CANARY,
    GOES_ON,
    CanaryAsk,
    CanaryOutcome,
)
from windtunnel.scaling.kubernetes.control import (
    ACCEPTED,
    LONGEST_MESSAGE,
    WARNING,
    AutoscalerCondition,
    AutoscalerEvent,
    Order,
    RecordHolder,
    ScaleOutcome,
    ScalingController,
    TickObservation,
    merged_conditions,
)
from windtunnel.scaling.kubernetes.core import ScalingCore, StoredObject
from windtunnel.scaling.kubernetes.plan import ObjectName, PlanBug, ScaledTarget
from windtunnel.scaling.kubernetes.snapshots import PoolObservation

MANAGED: Final = {"app.kubernetes.io/managed-by": "windtunnel-operator"}
LARGEST_RECORD: Final = 768 << 10
"""In bytes; a ConfigMap holds a MiB."""
RESTATE_S: Final = 60.0
"""How often a status is rewritten if only its wording has changed."""
SCALE_TRIES: Final = 3

scaling_log: Final = logging.getLogger("windtunnel.operator.scaling")

Decided = Callable[[ObjectName, Decision], None]


class ScalingOptions(NamedTuple):
    """The options of scaling alone."""

    installation: str
    """The name of this installation among several on one cluster."""
    canary: CanaryOptions | None = None
    """If None, a changed policy under a `canary` is never applied."""
    record: Record | None = None
    """Receives every fact and decision, for `windtunnel audit`."""


class ScalingOperator:
    """Runs the autoscaler for one term; without a writer it only recommends, and writes nothing."""

    def __init__(
        self,
        caches: ScalingCaches,
        reader: Client,
        writer: Client | None,
        recorder: EventRecorder | None,
        sources: MetricSources,
        now_s: Callable[[], float],
        options: ScalingOptions,
    ) -> None:
        self._caches: Final = caches
        self._reader: Final = reader
        self._writer: Final = writer
        self._recorder: Final = recorder
        self._sources: Final = sources
        self._now_s: Final = now_s
        self._options: Final = options
        self.core: Final = ScalingCore(now_s(), acts=writer is not None, record=options.record)
        self.scaled: Final[dict[ObjectName, ScaledEntry]] = {}
        self._kinds: Final = ScaleKinds(reader, now_s)
        self._checks: Final = CanaryChecks(options.canary)
        self.on_decision: Decided | None = None
        self.decided = 0
        self.bugs = 0
        caches.mark_all()

    async def run(self) -> None:
        """Runs until cancelled, or until the lease is lost."""
        with unwrapped():
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                while True:
                    self._caches.woken.clear()
                    self.replan()
                    now_s = self._now_s()
                    for one in self.scaled.values():
                        if one.due_s <= now_s and (one.task is None or one.task.done()):
                            one.due_s = now_s + one.interval_s
                            one.task = tasks.create_task(self._look_at(one))
                    await self._wait()

    async def _wait(self) -> None:
        waiting = [one.due_s for one in self.scaled.values() if one.task is None or one.task.done()]
        running = [one.task for one in self.scaled.values() if one.task and not one.task.done()]
        until_s = min(waiting, default=INFINITY)
        woken = asyncio.create_task(self._caches.woken.wait())
        timeout_s = None if until_s == INFINITY else max(0.0, until_s - self._now_s())
        try:
            await asyncio.wait(
                [woken, *running], timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            woken.cancel()

    # Objects.

    def replan(self) -> None:
        """Plans objects that are new or were edited; the others continue."""
        now_s = self._now_s()
        for named, resource, held in self._caches.take_changed():
            known = self.scaled.get(named)
            meta = None if held is None else held.metadata
            if held is None or meta is None or meta.deletion_timestamp is not None:
                if known is not None:
                    self.scaled.pop(named).cancel()
                    self.core.gone(named, now_s)
                continue
            self.core.received(_stored(named, held), now_s)
            if known is None or known.meta.uid != meta.uid:
                if known is not None:
                    known.cancel()
                self.scaled[named] = ScaledEntry(self.core.objects[named], resource, meta)
            one = self.scaled[named]
            one.meta, one.status = meta, held.status
        if self._caches.take_hpas_changed():
            self.core.others(self._caches.hpa_targets(), now_s)
        self.core.plan(now_s)
        self._follow_plans()

    def _follow_plans(self) -> None:
        """Makes objects whose plan has changed due at once."""
        for known in self.core.take_replanned():
            one = self.scaled[known.named]
            if isinstance(known.wrong, PlanBug):
                self.bugs += 1
                scaling_log.error(
                    "%s: %s", known.named, known.wrong, exc_info=known.wrong.__cause__
                )
            one.holder = RecordHolder(self._options.installation, one.interval_s)
            one.due_s = INFINITY if known.wanted is None else self._now_s()

    # One pass.

    async def _look_at(self, one: ScaledEntry) -> None:
        try:
            unread = one.control is None and one.gate.checks and not one.gate.restored
            if unread and not await self._holds_record(one):  # the record may have a plan in force
                one.due_s = self._now_s() + one.interval_s
                return
            if one.control is None:
                one.due_s = (
                    INFINITY if await self._report_invalid(one) else self._now_s() + FAILED_S
                )
                return
            await self._tick(one)
        except NotLeader:
            raise
        except KubernetesError as error:
            one.failures += 1
            self._say(one, str(error))
        except Exception:  # noqa: BLE001 - a bug in one policy must not stop the others
            self.bugs += 1
            scaling_log.exception("%s: a bug prevented a decision", one.named)

    async def _tick(self, one: ScaledEntry) -> None:
        if not await self._holds_record(one):
            one.due_s = self._now_s() + one.interval_s
            return
        await self._check_change(one)
        control = one.control
        if control is None:
            return  # edited meanwhile
        seen, now_s = await self._observe(one, control)
        if one.control is not control:
            return  # edited meanwhile
        made = self.core.decide(one.named, seen, now_s)
        one.due_s = control.next_s
        self.decided += len(made.decisions)
        for issued in made.decisions:
            if self.on_decision is not None:
                self.on_decision(one.named, issued.decision)
        for event in made.events:
            await self._record(one, event)
        if self._writer is None:
            return
        if not await self._store(one, control):
            for order in made.orders:
                self._carried_out(one, order, ScaleOutcome.WITHDRAWN, "")
            return
        for order in made.orders:
            outcome, says = await self._order(order)
            scaled = self._carried_out(one, order, outcome, says)
            if scaled is not None:
                await self._record(one, scaled, f"Scale{order.before}To{order.replicas}")
        await self._write_status(one, control)

    def _carried_out(
        self, one: ScaledEntry, order: Order, outcome: ScaleOutcome, says: str
    ) -> AutoscalerEvent | None:
        return self.core.carried_out(one.named, order.target.pool, outcome, says, self._now_s())

    async def _observe(
        self, one: ScaledEntry, control: ScalingController
    ) -> tuple[TickObservation, float]:
        """Observes everything needed for a decision; returns it with its time."""
        pools: dict[str, PoolObservation | str] = {}
        targets = control.plan.targets
        for target, look in zip(
            targets, await asyncio.gather(*map(self._see, targets)), strict=True
        ):
            pools[target.pool] = look
        known = {pool: look for pool, look in pools.items() if isinstance(look, PoolObservation)}
        now_s = self._now_s()
        if len(known) < len(pools):
            return TickObservation(pools), now_s
        answers = await self._sources.ask(control.plan, known, now_s)
        external = {
            pool: look._replace(external=answers.external[pool])
            for pool, look in known.items()
            if pool in answers.external
        }
        seen = TickObservation(
            {**known, **external}, answers.readings, answers.queued, answers.problems,
            self.core.taken.get(one.named, {}),
        )  # fmt: skip
        return seen, now_s

    async def _see(self, target: ScaledTarget) -> PoolObservation | str:
        """A target and its pods, or why they are unknown."""
        try:
            resource = await self._kinds.find(target.named)
            if isinstance(resource, str):
                return resource
            named = target.named
            scale = await self._reader.get_scale(resource, named.namespace, named.name)
            status = scale.get("status") or {}
            selectors = [target.selector]
            if not target.selects_alone:
                selectors.append(str(status.get("selector") or ""))
            selector = ",".join(filter(None, selectors))
            if not selector:
                return f"the scale of {named} names no pods: give a selector"
            chosen = ObjectSelection(named.namespace, selector)
            pods = await pods_of(self._reader, chosen)
        except KubernetesError as error:
            return str(error)
        size = (scale.get("spec") or {}).get("replicas") or 0
        return PoolObservation(int(size), pods, uid=str(scale["metadata"].get("uid", "")))

    async def _order(self, order: Order) -> tuple[ScaleOutcome, str]:
        """Changes a scale, unless it has changed since the order was made."""
        assert self._writer is not None
        named = order.target.named
        resource = await self._kinds.find(named)
        assert not isinstance(resource, str)
        says = ""
        for _ in range(SCALE_TRIES):
            try:
                scale = await self._reader.get_scale(resource, named.namespace, named.name)
                if (scale.get("spec") or {}).get("replicas", 0) != order.before:
                    return ScaleOutcome.WITHDRAWN, ""
                version = scale["metadata"].get("resourceVersion", "")
                change = {
                    "metadata": {"resourceVersion": version},
                    "spec": {"replicas": order.replicas},
                }
                await self._writer.patch(
                    resource, named.namespace, named.name, change, Plain, subresource="scale"
                )
            except Conflict as error:
                says = error.message
            except (NoAnswer, ServerError) as error:
                return ScaleOutcome.UNKNOWN, str(error)
            except ApiError as error:
                return ScaleOutcome.REFUSED, error.message
            else:
                return ScaleOutcome.DONE, ""
        return ScaleOutcome.REFUSED, says

    # The record.

    async def _holds_record(self, one: ScaledEntry) -> bool:
        """Whether this installation decides for an object, and not another one."""
        if self._writer is None:
            await self._read_in_force(one)
            return True
        if one.version is not None:
            return True
        assert one.holder is not None
        now_s = self._now_s()
        try:
            found = await self._reader.get(
                CONFIG_MAPS, one.named.namespace, one.beside("scaling"), Plain
            )
        except NotFound:
            one.version = ""
            self._restore(one, None)
            return True
        version = str(found["metadata"].get("resourceVersion", ""))
        data = found.get("data") or {}
        holder = str(data.get("holder", ""))
        if not one.holder.may_act(holder, version, now_s):
            if not one.standing_by:
                one.standing_by = True
                note = f"{holder} autoscales this object: {self._options.installation} stands by"
                await self._record(one, AutoscalerEvent(WARNING, "AnotherInstallation", note))
            return False
        if one.standing_by:
            one.standing_by = False
            note = f"the record of {holder} has not changed for long: it is taken over"
            await self._record(one, AutoscalerEvent(WARNING, "TakenOver", note))
        one.version = version
        owner = (found["metadata"].get("ownerReferences") or [{}])[0].get("uid")
        record = decoded(str(data.get("record", ""))) if owner == one.meta.uid else None
        wrong = self._restore(one, record)
        if wrong:
            await self._record(one, AutoscalerEvent(WARNING, "RecordUnreadable", wrong))
        return True

    def _restore(self, one: ScaledEntry, record: dict[str, Any] | None) -> str:
        """Continues from a record, if there is one; returns what is wrong with it."""
        wrong = self.core.restore(one.named, record, self._now_s())
        self._follow_plans()
        return wrong

    async def _read_in_force(self, one: ScaledEntry) -> None:
        """Reads the policy in force from the record of the acting operator, for a dry run."""
        if one.gate.restored or not one.gate.checks:
            return
        name = one.beside("scaling")
        try:
            found = await self._reader.get(CONFIG_MAPS, one.named.namespace, name, Plain)
        except NotFound:
            found = {}
        record = decoded(str((found.get("data") or {}).get("record", "")))
        self._restore(one, record)

    async def _store(self, one: ScaledEntry, control: ScalingController) -> bool:
        """Stores the record; returns whether it succeeded, since otherwise nothing is ordered."""
        assert self._writer is not None
        record = {**control.record(), "canary": one.gate.record()}
        text = msgspec.json.encode(record)
        if len(text) > LARGEST_RECORD:
            text = msgspec.json.encode({**record, "loop": None})
            note = (
                f"decisions are not remembered: their record has more than {LARGEST_RECORD} bytes"
            )
            await self._record(one, AutoscalerEvent(WARNING, "RecordTooLarge", note))
        name, space = one.beside("scaling"), one.named.namespace
        owner = {**owner_reference(one.resource, one.meta), "blockOwnerDeletion": False}
        meta: dict[str, Any] = {"namespace": space, "name": name, "labels": MANAGED}
        meta["ownerReferences"] = [owner]
        data = {"holder": self._options.installation, "record": text.decode()}
        try:
            if one.version:
                meta["resourceVersion"] = one.version
                body = {"metadata": meta, "data": data}
                made = await self._writer.patch(CONFIG_MAPS, space, name, body, Object)
            else:
                body = {"metadata": meta, "data": data}
                made = await self._writer.create(CONFIG_MAPS, body, Object)
        except (Conflict, NotFound) as error:
            one.version = None  # changed by another installation or a person: read it first
            self._say(one, f"its record was changed by another writer: {error.message}")
            return False
        except NotLeader:
            raise
        except KubernetesError as error:
            one.version = None  # it may have been written
            self._say(one, str(error))
            return False
        one.version = made.metadata.resource_version
        return True

    # Changed policies.

    async def _check_change(self, one: ScaledEntry) -> None:
        """Starts the check of a changed policy, or processes its outcome; never waits."""
        ask, running = one.gate.pending(self._now_s()), one.check
        if running is not None and (ask is None or ask.key != running.ask.key):
            running.task.cancel()  # edited meanwhile
            running = one.check = None
        if running is None:
            if ask is not None:
                one.check = RunningCheck(ask, self._tasks.create_task(self._checked(ask)))
        elif running.task.done() and ask is not None:
            one.check = None
            outcome = running.task.result()
            event = self.core.checked(one.named, ask, outcome, self._now_s())
            self._follow_plans()
            await self._record(one, event, "Check")
            if outcome.report:
                await self._attach(one, outcome.report)
        if one.wrong:
            self._say(one, f"{one.wrong}. {GOES_ON}")
        condition = one.gate.condition()
        if condition is None and one.has_condition(CANARY):
            condition = AutoscalerCondition(CANARY, holds=True, reason="NotConfigured")
        if one.control is not None and condition is not None:
            one.control.conditions[CANARY] = condition

    async def _checked(self, ask: CanaryAsk) -> CanaryOutcome:
        try:
            return await self._checks.check(ask)
        except Exception as error:  # noqa: BLE001 - a check must not stop the autoscaler
            self.bugs += 1
            scaling_log.exception("a bug ended a check")
            return CanaryOutcome(None, f"a bug ended the check: {error!r}.")

    async def _attach(self, one: ScaledEntry, report: str) -> None:
        """Stores the report of the latest check in a ConfigMap that the object owns."""
        if self._writer is None:
            return
        owner = {**owner_reference(one.resource, one.meta), "blockOwnerDeletion": False}
        meta: dict[str, Any] = {"namespace": one.named.namespace, "labels": MANAGED}
        meta |= {"name": one.beside("canary"), "ownerReferences": [owner]}
        body = {"metadata": meta, "data": {"check.md": report}}
        try:
            await self._writer.apply(
                CONFIG_MAPS, body, Object, manager="windtunnel-operator", force=True
            )
        except NotLeader:
            raise
        except KubernetesError as error:
            self._say(one, str(error))

    # Conditions and events.

    async def _record(
        self, one: ScaledEntry, event: AutoscalerEvent, action: str = "Autoscale"
    ) -> None:
        if event.type == WARNING:
            who = await self._who(one) if event.reason == "ForeignChange" else ""
            event = event._replace(note=event.note + who)
            scaling_log.warning("%s: %s", one.named, event.note)
        else:
            scaling_log.info("%s: %s", one.named, event.note)
        if self._recorder is not None:
            about = Subject.of(one.resource, one.meta)
            self._recorder.record(about, event.type, event.reason, action, event.note)

    async def _who(self, one: ScaledEntry) -> str:
        """The other managers of `spec.replicas`, from the targets' metadata, as a sentence."""
        assert one.control is not None
        found: dict[str, None] = {}
        for target in one.control.plan.targets:
            try:
                resource = await self._kinds.find(target.named)
                if isinstance(resource, str):
                    continue
                named = target.named
                whole = await self._reader.get(resource, named.namespace, named.name, Plain)
            except KubernetesError:
                continue
            for entry in whole["metadata"].get("managedFields") or ():
                fields = (entry.get("fieldsV1") or {}).get("f:spec") or {}
                manager = str(entry.get("manager", ""))
                if "f:replicas" in fields and manager != "windtunnel-operator":
                    found[manager] = None
        return f" spec.replicas is also written by {', '.join(found)}." if found else ""

    def _say(self, one: ScaledEntry, what: str) -> None:
        """Logs each problem once, however often it occurs."""
        if one.logged != what:
            one.logged = what
            scaling_log.warning("%s: %s", one.named, what)

    async def _report_invalid(self, one: ScaledEntry) -> bool:
        """Reports an invalid object; returns whether that is done and need not be retried."""
        if not one.wrong:
            return True
        self._say(one, one.wrong)
        return (
            await self._patch_status(one, [_accepted(one)], {}) or self._writer is None or one.mute
        )

    async def _write_status(self, one: ScaledEntry, control: ScalingController) -> None:
        """Writes the status if something has changed; rewording alone only every `RESTATE_S`."""
        conditions = [_accepted(one), *control.conditions.values()]
        fields = control.target_fields()
        shape = (
            one.meta.generation,
            tuple((condition.type, condition.holds, condition.reason) for condition in conditions),
            tuple(
                (target.name, target.current, target.desired, target.ready, target.missing)
                for target in fields
            ),
        )
        now_s = self._now_s()
        if shape == one.written and now_s < one.written_s + RESTATE_S:
            return
        more: dict[str, Any] = {"observedGeneration": one.meta.generation}
        if one.named.kind == AUTOSCALER:
            more["targets"] = msgspec.to_builtins(fields)
            if control.last_scale_s > 0.0:
                more["lastScaleTime"] = micro_time(control.last_scale_s)
        if await self._patch_status(one, conditions, more):
            one.written, one.written_s = shape, now_s

    async def _patch_status(
        self, one: ScaledEntry, conditions: Sequence[AutoscalerCondition], more: dict[str, Any]
    ) -> bool:
        if self._writer is None or one.mute:
            return False
        known = one.status.get("conditions")
        merged = merged_conditions(
            known if isinstance(known, list) else [],
            conditions,
            micro_time(self._now_s()),
            one.meta.generation,
        )
        # A list is replaced as a whole, so not if another writer has changed it since it was read.
        meta = {"uid": one.meta.uid, "resourceVersion": one.meta.resource_version}
        body = {"metadata": meta, "status": {**more, "conditions": merged}}
        named = one.named
        try:
            made = await self._writer.patch(
                one.resource, named.namespace, named.name, body, Received, subresource="status"
            )
        except NotLeader:
            raise
        except Conflict:
            return False
        except NotFound:
            one.mute = named.kind != AUTOSCALER
            return False
        except KubernetesError as error:
            self._say(one, str(error))
            return False
        self._caches.written(one.resource, made)
        return True


def _stored(named: ObjectName, held: Received) -> StoredObject:
    meta = held.metadata
    canary = meta.annotations.get(ANNOTATION)
    created = meta.creation_timestamp or ""
    return StoredObject(named, meta.uid, created, meta.generation, held.spec, canary)


def _accepted(one: ScaledEntry) -> AutoscalerCondition:
    """Whether the object in its current form can be carried out."""
    if one.wrong:
        goes_on = "" if one.control is None else f". {GOES_ON}"
        message = f"{one.wrong[: LONGEST_MESSAGE - len(goes_on)]}{goes_on}"
        return AutoscalerCondition(ACCEPTED, holds=False, reason="Invalid", message=message)
    return AutoscalerCondition(ACCEPTED, holds=True, reason="Accepted")
