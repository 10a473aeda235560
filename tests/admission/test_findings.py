"""Faults that others' admission layers had, by their names; none may appear here."""

import json
import logging
from pathlib import Path

import pytest

from tests.admission.requests.desk import Desk
from tests.admission.tasks.admitting import admit_next
from tests.core.sinks import MemorySink
from windtunnel.admission import events
from windtunnel.admission.events import Correlation, EventKind, EventReporter
from windtunnel.admission.leases import TaskLease
from windtunnel.admission.queues.groups import GroupShare
from windtunnel.admission.reasons import Domain, Outcome, RequestDenial
from windtunnel.admission.requests.admission import RequestAdmission
from windtunnel.admission.requests.endpoint import QueueTicket, RequestAsk, RequestLease
from windtunnel.admission.requests.headers import retry_delay_s
from windtunnel.admission.requests.limiter import NEVER, RequestLimiter
from windtunnel.admission.tasks.admission import LLM_WAIT, SUBMISSION, TaskAdmission
from windtunnel.admission.tasks.metadata import (
    SchedulingMetadata,
    WorkKind,
    resolve,
    task_limits,
)
from windtunnel.admission.tasks.pressure import Pressure, PressureAdvisory
from windtunnel.core.random import Stream, Streams
from windtunnel.core.telemetry import Event, Telemetry


class CountingLimiter(RequestLimiter):
    """A fixed limit that counts how often it is asked."""

    asked = 0

    def room(self, in_flight: int, now: float) -> int:
        CountingLimiter.asked += 1
        return self.limit - in_flight


def counted(key: str, maximum: int, now: float) -> RequestLimiter:
    return CountingLimiter(maximum)


def test_waiting_polls_every_50_ms() -> None:
    """Waiters parked behind a held lease ask for no wake-up at all."""
    desk = Desk(cap=1)
    lease = desk.take()
    tickets = [desk.wait() for _ in range(500)]
    assert desk.admission.next_wake_s() == NEVER
    assert desk.sleep_until(1000.0) == []
    assert desk.end(lease) == tickets[:1]


def test_enqueue_and_admit_scan_all_waiters() -> None:
    """A release costs the same number of questions whether 10 wait or 1,000."""
    costs = []
    for waiters in (10, 1000):
        admission = RequestAdmission("run", Streams(1), make_limiter=counted)
        admission.register("p", "m", "a", 1, 0.0)
        ask = Desk().ask()
        lease = admission.acquire(ask, 0.0)
        assert isinstance(lease, RequestLease)
        for _ in range(waiters):
            assert isinstance(admission.acquire(ask, 0.0), QueueTicket)
        before = CountingLimiter.asked
        admission.release(lease, Outcome.SUCCESS, 1.0)
        costs.append(CountingLimiter.asked - before)
    assert costs[0] == costs[1] <= 4


def test_request_queue_heap_never_shrinks() -> None:
    """What is remembered does not grow with the number of calls ever made."""
    desk = Desk(cap=1)
    lease = desk.take()
    for number in range(2000):
        desk.now = float(number)
        ticket = desk.wait(desk.ask(group=f"g{number % 300}"))
        assert desk.end(lease) == [ticket]
        assert ticket.lease is not None
        lease = ticket.lease
    endpoint = lease.domain.endpoint
    assert len(endpoint.queue.groups) <= 2
    assert len(endpoint.specs) <= 40
    assert len(desk.admission._timers) == 0
    assert len(desk.admission.ledger.active) == 1


def test_sink_exceptions_swallowed(caplog: pytest.LogCaptureFixture) -> None:
    """A failing sink is counted and logged once with its traceback, and changes nothing."""

    class Broken(MemorySink):
        def record(self, event: Event) -> None:
            raise RuntimeError("a slip")

    telemetry = Telemetry(Broken())
    desk = Desk(cap=1, reporter=EventReporter(telemetry))
    with caplog.at_level(logging.ERROR):
        lease = desk.take()
        ticket = desk.wait()
        assert desk.end(lease) == [ticket]
    assert telemetry.lost_events > 3
    assert len([record for record in caplog.records if record.exc_info]) == 1


def test_non_json_diagnostics() -> None:
    """Every event is plain data with text keys, whatever happened."""
    for event in eventful_run():
        plain = json.loads(json.dumps({"data": dict(event.data), "reason": event.reason}))
        assert plain == {"data": dict(event.data), "reason": event.reason}
        assert type(event.reason) is str
        assert event.kind in set(EventKind)
        assert type(event.kind) is str


