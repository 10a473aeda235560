"""Leader election among several processes by a Lease, with fencing to make it safe.

`Election` decides from the Lease as read and the time, without I/O; `LeaderElector` reads and
writes the Lease. Only this process's monotonic clock is used: a candidate takes a lease that has
not *changed* for its whole duration, so clocks may be wrong as long as they run at the same speed.

A lease by itself stops no writer. Therefore:

- A leader counts its time from *before* it sent the renewal that succeeded. At the renew deadline
  it stops: `write_time_s` is 0, `client.fenced(elector)` sends nothing more, and `lost` is set.
- A write sent before that may take no longer than the lease lasts, since another process may take
  over then.
- `epoch` is the Lease's `leaseTransitions`. It grows with every term, even if the same process
  leads again, so that the writes of different terms can be told apart.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final, NamedTuple, assert_never

import msgspec

from windtunnel.core.clock import monotonic_s, unix_s
from windtunnel.core.random import Stream, Streams, fresh_seed
from windtunnel.live.kubernetes.client import Client
from windtunnel.live.kubernetes.errors import Conflict, KubernetesError, NotFound, NotLeader
from windtunnel.live.kubernetes.resources import LEASES, Object, micro_time
from windtunnel.live.system import unwrapped


class Timing(NamedTuple):
    """Lease duration and retry interval as in all Kubernetes controllers.

    Their renew deadline of 10 s counts from a response and can outlast the lease; ours counts from
    when the renewal was sent, and is longer so that responses may take 5 s.
    """

    lease_s: float = 15.0
    """How long a lease must be unchanged before another takes it; whole seconds in the Lease."""
    renew_deadline_s: float = 12.0
    """How long a leader continues after sending its last successful renewal."""
    retry_s: float = 2.0

    @property
    def request_s(self) -> float:
        """Time limit of one request: a lost renewal leaves time for another."""
        return self.renew_deadline_s / 2

    def check(self) -> None:
        assert self.retry_s < self.renew_deadline_s < self.lease_s


class LeaseSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The leader, the start of its term, and the number of changes of leader."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class LeaseObject(Object, frozen=True, kw_only=True):
    spec: LeaseSpec = LeaseSpec()


class WaitFor(NamedTuple):
    """Wait this long, then read the Lease again."""

    seconds: float


class Write(NamedTuple):
    """Write the Lease: create it, or update the version that was read."""

    spec: LeaseSpec
    version: str | None
    """None to create the Lease."""


class Election:
    """Decides a candidate's next step, in monotonic seconds; dates in the Lease are informative."""

    def __init__(self, identity: str, timing: Timing, stream: Stream) -> None:
        timing.check()
        self.identity: Final = identity
        self.timing: Final = timing
        self._stream = stream
        self._seen: LeaseObject | None = None
        self._seen_s = 0.0
        self._renewed_s: float | None = None
        """When the renewal that holds this term was sent; None if not leading."""
        self._epoch = -1
        self._highest = -1
        """The highest epoch ever seen: a Lease created after a deletion continues from there."""
        self._sure = False
        """Whether the Lease is, as far as we know, as we wrote it."""

    @property
    def epoch(self) -> int:
        """The epoch of this term, or of the last one; -1 before the first."""
        return self._epoch

    @property
    def holder(self) -> str:
        """The known leader; empty if there is none."""
        return (self._seen.spec.holder_identity or "") if self._seen is not None else ""

    def leads(self, now_s: float) -> bool:
        return (
            self._renewed_s is not None and now_s < self._renewed_s + self.timing.renew_deadline_s
        )

    def write_time_s(self, now_s: float) -> float:
        """How long a write that starts now may take; 0 if none may start."""
        if self._renewed_s is None or not self.leads(now_s):
            return 0.0
        return self._renewed_s + self.timing.lease_s - now_s

    def deadline_s(self) -> float | None:
        """When this term ends unless it is renewed."""
        return None if self._renewed_s is None else self._renewed_s + self.timing.renew_deadline_s

    def read(self, lease: LeaseObject | None, now_s: float) -> None:
        """Takes over the Lease as read, or None if it does not exist."""
        before = self._seen
        version = lease.metadata.resource_version if lease is not None else ""
        if before is None or lease is None or before.metadata.resource_version != version:
            self._seen_s = now_s
        self._seen = lease
        if lease is not None:
            self._highest = max(self._highest, lease.spec.lease_transitions or 0)
        if lease is not None and lease.spec.holder_identity != self.identity:
            self._renewed_s = None  # another process took it, or we released it

    def renewal(self, now_s: float, unix_s: float) -> Write | None:
        """The write that renews without a read, in half the time; None if a read is needed."""
        decided = self.decide(now_s, unix_s) if self._sure and self.leads(now_s) else None
        return decided if isinstance(decided, Write) else None

    def decide(self, now_s: float, unix_s: float) -> Write | WaitFor:
        """Decides the next step after a read."""
        if self._renewed_s is not None and not self.leads(now_s):
            self._renewed_s = None
        date = micro_time(unix_s)
        seen = self._seen
        if seen is None:
            return Write(self._spec(date, date, self._highest + 1), None)
        transitions = seen.spec.lease_transitions or 0
        version = seen.metadata.resource_version
        if self._renewed_s is not None:
            return Write(self._spec(seen.spec.acquire_time or date, date, transitions), version)
        wait_s = self._taken_for_s(seen.spec, now_s)
        if wait_s > 0:
            return WaitFor(min(wait_s, self._retry_s()))
        return Write(self._spec(date, date, transitions + 1), version)

    def _taken_for_s(self, spec: LeaseSpec, now_s: float) -> float:
        """How long another process's lease must still be respected; 0 if it has none."""
        if not spec.holder_identity or spec.holder_identity == self.identity:
            return 0.0
        lease_s = float(spec.lease_duration_seconds or self.timing.lease_s)
        return self._seen_s + lease_s - now_s

    def _spec(self, acquired: str, renewed: str, transitions: int) -> LeaseSpec:
        return LeaseSpec(
            holder_identity=self.identity,
            lease_duration_seconds=max(int(self.timing.lease_s), 1),
            acquire_time=acquired,
            renew_time=renewed,
            lease_transitions=transitions,
        )

    def wrote(self, lease: LeaseObject, sent_s: float) -> None:
        """Records that the write sent at `sent_s` succeeded."""
        self._seen = lease
        self._seen_s = sent_s
        self._renewed_s = sent_s
        self._epoch = lease.spec.lease_transitions or 0
        self._highest = max(self._highest, self._epoch)
        self._sure = True

    def failed(self) -> None:
        """Records that a write failed or had no response: the Lease must be read."""
        self._sure = False

    def wait_s(self, now_s: float) -> float:
        """Seconds from a write or failure to the next step; a renewal counts from its sending."""
        if self._renewed_s is None or not self.leads(now_s):
            return self._retry_s()
        if self._sure:
            return max(self._renewed_s + self.timing.retry_s - now_s, 0.0)
        return self.timing.retry_s / 4

    def _retry_s(self) -> float:
        return self.timing.retry_s * self._stream.between(1.0, 1.2)

    def release(self, unix_s: float) -> Write | None:
        """Ends the term, once all its writes have ended; returns the write, None without a term."""
        seen, renewed_s, self._renewed_s = self._seen, self._renewed_s, None
        if seen is None or renewed_s is None:
            return None
        date = micro_time(unix_s)
        spec = LeaseSpec(
            holder_identity="",
            lease_duration_seconds=1,
            acquire_time=date,
            renew_time=date,
            lease_transitions=self._epoch,
        )
        return Write(spec, seen.metadata.resource_version)


