"""Leader election as a state machine: at most one leader whatever is late, lost or repeated."""

import asyncio
import gc
import logging
from unittest.mock import MagicMock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.core.random import Streams
from windtunnel.live.kubernetes.errors import NotLeader
from windtunnel.live.kubernetes.leader import (
    Election,
    LeaderElector,
    LeaseObject,
    LeaseSpec,
    Timing,
    WaitFor,
    Write,
)
from windtunnel.live.kubernetes.resources import Meta

TIMING = Timing(lease_s=15.0, renew_deadline_s=10.0, retry_s=2.0)
DATE_S = 1_800_000_000.0


def election(name: str) -> Election:
    return Election(name, TIMING, Streams(1)[name])


class Server:
    """A Lease with optimistic concurrency, as the API server keeps it."""

    def __init__(self) -> None:
        self.lease: LeaseObject | None = None
        self.version = 0

    def write(self, write: Write) -> LeaseObject | None:
        """The new Lease; None is a conflict."""
        held = None if self.lease is None else self.lease.metadata.resource_version
        if held != write.version:
            return None
        self.version += 1
        meta = Meta(name="lease", resource_version=str(self.version))
        self.lease = LeaseObject(metadata=meta, spec=write.spec)
        return self.lease


def lead(candidate: Election, server: Server, now_s: float) -> Write | WaitFor:
    """One round without delay."""
    candidate.read(server.lease, now_s)
    decided = candidate.decide(now_s, DATE_S)
    if isinstance(decided, Write):
        answer = server.write(decided)
        assert answer is not None
        candidate.wrote(answer, now_s)
    return decided


def test_the_first_candidate_leads_and_the_second_waits_for_the_whole_lease() -> None:
    server, first, second = Server(), election("a"), election("b")
    assert lead(first, server, 100.0) == Write(server.lease.spec if server.lease else None, None)  # type: ignore[arg-type]
    assert first.leads(109.9)
    assert not first.leads(110.0)
    assert first.epoch == 0
    # The second's clock is another one: only differences count.
    assert isinstance(lead(second, server, 5.0), WaitFor)
    assert isinstance(lead(second, server, 19.9), WaitFor)
    assert isinstance(lead(second, server, 20.0), Write)
    assert (second.epoch, second.holder) == (1, "b")
    first.read(server.lease, 115.0)
    assert not first.leads(115.0)


def test_a_renewal_counts_from_when_it_was_sent_and_bounds_writes_by_the_lease() -> None:
    server, only = Server(), election("a")
    lead(only, server, 0.0)
    only.read(server.lease, 5.0)
    renewal = only.decide(5.0, DATE_S)
    assert isinstance(renewal, Write)
    answer = server.write(renewal)
    assert answer is not None
    only.wrote(answer, 5.0)  # and answered at 9.0
    assert only.write_time_s(9.0) == 5.0 + 15.0 - 9.0
    assert only.write_time_s(15.0) == 0.0
    assert only.epoch == 0, "a renewal is no new term"


def test_a_leader_renews_without_a_read_while_it_is_sure_of_the_lease() -> None:
    server, only = Server(), election("a")
    assert only.renewal(0.0, DATE_S) is None
    lead(only, server, 0.0)
    assert only.wait_s(0.5) == 1.5, "the next is due two seconds after this one was sent"
    renewal = only.renewal(5.0, DATE_S)
    assert renewal is not None
    assert renewal.version == "1"
    only.failed()  # its answer is lost
    assert server.write(renewal) is not None
    assert only.renewal(6.0, DATE_S) is None
    assert isinstance(lead(only, server, 6.0), Write)
    assert only.epoch == 0
    assert only.renewal(16.0, DATE_S) is None, "after the deadline it has to be elected again"


def test_leading_again_after_the_deadline_is_a_new_term() -> None:
    server, only = Server(), election("a")
    lead(only, server, 0.0)
    lead(only, server, 11.0)
    assert only.epoch == 1


def test_every_renewal_starts_the_time_of_the_others_again() -> None:
    server, first, second = Server(), election("a"), election("b")
    for now_s in range(0, 100, 5):
        assert isinstance(lead(first, server, float(now_s)), Write)
        assert isinstance(lead(second, server, now_s + 1.0), WaitFor)
    assert isinstance(lead(second, server, 110.9), WaitFor)
    assert isinstance(lead(second, server, 111.0), Write)