def eventful_run() -> list[Event]:
    sink = MemorySink()
    reporter = EventReporter(Telemetry(sink), run="run-1")
    desk = Desk(cap=2, reporter=reporter)
    lease, other = desk.take(), desk.take()
    desk.wait(desk.ask(group="g"))
    cancelled, late = desk.wait(), desk.wait(deadline_s=1.0)
    desk.admission.cancel(cancelled, 0.0)
    desk.sleep_until(1.0)
    assert late.denied is not None
    desk.end(lease)
    desk.admission.release(lease, Outcome.SUCCESS, 1.0)
    desk.end(other, Outcome.RATE_LIMITED, retry_after_s=2.0)
    desk.admission.acquire(desk.ask(model="nobody"), 1.0)
    tasks = TaskAdmission("run-1", {SUBMISSION: 1}, reporter=reporter)
    lane = tasks.demand({SUBMISSION: 1})
    for task in ("t1", "t2", "t3"):
        tasks.enqueue(task, GroupShare("g"), lane, 1.0)
    held = admit_next(tasks, 1.0)
    assert held is not None
    tasks.discard("t3", 1.0)
    tasks.release(held, 2.0)
    tasks.release(held, 2.0)
    return sink.events


def test_release_telemetry_carries_outcome_and_correlation() -> None:
    told = {event.kind: event for event in eventful_run()}
    released = told["request_lease_released"]
    assert released.reason == "rate_limited"
    assert released.data["run"] == "run-1"
    assert released.data["lease"] == 2
    assert told["request_release_refused"].reason == "duplicate"
    assert told["task_lease_acquired"].data["task"] == "t1"
    assert told["task_lease_acquired"].data["group"] == "g"


def test_every_event_of_a_call_names_run_group_task_attempt_and_lease() -> None:
    """Whatever becomes of a wait, one reader can follow it from the task to the provider."""
    sink = MemorySink()
    desk = Desk(cap=1, reporter=EventReporter(Telemetry(sink), run="run-1"))
    ask = RequestAsk("p", "m", Domain.CHAT, correlation=Correlation("column-a", "7/a", "7/a#2"))
    lease = desk.take(ask)
    served, cancelled = desk.wait(ask), desk.wait(ask)
    late = desk.wait(ask, deadline_s=1.0)
    desk.admission.cancel(cancelled, 0.0)
    desk.sleep_until(1.0)
    assert late.denied is not None
    desk.refusal(ask)
    desk.end(lease, Outcome.RATE_LIMITED, retry_after_s=1.0)
    desk.sleep_until(3.0)
    assert served.lease is not None
    desk.end(served.lease)
    desk.admission.release(lease, Outcome.SUCCESS, 3.0)
    who = {"run": "run-1", "group": "column-a", "task": "7/a", "attempt": "7/a#2"}
    of_calls = [event for event in sink.events if "limit" in event.data or event.data.get("lease")]
    kinds = {event.kind for event in of_calls if who.items() <= event.data.items()}
    assert kinds >= {
        "request_lease_acquired",
        "request_wait_started",
        "request_wait_completed",
        "request_wait_timeout",
        "request_wait_cancelled",
        "request_rate_limited",
        "request_lease_released",
    }
    leased = [event for event in sink.events if event.kind.startswith("request_lease_")]
    assert [event.data["lease"] for event in leased] == [1, 1, 2, 2]
    denied = next(event for event in sink.events if event.kind == "request_denied")
    assert who.items() <= denied.data.items()


def test_wait_started_is_delivered_after_wait_completed() -> None:
    sink = MemorySink()
    desk = Desk(cap=1, reporter=EventReporter(Telemetry(sink)))
    lease = desk.take()
    desk.wait()
    desk.now = 3.0
    desk.end(lease)
    kinds = [event.kind for event in sink.events]
    order = [
        "request_registered",
        "request_lease_acquired",
        "request_queue_formed",
        "request_wait_started",
        "request_lease_released",
        "request_lease_acquired",
        "request_wait_completed",
        "request_queue_drained",
    ]
    assert kinds == order
    assert [event.time for event in sink.events] == sorted(event.time for event in sink.events)
    assert sink.events[-2].data["waited_s"] == 3.0


