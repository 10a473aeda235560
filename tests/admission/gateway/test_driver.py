"""The driver contract: facts go in at any time, decisions come out in order, nothing calls back."""

import asyncio
import math

import pytest

from tests.admission.gateway.fleet import flow_settings, signals
from tests.live.virtual import run
from windtunnel.admission.gateway.bands import Weights
from windtunnel.admission.gateway.detectors import Concurrency
from windtunnel.admission.gateway.driver import GatewayDriver
from windtunnel.admission.gateway.flow_control import FlowControl
from windtunnel.admission.gateway.policies import TokenBucket
from windtunnel.admission.gateway.tickets import ADMIT, EVICT, KIND_NAMES, REJECT, RequestId, Ticket


def flow(room: int = 1, *, ttl_s: float = math.inf, eviction: bool = False) -> GatewayDriver:
    settings = flow_settings("priority", 1000, 1000, ttl_s, 1.0, shedding=True, eviction=eviction)
    return GatewayDriver(
        FlowControl(Concurrency(room), settings, Weights({}, ["t"]), []), signals(0)
    )


def ticket(request_id: RequestId, priority: int = 0) -> Ticket:
    return Ticket(request_id, 0, priority, 10, math.inf)


def taken(driver: GatewayDriver) -> str:
    words: list[str] = []
    while (decision := driver.take()) is not None:
        words.append(f"{KIND_NAMES[decision.kind]} {decision.ticket.id} {decision.reason}")
    assert driver.check() is None
    return ", ".join(words)


def test_ids_are_whatever_the_driver_has() -> None:
    driver = flow()
    driver.arrive(ticket("cmpl-7f"), 0.0)
    driver.arrive(ticket("cmpl-80"), 0.0)
    assert taken(driver) == "admit cmpl-7f room, queue cmpl-80 saturated"
    assert (driver.known, driver.queued_peak) == (2, 1)
    driver.ended("cmpl-7f", 1.0)
    assert taken(driver) == "admit cmpl-80 room"
    assert driver.known == 1


def test_facts_that_are_reported_meanwhile_are_decided_on_and_taken_last() -> None:
    driver = flow(2)
    for request_id in range(4):
        driver.arrive(ticket(request_id), 0.0)
    first = driver.take()
    assert first is not None
    assert (first.kind, first.ticket.id) == (ADMIT, 0)
    driver.ended(0, 0.0)
    assert taken(driver) == "admit 1 room, queue 2 saturated, queue 3 saturated, admit 2 room"


def test_a_request_that_has_ended_is_not_evicted_any_more() -> None:
    driver = flow(eviction=True)
    driver.arrive(ticket("batch", -1), 0.0)
    assert taken(driver) == "admit batch room"
    driver.arrive(ticket("chat"), 1.0)
    driver.ended("batch", 1.0)
    assert taken(driver) == "queue chat saturated, admit chat room"
    assert driver.counts[EVICT] == {}


def test_an_evicted_request_ends_as_any_other() -> None:
    driver = flow(eviction=True)
    driver.arrive(ticket("batch", -1), 0.0)
    driver.arrive(ticket("chat"), 1.0)
    assert taken(driver).endswith("evict batch made-way")
    driver.ended("batch", 1.0)
    assert taken(driver) == "admit chat room"


def test_a_rejected_request_is_forgotten_and_its_id_may_come_again() -> None:
    driver = GatewayDriver(TokenBucket(15.0, 1.0), signals(0))
    for now_s, expected in ((0.0, "admit a"), (1.0, "reject b"), (2.0, "reject b")):
        driver.arrive(ticket(expected[-1]), now_s)
        assert taken(driver).startswith(expected)
    driver.ended("b", 3.0)
    assert (driver.known, driver.counts[REJECT]) == (1, {"bucket-short": 2})


def test_an_id_that_is_known_cannot_arrive_again() -> None:
    driver = flow()
    driver.arrive(ticket("a"), 0.0)
    with pytest.raises(AssertionError):
        driver.arrive(ticket("a"), 0.0)


def test_a_client_that_gives_up_leaves_the_queue() -> None:
    driver = flow(ttl_s=5.0)
    driver.arrive(ticket("a"), 0.0)
    driver.arrive(ticket("b"), 0.0)
    taken(driver)
    assert driver.next_s == 5.0
    driver.leave("b", 1.0)
    assert (driver.known, driver.next_s, taken(driver)) == (1, math.inf, "")


def test_books_that_do_not_agree_are_found_out() -> None:
    driver = flow()
    driver.arrive(ticket("a"), 0.0)
    driver.gateway.in_flight += 1
    assert driver.check() == "the gateway has 0 queued and 2 in flight of 1 known"


class AsyncGateway:
    """Awaits the decision about each request, as an HTTP server would."""

    def __init__(self, driver: GatewayDriver) -> None:
        self.driver = driver
        self.loop = asyncio.get_running_loop()
        self.answers: dict[RequestId, asyncio.Future[str]] = {}
        self.timer: asyncio.TimerHandle | None = None

    async def serve(self, request_id: str, seconds: float) -> str:
        answer: asyncio.Future[str] = self.loop.create_future()
        self.answers[request_id] = answer
        self.driver.arrive(ticket(request_id), self.loop.time())
        self.carry_out()
        said = await answer
        if said == "admit":
            await asyncio.sleep(seconds)
            self.driver.ended(request_id, self.loop.time())
            self.carry_out()
        return said

    def carry_out(self) -> None:
        while (decision := self.driver.take()) is not None:
            if decision.kind in (ADMIT, REJECT):
                self.answers.pop(decision.ticket.id).set_result(KIND_NAMES[decision.kind])
        if self.timer is not None:
            self.timer.cancel()
        if self.driver.next_s != math.inf:
            self.timer = self.loop.call_at(self.driver.next_s, self.tick)

    def tick(self) -> None:
        self.driver.tick(self.loop.time())
        self.carry_out()


def test_an_asyncio_server_drives_it() -> None:
    async def serve_all() -> list[str]:
        gateway = AsyncGateway(flow(2, ttl_s=0.1))
        calls = [gateway.serve(f"r{number}", 0.06) for number in range(8)]
        said = await asyncio.gather(*calls)
        assert gateway.driver.known == 0
        assert gateway.driver.check() is None
        return said

    assert run(serve_all()) == ["admit"] * 4 + ["reject"] * 4