def test_a_released_lease_is_taken_at_once() -> None:
    server, first, second = Server(), election("a"), election("b")
    lead(first, server, 0.0)
    assert isinstance(lead(second, server, 1.0), WaitFor)
    given_up = first.release(DATE_S)
    assert given_up is not None
    assert first.write_time_s(1.0) == 0.0
    server.write(given_up)
    assert isinstance(lead(second, server, 1.1), Write)
    assert second.epoch == 1
    assert first.release(DATE_S) is None


def test_a_lease_that_people_wrote_has_defaults() -> None:
    server, only = Server(), election("a")
    server.write(Write(LeaseSpec(holder_identity="somebody"), None))
    assert isinstance(lead(only, server, 0.0), WaitFor)
    assert isinstance(lead(only, server, 14.9), WaitFor)
    assert isinstance(lead(only, server, 15.0), Write)


class Candidate:
    """Takes one phase of a round at a time: read, send, execute at the server, answer."""

    def __init__(self, name: str, server: Server, speed: float, offset_s: float) -> None:
        self.election = election(name)
        self._server = server
        self._speed = speed
        self._offset_s = offset_s
        self._read: list[LeaseObject | None] = []
        self._sent: tuple[Write, float] | None = None
        self._answer: LeaseObject | None = None

    def now_s(self, real_s: float) -> float:
        return self._offset_s + self._speed * real_s

    def step(self, real_s: float, *, lost: bool) -> None:
        now_s = self.now_s(real_s)
        if self._answer is not None and self._sent is not None:
            if lost:
                self.election.failed()
            else:
                self.election.wrote(self._answer, self._sent[1])
            self._answer = self._sent = None
        elif self._sent is not None:
            self._answer = self._server.write(self._sent[0])
            if self._answer is None:
                self.election.failed()
                self._sent = None
        elif self._read:
            self.election.read(self._read.pop(), now_s)
            decided = self.election.decide(now_s, DATE_S)
            if isinstance(decided, Write) and not lost:
                self._sent = decided, now_s
        elif renewal := self.election.renewal(now_s, DATE_S):
            self._sent = renewal, now_s
        else:
            self._read = [self._server.lease]


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.floats(0, 2), st.integers(0, 3)), min_size=60, max_size=200
    ),
    st.floats(1.0, 1.2),
)
def test_two_never_lead_at_once_and_epochs_only_grow(
    steps: list[tuple[int, float, int]], fastest: float
) -> None:
    server = Server()
    candidates = [
        Candidate(f"c{number}", server, speed, 1000.0 * number)
        for number, speed in enumerate((1.0, fastest, 1.1))
    ]
    real_s = 0.0
    epoch = -1
    for number, later_s, luck in steps:
        real_s += later_s
        candidates[number].step(real_s, lost=luck == 0)
        leading = [one for one in candidates if one.election.leads(one.now_s(real_s))]
        assert len(leading) <= 1
        for one in leading:
            assert one.election.epoch >= epoch
            epoch = one.election.epoch


def test_the_epoch_grows_where_the_lease_is_deleted() -> None:
    server, first, second = Server(), election("a"), election("b")
    for now_s in (100.0, 200.0, 300.0):
        lead(first, server, now_s)
    assert first.epoch == 2
    lead(second, server, 5.0)
    server.lease = None
    lead(second, server, 6.0)
    assert second.epoch == 3


def test_a_write_that_is_refused_while_a_term_ends_is_no_error() -> None:
    told: list[object] = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise NotLeader("not sent")

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, what: told.append(what))
        elector = LeaderElector(MagicMock(), "default", "lease", "me")
        elector.lost.set()
        await elector._term(work)
        gc.collect()

    asyncio.run(main())
    assert told == []


def test_a_process_in_waiting_says_so(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async def work() -> None:
        pass

    async def main() -> None:
        elector = LeaderElector(MagicMock(), "default", "lease", "me")
        leading = asyncio.create_task(elector.lead(work, logging.getLogger("test")))
        await asyncio.sleep(0)
        assert [one.getMessage() for one in caplog.records] == [
            "lease: waiting until no other process holds the Lease"
        ]
        leading.cancel()
        await asyncio.gather(leading, return_exceptions=True)

    asyncio.run(main())