def test_probes_and_full_recovery_are_told_once() -> None:
    """The recovery of a soft ceiling fired on every further increase."""
    sink = MemorySink()
    desk = Desk(cap=8, reporter=EventReporter(Telemetry(sink)))
    desk.end(desk.take())
    leases = [desk.take() for _ in range(8)]
    for pause_s in (0.0, 0.25, 1.25):
        desk.now += pause_s
        desk.end(leases.pop() if pause_s == 0.0 else desk.take(), Outcome.RATE_LIMITED)
    for _ in range(20):
        desk.wait()
    for second in range(3, 200):
        ended, leases = leases, []
        for lease in ended:
            leases += [ticket.lease for ticket in desk.end(lease) if ticket.lease]
            desk.wait()
        leases += [ticket.lease for ticket in desk.sleep_until(float(second)) if ticket.lease]
    kinds = [event.kind for event in sink.events]
    assert kinds.count("request_limit_decreased") == 1
    assert kinds.count("request_limit_increased") == 1
    assert kinds.count("request_fully_recovered") == 1


def test_the_recovery_of_a_soft_ceiling_is_told_once() -> None:
    """Timeouts in a row cut the limit below the level that was met; it grows back to that."""
    sink = MemorySink()
    desk = Desk(cap=8, reporter=EventReporter(Telemetry(sink)))
    leases = [desk.take() for _ in range(8)]
    for lease in leases[5:]:
        desk.end(lease, Outcome.PROVIDER_TIMEOUT)
    leases[5:] = [desk.take()]
    for _ in range(20):
        desk.wait()
    for second in range(1, 200):
        ended, leases = leases, []
        for lease in ended:
            leases += [ticket.lease for ticket in desk.end(lease) if ticket.lease]
            desk.wait()
        leases += [ticket.lease for ticket in desk.sleep_until(float(second)) if ticket.lease]
    kinds = [event.kind for event in sink.events]
    assert kinds.count("request_limit_decreased") == 1
    assert kinds.count("request_soft_ceiling_recovered") == 1
    assert kinds.count("request_fully_recovered") == 1
    assert kinds.index("request_soft_ceiling_recovered") < kinds.index("request_fully_recovered")


def test_kinds_are_declared_and_never_emitted() -> None:
    """Every word of the vocabulary is used by someone."""
    declared = Path(events.__file__ or "")
    others = "".join(
        path.read_text(encoding="utf-8")
        for path in sorted(declared.parent.rglob("*.py"))
        if path != declared
    )
    unused = [kind for kind in EventKind if f"EventKind.{kind.name}" not in others]
    assert unused == []


class CountingTelemetry(Telemetry):
    def __init__(self, sink: MemorySink) -> None:
        super().__init__(sink)
        self.emitted = 0

    def emit(self, event: Event) -> None:
        self.emitted += 1
        super().emit(event)


class Choosy(MemorySink):
    def wants(self, kind: str) -> bool:
        return kind == "request_rate_limited"


def test_request_side_events_are_built_with_no_sink() -> None:
    """Only wanted kinds are built; with no sink, none is."""
    assert not EventReporter().wants_any
    assert not EventReporter(Telemetry()).wants_any
    sink = Choosy()
    telemetry = CountingTelemetry(sink)
    desk = Desk(cap=1, reporter=EventReporter(telemetry))
    desk.end(desk.take())
    assert telemetry.emitted == 0
    desk.end(desk.take(), Outcome.RATE_LIMITED)
    assert (telemetry.emitted, len(sink.events)) == (1, 1)


def test_task_side_events_are_built_with_no_sink() -> None:
    """A scheduler's controllers build nothing for kinds that nobody wants either."""

    class OnlyDenials(MemorySink):
        def wants(self, kind: str) -> bool:
            return kind == EventKind.TASK_ADMISSION_DENIED

    telemetry = CountingTelemetry(OnlyDenials())
    tasks = TaskAdmission("run", {SUBMISSION: 1}, reporter=EventReporter(telemetry))
    lane = tasks.demand({SUBMISSION: 1})
    for task in ("t1", "t2"):
        tasks.enqueue(task, GroupShare("g"), lane, 0.0)
    selection = tasks.select()
    assert selection is not None
    lease = tasks.acquire(selection, 0.0)
    assert isinstance(lease, TaskLease)
    assert telemetry.emitted == 0
    assert not isinstance(tasks.acquire(selection, 0.0), TaskLease)
    assert telemetry.emitted == 1