class LeaderElector:
    """Takes part in the election for a Lease until cancelled, then releases the Lease.

    Cancel it last: a write still under way would overlap with the next leader's. `lead` runs work
    in every term; `led` and `lost` change with every term. Give it to `Client.fenced` for all
    writes that only the leader may do.
    """

    def __init__(
        self,
        client: Client,
        namespace: str,
        name: str,
        identity: str,
        timing: Timing = Timing(),  # noqa: B008 - a value
    ) -> None:
        self.election: Final = Election(identity, timing, Streams(fresh_seed())["leader"])
        self.led: Final = asyncio.Event()
        self.lost: Final = asyncio.Event()
        self.lost.set()
        self.last_error: KubernetesError | None = None
        self._client = client
        self._namespace = namespace
        self._name = name

    def write_time_s(self, now_s: float) -> float:
        return self.election.write_time_s(now_s)

    @property
    def epoch(self) -> int:
        return self.election.epoch

    async def run(self) -> None:
        watchdog = asyncio.create_task(self._watch_deadline())
        try:
            while True:
                await asyncio.sleep(await self._round())
        finally:
            watchdog.cancel()
            await self._release()

    async def lead(
        self, work: Callable[[], Coroutine[Any, Any, None]], log: logging.Logger
    ) -> None:
        """Runs `work` in each term, until cancelled or the work fails. `run` runs beside it."""
        while True:
            if not self.led.is_set():
                log.info("%s: waiting until no other process holds the Lease", self._name)
            await self.led.wait()
            log.info("%s: leading, term %d", self._name, self.epoch)
            await self._term(work)
            log.warning("%s: no longer the leader", self._name)

    async def _term(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Runs one term; all of its work has ended when this returns."""
        working = asyncio.create_task(work())
        lost = asyncio.create_task(self.lost.wait())
        try:
            await asyncio.wait([working, lost], return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                with unwrapped():
                    working.result()
        except NotLeader:
            await lost
        finally:
            for task in (lost, working):
                task.cancel()
            await asyncio.wait([lost, working])
            ended = None if working.cancelled() else working.exception()
        if ended is not None and not isinstance(ended, NotLeader):
            raise ended  # it failed while being stopped

    async def _round(self) -> float:
        """Reads or writes the Lease once; returns the seconds until the next time."""
        election = self.election
        try:
            wait_s = await self._look()
            self.last_error = None
        except (KubernetesError, TimeoutError) as error:
            election.failed()
            late = KubernetesError("no answer in time", where=f"Lease {self._name}")
            self.last_error = error if isinstance(error, KubernetesError) else late
            wait_s = election.wait_s(monotonic_s())
        self._set_leading()
        return wait_s

    async def _look(self) -> float:
        election = self.election
        decided: Write | WaitFor | None = election.renewal(monotonic_s(), unix_s())
        if decided is None:
            lease = await self._read()
            election.read(lease, monotonic_s())
            decided = election.decide(monotonic_s(), unix_s())
        match decided:
            case WaitFor(seconds):
                return seconds
            case Write():
                sent_s = monotonic_s()
                try:
                    election.wrote(await self._write(decided), sent_s)
                except Conflict:  # another process was faster, or our own write lost its response
                    election.failed()
                    return 0.0
                return election.wait_s(monotonic_s())
            case _:
                assert_never(decided)

    async def _read(self) -> LeaseObject | None:
        try:
            async with asyncio.timeout(self.election.timing.request_s):
                return await self._client.get(
                    LEASES, self._namespace, self._name, LeaseObject, urgent=True
                )
        except NotFound:
            return None

    async def _write(self, write: Write) -> LeaseObject:
        meta: dict[str, Any] = {"namespace": self._namespace, "name": self._name}
        body = {"metadata": meta, "spec": msgspec.to_builtins(write.spec)}
        async with asyncio.timeout(self.election.timing.request_s):
            if write.version is None:
                return await self._client.create(LEASES, body, LeaseObject, urgent=True)
            meta["resourceVersion"] = write.version
            return await self._client.replace(LEASES, body, LeaseObject, urgent=True)

    def _set_leading(self) -> None:
        if self.election.leads(monotonic_s()):
            self.lost.clear()
            self.led.set()
        else:
            self.led.clear()
            self.lost.set()

    async def _watch_deadline(self) -> None:
        """Sets `lost` at the renew deadline, even while a request of `_round` hangs."""
        while True:
            await self.led.wait()
            deadline_s = self.election.deadline_s()
            if deadline_s is not None:
                await asyncio.sleep(max(deadline_s - monotonic_s(), 0.0))
            self._set_leading()
            await asyncio.sleep(0)

    async def _release(self) -> None:
        write = self.election.release(unix_s())
        self._set_leading()
        if write is None:
            return
        try:
            async with asyncio.timeout(self.election.timing.retry_s):
                await self._write(write)
        except (KubernetesError, TimeoutError):
            return  # the lease expires by itself
