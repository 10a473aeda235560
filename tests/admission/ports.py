"""Drives all of admission through its ports, with nothing imported but `core` and `settings`.

Run as a program by `test_ports.py`, which sees what that has imported.
"""

import math
import sys

from windtunnel.admission.gateway.bands import Weights
from windtunnel.admission.gateway.budgets import TenantBudgets
from windtunnel.admission.gateway.detectors import Concurrency, Detector, Utilization
from windtunnel.admission.gateway.driver import GatewayDriver
from windtunnel.admission.gateway.flow_control import ORDERS, FlowControl
from windtunnel.admission.gateway.gateway import Gateway
from windtunnel.admission.gateway.policies import Always, SaturationShed, TierShed, TokenBucket
from windtunnel.admission.gateway.settings import FlowControlSettings
from windtunnel.admission.gateway.tickets import ADMIT, EVICT, QUEUE, REJECT, Ticket
from windtunnel.admission.leases import TaskLease
from windtunnel.admission.queues.groups import GroupShare
from windtunnel.admission.reasons import Domain, Outcome, ReleaseResult
from windtunnel.admission.requests.admission import RequestAdmission
from windtunnel.admission.requests.endpoint import RequestAsk, RequestLease
from windtunnel.admission.requests.limiter import AimdSettings
from windtunnel.admission.tasks.admission import LLM_WAIT, SUBMISSION, TaskAdmission
from windtunnel.admission.tasks.sharing import BoundedBorrow, StrictFair
from windtunnel.core.random import Streams
from windtunnel.core.signals import Signals

TENANTS = ["a", "b"]
FORBIDDEN = ("windtunnel.twin", "windtunnel.engine", "windtunnel.workload", "windtunnel.live")


def flow_control(order: str, detector: Detector) -> Gateway:
    settings = FlowControlSettings.read(
        {
            "policy": "flow-control",
            "order": order,
            "max_waiting": 6,
            "max_waiting_per_band": 5,
            "ttl": "2s",
            "limit": 0.5,
            "eviction": order == "priority",
        }
    )
    return FlowControl(detector, settings, Weights({"a": 2.0}, TENANTS), [1, 0, -1])


def gateways() -> list[Gateway]:
    """Every policy, flow control in every order and with every detector, and budgets around it."""
    detectors: list[Detector] = [Detector(), Concurrency(1), Utilization(1.0, 0.9, 0.1)]
    found: list[Gateway] = [Always(), TokenBucket(40.0, 5.0), TierShed(1, 0), SaturationShed(1, 1)]
    found += [flow_control(order, detector) for order in ORDERS for detector in detectors]
    budgets = TenantBudgets(
        flow_control("priority", Concurrency(1)), {"a": 0.5}, TENANTS, reject_all=True
    )
    return [*found, budgets]


def drive_gateway(gateway: Gateway) -> list[int]:
    """Twelve requests on two servers; how many decisions of each kind there were."""
    signals = Signals([2, 2], 0.0)
    driver = GatewayDriver(gateway, signals)
    running: list[tuple[str, int]] = []

    def carry_out(now_s: float) -> None:
        while (decision := driver.take()) is not None:
            assert decision.reason
            name = str(decision.ticket.id)
            if decision.kind == ADMIT:
                server = signals.in_flight.index(min(signals.in_flight))
                signals.sent(server)
                running.append((name, server))
            elif decision.kind == EVICT:
                end(name, now_s)
        signals.waiting[:] = [max(0, count - 1) for count in signals.in_flight]
        signals.running[:] = [min(1, count) for count in signals.in_flight]
        signals.refreshed(now_s)

    def end(name: str, now_s: float) -> None:
        server = next(server for other, server in running if other == name)
        running.remove((name, server))
        signals.ended(server)
        driver.ended(name, now_s)

    for number in range(12):
        now_s = 0.1 * number
        ticket = Ticket(f"r-{number}", number % 2, number % 3 - 1, 10, now_s + number % 5)
        driver.arrive(ticket, now_s)
        carry_out(now_s)
    while running or driver.gateway.queued:
        now_s = min(now_s + 0.5, max(now_s, driver.next_s))
        if running:
            end(running[0][0], now_s)
        driver.tick(now_s)
        carry_out(now_s)
        assert driver.check() is None
    assert driver.known == 0
    return [sum(counts.values()) for counts in driver.counts]


def drive_gateways() -> None:
    seen = [0, 0, 0, 0]
    for gateway in gateways():
        counts = drive_gateway(gateway)
        rejected_or_served = counts[ADMIT] + counts[REJECT]
        assert rejected_or_served == 12, (gateway, counts)
        seen = [one + other for one, other in zip(seen, counts, strict=True)]
    assert all(seen[kind] > 0 for kind in (ADMIT, QUEUE, REJECT, EVICT)), seen


def admit_next(tasks: TaskAdmission) -> TaskLease | None:
    selection = tasks.select()
    return None if selection is None else tasks.admit(selection, 0.0)


def drive_tasks() -> None:
    for policy in (StrictFair(), BoundedBorrow()):
        tasks = TaskAdmission("run", {SUBMISSION: 4, LLM_WAIT: 2}, policy)
        lane = tasks.demand({SUBMISSION: 1, LLM_WAIT: 1})
        for number in range(6):
            group = GroupShare("ab"[number % 2], admitted_limit=2)
            assert tasks.enqueue(f"t-{number}", group, lane, 0.0)
        done = 0
        while (lease := admit_next(tasks)) is not None:
            other = admit_next(tasks)
            if other is not None:
                assert len(tasks.queue) == 0 or tasks.explain_blocked()
                assert tasks.release(other, 1.0) is ReleaseResult.RELEASED
                done += 1
            assert tasks.release(lease, 1.0) is ReleaseResult.RELEASED
            assert tasks.release(lease, 1.0) is not ReleaseResult.RELEASED
            done += 1
        assert done == 6


def drive_requests() -> None:
    requests = RequestAdmission("run", Streams(1), AimdSettings(startup_ramp_s=0.0))
    requests.register("provider", "model", "alias", 2, 0.0)
    ask = RequestAsk("provider", "model", Domain.CHAT)
    first, second = (requests.acquire(ask, 0.0) for _ in range(2))
    assert isinstance(first, RequestLease)
    assert isinstance(second, RequestLease)
    waiting = requests.acquire(ask, 0.0)
    assert not isinstance(waiting, RequestLease)
    requests.release(first, Outcome.SUCCESS, 1.0)
    (served,) = requests.take_resolved()
    assert served is waiting
    assert served.lease is not None
    requests.release(served.lease, Outcome.SUCCESS, 2.0)
    requests.release(second, Outcome.SUCCESS, 2.0)
    for _ in range(3):
        refused = requests.acquire(ask, 2.0)
        assert isinstance(refused, RequestLease)
        requests.release(refused, Outcome.RATE_LIMITED, 2.0, retry_after_s=3.0)
    later = requests.acquire(ask, 2.0)
    assert not isinstance(later, RequestLease)
    now_s = 2.0
    while (wake_s := requests.next_wake_s()) != math.inf:
        now_s = wake_s
        requests.advance(now_s)
    assert requests.take_resolved() == [later]
    assert now_s >= 5.0


if __name__ == "__main__":
    drive_gateways()
    drive_tasks()
    drive_requests()
    sys.exit(" ".join(name for name in sys.modules if name.startswith(FORBIDDEN)) or None)