def test_a_closed_event_loop_makes_release_fail_and_leaks_a_lease() -> None:
    """Handing on runs none of the waiter's code; a waiter that is gone is cancelled later."""
    desk = Desk(cap=1)
    lease = desk.take()
    gone, alive = desk.wait(), desk.wait()

    class Dead:
        def __getattr__(self, name: str) -> object:
            raise RuntimeError("Event loop is closed")

    gone.user = Dead()
    assert desk.end(lease) == [gone]
    desk.admission.cancel(gone, 1.0)
    assert desk.admission.take_resolved() == [alive]
    assert len(desk.admission.ledger.active) == 1


def test_an_unregistered_model_is_reported_as_a_timeout() -> None:
    desk = Desk()
    assert desk.refusal(desk.ask(model="nobody")) is RequestDenial.UNREGISTERED
    assert desk.admission.next_wake_s() == NEVER


def test_no_jitter_on_retries() -> None:
    stream = Stream(1, "retries")
    for attempt, full_s in enumerate([2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]):
        delays = {retry_delay_s(attempt, stream) for _ in range(50)}
        assert len(delays) == 50
        assert full_s / 2 <= min(delays) <= max(delays) <= full_s


def test_raising_a_cap_at_runtime_never_raises_the_limit() -> None:
    desk = Desk(cap=2)
    lease = desk.take()
    desk.admission.register("p", "m", "alias", 9, 0.0)
    assert lease.domain.limiter.limit == 9


def test_the_shutdown_reason_is_unreachable() -> None:
    desk = Desk()
    desk.admission.shut_down(0.0)
    assert desk.refusal() is RequestDenial.SHUTDOWN


def test_duplicate_task_ids() -> None:
    tasks = TaskAdmission("run", {SUBMISSION: 9})
    lane = tasks.demand({SUBMISSION: 1})
    assert tasks.enqueue("t", GroupShare("a"), lane, 0.0)
    assert not tasks.enqueue("t", GroupShare("b"), lane, 0.0)
    assert admit_next(tasks) is not None
    assert admit_next(tasks) is None


def test_admission_timeouts_drop_rows() -> None:
    """No more tasks of a model are started than its endpoint serves, so none waits there."""
    metadata = SchedulingMetadata(WorkKind.MODEL, ("model", "p", "m", "chat"), weight=3)
    resolved = [(metadata, resolve(metadata, [column], 100)) for column in ("a", "b")]
    limits = task_limits(1024, resolved)
    assert limits == {SUBMISSION: 1024, LLM_WAIT: 1024, "request:p/m": 3}
    tasks, desk = TaskAdmission("run", limits), Desk(cap=3)
    for number in range(20):
        _, one = resolved[number % 2]
        tasks.enqueue(str(number), one.group, tasks.demand(one.amounts), 0.0)
    while admit_next(tasks) is not None:
        desk.take()
    assert len(tasks.ledger.active) == 3


def test_request_pressure_domain_metadata() -> None:
    """Pressure on chat is no pressure on embeddings of the same model."""
    desk = Desk(cap=4)
    tasks = TaskAdmission("run", {SUBMISSION: 9, LLM_WAIT: 9})
    advisory = PressureAdvisory(tasks, desk.admission)
    chat, embedding = tasks.demand({SUBMISSION: 1}), tasks.demand({SUBMISSION: 1, LLM_WAIT: 1})
    advisory.watch(chat, "p", "m", Domain.CHAT)
    advisory.watch(embedding, "p", "m", Domain.EMBEDDING)
    desk.take(desk.ask(domain=Domain.EMBEDDING))
    desk.press(9.0)
    assert advisory.pressure(chat, 1.0) is Pressure.COOLDOWN
    assert advisory.pressure(embedding, 1.0) is None


def test_1024_callers_on_a_cap_of_32_take_their_ideal_time() -> None:
    """10 ms of service each is 0.32 s in all; the wait took 44.9 s elsewhere."""
    desk = Desk(cap=32, waiters_max=2000)
    running = [desk.take() for _ in range(32)]
    for _ in range(992):
        desk.wait()
    rounds = 0
    while running:
        rounds += 1
        desk.now = 0.01 * rounds
        ended, running = running, []
        for lease in ended:
            running += [ticket.lease for ticket in desk.end(lease) if ticket.lease]
    assert rounds == 32
