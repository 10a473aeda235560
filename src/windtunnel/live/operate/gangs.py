"""The loop of the gang controllers: read the view, decide, write, and schedule the next pass.

Nothing is decided here. The calls of a set are made one verb after another, concurrently with those
of other sets, so that a slow call delays only its own set. A failed call is retried after a delay
that doubles; until then nothing more is decided about its set, so that a quota that refuses pods
causes an occasional request and not a storm.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Final

from windtunnel.core.loop import INFINITY
from windtunnel.core.random import Streams, fresh_seed
from windtunnel.gangs.commands import Command, Create, CreatePod, Emit, SetCondition
from windtunnel.gangs.controllers.controller import Controller
from windtunnel.gangs.controllers.expectations import key_of
from windtunnel.gangs.kubernetes.calls import (
    ACCEPTED,
    CREATE,
    DELETE,
    EVENT,
    ApiCall,
    Translator,
    api_names,
    batches_of,
    invalid_call,
)
from windtunnel.gangs.kubernetes.refusals import Refusals
from windtunnel.gangs.objects import POD, SET, WARNING, Owned
from windtunnel.gangs.statuses import Condition, ObjectEvent
from windtunnel.live.kubernetes.events import EventRecorder, Subject
from windtunnel.live.kubernetes.pacing import Backoff
from windtunnel.live.operate.mirror import RESOURCES, InvalidSet, Mirror
from windtunnel.live.operate.orphans import MissingNodes, Orphans
from windtunnel.live.operate.takeover import Takeover
from windtunnel.live.operate.writer import CallAnswer, CallOutcome, Versions, Writer
from windtunnel.live.system import unwrapped

if TYPE_CHECKING:
    from windtunnel.live.operate.placement import Placement

gangs_log: Final = logging.getLogger("windtunnel.operator.gangs")

STALE_S: Final = 0.05
"""Time until the watch has probably shown what a stale call had missed."""
BACKOFFS: Final = {
    CallOutcome.STALE.value: (STALE_S, 2.0, 5.0),
    CallOutcome.FAILED.value: (0.25, 20.0, 120.0),
    CallOutcome.NO_ANSWER.value: (0.25, 4.0, 120.0),
    "broken": (0.25, 2.0, 10.0),
}
"""By the `pace` of an answer: the first delay, the longest, and how long without a failure until
the delay is the first again."""
FEW: Final = 5
MOST_AT_ONCE: Final = 32
"""Sets with more than a few calls at once: a lost pod must not wait for a thousand new sets."""
LONGEST_NOTE: Final = 900
MOST_SAID: Final = 10_000

Beside = tuple[Callable[[], Awaitable[None]], Callable[[], float]]
Decided = Callable[[float, Sequence[ApiCall]], None]


class GangOperator:
    """Drives a controller on a mirror's view."""

    def __init__(
        self,
        mirror: Mirror,
        writer: Writer | None,
        recorder: EventRecorder | None,
        now_s: Callable[[], float],
        init_image: str,
        placement: Placement | None = None,
    ) -> None:
        self._mirror: Final = mirror
        self._placement: Final = placement
        self._view: Final = mirror.view
        self._writer: Final = writer
        """None in a dry run, in which nothing is written."""
        self._recorder: Final = recorder
        self._now_s: Final = now_s
        self.controller: Final = Controller(mirror.view)
        self._translator: Final = Translator(mirror.view, mirror.raw, init_image)
        self._retries: Final[list[tuple[float, int, Command]]] = []
        self._numbers: Final = count()
        self._stream: Final = Streams(fresh_seed())["operator.retries"]
        self._backoffs: Final[dict[tuple[str, str], Backoff]] = {}
        """By set; the success of another call says nothing about a failed one."""
        self._made: Final[list[Command]] = []
        """Creates since the last pass; the caches have shown their objects."""
        self._placed: Final[dict[str, Command]] = {}
        """Commands for placed gangs still to be written: the latest for each object."""
        self._queues: Final[dict[str, deque[list[ApiCall]]]] = {}
        """By set with calls in progress: the calls that follow."""
        self._calling: asyncio.TaskGroup | None = None
        self._room: Final = asyncio.Semaphore(MOST_AT_ONCE)
        self._is_away = False
        """Whether it was reported that the API server does not answer."""
        self._refusals: Final = Refusals(mirror.view, now_s())
        self._orphans: Final = None if writer is None else Orphans(mirror, writer.client, now_s)
        self._nodes: Final = None if writer is None else MissingNodes(mirror, writer.client, now_s)
        self._takeover: Final = Takeover(mirror, writer, self._taken, self._not_taken)
        self._take_again_s = INFINITY
        self._report_again_s = INFINITY
        self._reported: Final[dict[str, tuple[str, str]]] = {}
        self.on_decision: Decided | None = None
        self.on_failure: Callable[[ApiCall, CallAnswer], None] | None = None
        self.passes = 0
        self.decided = 0

    def close(self) -> None:
        self.controller.close()
        if self._placement is not None:
            self._placement.close()

    async def run(self) -> None:
        """Runs until cancelled, or until the lease is lost."""
        with unwrapped():
            async with asyncio.TaskGroup() as self._calling:
                tasks: list[Beside] = [
                    (self._report_invalid_sets, lambda: self._report_again_s),
                    (self._take_over, lambda: self._take_again_s),
                ]
                if self._orphans is not None:
                    tasks.append((self._sweep, self._orphans.next_s))
                if self._nodes is not None:
                    tasks.append((self._nodes.check, self._nodes.next_s))
                if self._placement is not None:
                    tasks.append((self._place, self._placement.next_s))
                looked = [asyncio.Event() for _ in tasks]
                for (work, next_s), event in zip(tasks, looked, strict=True):
                    self._calling.create_task(self._beside(work, next_s, event))
                while True:
                    self._mirror.woken.clear()
                    self.step()
                    for event in looked:
                        event.set()
                    await self._wait()

    async def _beside(
        self,
        work: Callable[[], Awaitable[None]],
        next_s: Callable[[], float],
        looked: asyncio.Event,
    ) -> None:
        """Runs a background task after each pass and whenever it is due, at its own pace."""
        while True:
            await _until(looked, next_s() - self._now_s())
            looked.clear()
            await work()

    async def _place(self) -> None:
        assert self._placement is not None
        commands = await self._placement.step()
        self._placed.update((key_of(one), one) for one in commands if not isinstance(one, Emit))
        if commands:
            self._do(commands, self._now_s())
            self._mirror.woken.set()  # after the next pass there may be more to place

    async def _take_over(self) -> None:
        self._take_again_s = INFINITY
        pace = await self._takeover.step()
        if pace:
            self._take_again_s = self._now_s() + self._delay_s("", pace, self._now_s())

    def _taken(self, calls: Sequence[ApiCall]) -> None:
        self.decided += len(calls)
        if self.on_decision is not None:
            self.on_decision(self._now_s(), calls)

    def _not_taken(self, call: ApiCall, answer: CallAnswer) -> None:
        if self.on_failure is not None:
            self.on_failure(call, answer)

    async def _sweep(self) -> None:
        assert self._orphans is not None
        self._decide(await self._orphans.calls(), self._now_s())

    async def _wait(self) -> None:
        retry_s = self._retries[0][0] if self._retries else INFINITY
        until_s = min(self.controller.next_s(), retry_s, self._refusals.next_s())
        await _until(self._mirror.woken, until_s - self._now_s())

    def step(self) -> None:
        """Runs one pass; its calls may still be in progress when it returns."""
        now_s = self._now_s()
        again: list[Command] = []
        while self._retries and self._retries[0][0] <= now_s:
            command = heappop(self._retries)[2]
            if self._placed.get(key_of(command)) is command:
                again.append(command)
            else:
                self.controller.refused(command)
        for command in self._made:
            if self._view.find(command.kind, command.name) is None:
                self.controller.refused(command)  # it was created and is gone again
        self._made.clear()
        commands = list(self.controller.reconcile(now_s))
        commands += self._accepted(now_s)
        commands += self._refusals.conditions(now_s)
        self.passes += 1
        self._report_strays()
        self._do([*commands, *again], now_s)

    def _do(self, commands: Sequence[Command], now_s: float) -> None:
        calls, void = self._translator.calls(commands)
        for command in void:
            self._forget(command)
            self._retry(command, now_s + STALE_S)
        self._decide(calls, now_s)

    def _decide(self, calls: list[ApiCall], now_s: float) -> None:
        if not calls:
            return
        self.decided += len(calls)
        if self.on_decision is not None:
            self.on_decision(now_s, calls)
        if self._writer is None:
            return
        assert self._calling is not None
        by_set: dict[str, list[ApiCall]] = {}
        for call in calls:
            by_set.setdefault(self._set_of(call), []).append(call)
        for owner, found in by_set.items():
            queue = self._queues.get(owner)
            if queue is not None:
                queue.append(found)
            else:
                self._queues[owner] = deque([found])
                self._calling.create_task(self._call(owner))

    async def _call(self, owner: str) -> None:
        """Makes the calls of a set, pass by pass."""
        queue = self._queues[owner]
        while queue:
            calls = queue.popleft()
            if len(calls) <= FEW:
                await self._carry_out(calls)
            else:
                async with self._room:
                    await self._carry_out(calls)
            self._mirror.woken.set()
        del self._queues[owner]

    def _retry(self, command: Command, due_s: float) -> None:
        heappush(self._retries, (due_s, next(self._numbers), command))

    async def _carry_out(self, calls: list[ApiCall]) -> None:
        """Makes the calls of a batch at once, batch after batch, in the order of the commands."""
        assert self._writer is not None
        versions: Versions = {}
        delays: dict[str, float] = {}
        kept: set[str] = set()
        for batch in batches_of(calls):
            if batch[0].verb == EVENT:
                self._emit(batch)
                continue
            tried = [call for call in batch if not kept or not self._is_put_off(call, kept)]
            made = [self._writer.carry_out(call, versions) for call in tried]
            answers = await asyncio.gather(*made)
            for call, answer in zip(tried, answers, strict=True):
                pod = self._view.pods.get(call.name) if call.kind == POD else None
                if (
                    call.verb == DELETE
                    and answer.outcome is not CallOutcome.DONE
                    and pod is not None
                ):
                    kept.add(pod.clique)
                self._follow(call, answer, delays)

    def _is_put_off(self, call: ApiCall, kept: set[str]) -> bool:
        """Whether to postpone a pod's creation: the pods of a clique are not created while those
        that they replace could not be deleted, since two would have the same index."""
        command = call.commands[0] if call.commands else None
        if not isinstance(command, CreatePod) or command.clique.name not in kept:
            return False
        self._retry(command, self._now_s() + STALE_S)
        return True

    def _follow(self, call: ApiCall, answer: CallAnswer, delays: dict[str, float]) -> None:
        """Processes an answer. `delays`, by pace: a set's failures in one pass count as one."""
        owner = self._set_of(call)
        if answer.outcome is CallOutcome.DONE:
            self._is_away = False
            self._refusals.done(owner, (call.verb, call.kind, call.name), self._now_s())
            self._made.extend(one for one in call.commands if isinstance(one, Create))
            for one in call.commands:
                self._forget(one)
            return
        now_s = self._now_s()
        if answer.pace not in delays:
            delays[answer.pace] = self._delay_s(owner, answer.pace, now_s)
        if answer.outcome is CallOutcome.FAILED:
            self._report_failure(call, answer, owner)
        elif answer.outcome is CallOutcome.NO_ANSWER and not self._is_away:
            self._is_away = True  # reported once for all such calls
            if self.on_failure is not None:
                self.on_failure(call, answer)
        for command in call.commands:
            self._retry(command, now_s + delays[answer.pace])

    def _forget(self, command: Command) -> None:
        if self._placed and self._placed.get(key_of(command)) is command:
            del self._placed[key_of(command)]

    def _delay_s(self, owner: str, pace: str, now_s: float) -> float:
        key = (owner, pace)
        if key not in self._backoffs:
            if len(self._backoffs) >= MOST_SAID:
                self._backoffs.clear()
            self._backoffs[key] = Backoff(self._stream, *BACKOFFS[pace])
        return self._backoffs[key].failed(now_s)

    def _set_of(self, call: ApiCall) -> str:
        command = call.commands[0] if call.commands else None
        if isinstance(command, CreatePod):
            return command.clique.set_name
        thing = self._view.find(call.kind, call.name) or getattr(command, "thing", None)
        return thing.set_name if isinstance(thing, Owned) else call.name

    # Conditions and events.

    def _emit(self, calls: list[ApiCall]) -> None:
        for call in calls:
            event = call.commands[0].event  # type: ignore[attr-defined]
            if event.key not in self._view.events:
                self._view.emit(event)
                self._record(event)

    def _record(self, event: ObjectEvent) -> None:
        thing = self._view.find(event.kind, event.name)
        if self._recorder is None or thing is None:
            return
        namespace, name = api_names(event.name)
        version = RESOURCES[event.kind].api_version
        about = Subject(version, event.kind, namespace, name, thing.uid)
        self._recorder.record(about, event.level, event.reason, "Reconcile", event.message)

    def _report_failure(self, call: ApiCall, answer: CallAnswer, owner: str) -> None:
        """Reports each failure once, however often the call is retried."""
        key = (call.verb, call.kind, call.name)
        if not self._refusals.failed(owner, key, answer.says, self._now_s()):
            return
        if self.on_failure is not None:
            self.on_failure(call, answer)
        verb = "Create" if call.verb == CREATE else call.verb.capitalize()
        what = f"{call.verb} {call.kind} {call.name}: {answer.says}"[:LONGEST_NOTE]
        event = f"Failed{verb}/{owner}/{answer.says[:80]}"
        self._record(ObjectEvent(event, WARNING, SET, owner, f"Failed{verb}", what, self._now_s()))

    def _report_strays(self) -> None:
        for pod in self._mirror.strays:
            what = f"Pod {pod.name} has lost its owner: it keeps running, and another replaces it"
            key, now_s = f"StrayPod/{pod.uid}", self._now_s()
            self._record(ObjectEvent(key, WARNING, SET, pod.set_name, "StrayPod", what, now_s))
        self._mirror.strays.clear()

    def _accepted(self, now_s: float) -> Iterator[Command]:
        """Removes the `Accepted` condition from sets that have become valid again."""
        for name in list(self._reported):
            if name in self._mirror.invalid:
                continue
            del self._reported[name]
            owner = self._view.sets.get(name)
            if owner is not None and ACCEPTED in owner.conditions:
                yield SetCondition(owner, Condition(ACCEPTED, "", "", "", now_s))

    async def _report_invalid_sets(self) -> None:
        """Writes the fault as a condition to each invalid set; admission had not validated it."""
        self._report_again_s = INFINITY
        for name, found in list(self._mirror.invalid.items()):
            said = (found.received.metadata.uid, found.says)
            if self._reported.get(name) == said or self._writer is None:
                continue
            if self._reported.get(name) != ("", ""):
                self._report_invalid(name, found)
            self._reported[name] = said
            call = invalid_call(name, found.received, found.says, self._now_s())
            answer = await self._writer.carry_out(call, {})
            if answer.outcome is not CallOutcome.DONE:
                self._reported[name] = ("", "")
                delay_s = self._delay_s(name, answer.pace, self._now_s())
                self._report_again_s = min(self._report_again_s, self._now_s() + delay_s)

    def _report_invalid(self, name: str, found: InvalidSet) -> None:
        gangs_log.warning("%s %s: %s", SET, name, found.says)
        if self._recorder is not None:
            namespace, plain = api_names(name)
            about = Subject(
                RESOURCES[SET].api_version, SET, namespace, plain, found.received.metadata.uid
            )
            self._recorder.record(about, WARNING, "Invalid", "Reconcile", found.says[:LONGEST_NOTE])


async def _until(event: asyncio.Event, delay_s: float) -> None:
    """Waits for an event, for this long at most."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(None if delay_s == INFINITY else max(delay_s, 0.0)):
            await event.wait()
