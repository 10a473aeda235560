"""The thread front: blocks, is woken by whoever frees capacity, and keeps off event loops."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.admission.invariants import REQUEST_INVARIANTS
from windtunnel.admission.reasons import Domain, Outcome, RequestDenial
from windtunnel.admission.requests.admission import RequestAdmission
from windtunnel.admission.requests.endpoint import RequestAsk
from windtunnel.admission.requests.limiter import AimdSettings
from windtunnel.core.invariants import InvariantChecker
from windtunnel.core.random import Streams
from windtunnel.live.admission.leases import Refused
from windtunnel.live.admission.thread_limiter import ThreadLimiter

ASK = RequestAsk("p", "m", Domain.CHAT)
PATIENCE_S = 60.0


def limiter(cap: int) -> ThreadLimiter:
    settings = AimdSettings(startup_ramp_s=0.0, jitter_fraction=0.0)
    admission = RequestAdmission("run", Streams(1), settings)
    admission.register("p", "m", "alias", cap, 0.0)
    return ThreadLimiter(admission)


def assert_at_rest(front: ThreadLimiter) -> None:
    assert front.admission.ledger.active == {}
    assert front.admission.waiting == 0
    assert front._sleepers == {}
    assert front._timekeeper == ""
    InvariantChecker(REQUEST_INVARIANTS).run(front.admission, "at rest")


def wait_for_waiters(front: ThreadLimiter, number: int) -> None:
    """Returns when so many sleep; the lock is theirs until they do."""
    while True:
        with front.lock:
            if front.admission.waiting == number:
                return


@pytest.mark.parametrize("callers", [1, 3, 24])
def test_no_more_than_the_cap_are_in_the_block_and_all_get_there(callers: int) -> None:
    front, inside, most = limiter(3), 0, 0
    counting = threading.Lock()

    def call(number: int) -> int:
        nonlocal inside, most
        for _ in range(20):
            with front.acquire(ASK, timeout=PATIENCE_S if number % 2 else None):
                with counting:
                    inside += 1
                    most = max(most, inside)
                with counting:
                    inside -= 1
        return number

    with ThreadPoolExecutor(callers) as pool:
        assert sorted(pool.map(call, range(callers))) == list(range(callers))
    assert 1 <= most <= min(3, callers)
    assert_at_rest(front)


def test_a_release_wakes_the_waiter_and_leaving_by_an_error_releases() -> None:
    front, entered = limiter(1), threading.Event()

    def wait() -> None:
        with front.acquire(ASK) as held:
            entered.set()
            assert held.waited_s >= 0.0

    def fail() -> None:
        with front.acquire(ASK):
            waiter.start()
            wait_for_waiters(front, 1)
            raise KeyError

    waiter = threading.Thread(target=wait)
    with pytest.raises(KeyError):
        fail()
    assert entered.wait(PATIENCE_S)
    waiter.join(PATIENCE_S)
    assert_at_rest(front)


def test_a_wait_ends_at_its_timeout_whoever_keeps_the_time() -> None:
    """Those who would wait for ever keep time for those who would not, in every order."""
    front = limiter(1)
    refused: list[RequestDenial] = []

    def give_up(timeout: float) -> None:
        with pytest.raises(Refused) as error, front.acquire(ASK, timeout=timeout):
            raise AssertionError("nothing was free")
        refused.append(error.value.denied.reason)

    def wait() -> None:
        with front.acquire(ASK):
            pass

    patient = [threading.Thread(target=wait) for _ in range(4)]
    hasty = [threading.Thread(target=give_up, args=(0.01 * n,)) for n in (3, 1, 2, 4)]
    with front.acquire(ASK):
        for one, other in zip(patient, hasty, strict=True):
            one.start()
            other.start()
        for thread in hasty:
            thread.join(PATIENCE_S)
        assert refused == [RequestDenial.QUEUE_TIMEOUT] * 4
        wait_for_waiters(front, 4)
    for thread in patient:
        thread.join(PATIENCE_S)
    assert_at_rest(front)


def test_the_end_of_a_cooldown_wakes_who_waits() -> None:
    front = limiter(4)
    for _ in range(3):
        with front.acquire(ASK) as held:
            held.ended(Outcome.RATE_LIMITED, retry_after_s=0.02)
    with front.acquire(ASK, timeout=PATIENCE_S) as held:
        assert 0.0 < held.waited_s < PATIENCE_S / 2
    assert_at_rest(front)


def test_an_interrupted_wait_gives_up_its_place() -> None:
    front = limiter(1)

    class Interrupted(threading.Condition):
        def wait(self, timeout: float | None = None) -> bool:
            raise KeyboardInterrupt

    with front.acquire(ASK), pytest.MonkeyPatch.context() as patch:
        patch.setattr("windtunnel.live.admission.thread_limiter.threading.Condition", Interrupted)
        with pytest.raises(KeyboardInterrupt), front.acquire(ASK, timeout=PATIENCE_S):
            pass
        assert front.admission.waiting == 0
    assert_at_rest(front)


def test_shutting_down_wakes_and_refuses() -> None:
    front = limiter(1)
    refused = threading.Event()

    def wait() -> None:
        with pytest.raises(Refused, match="shut down"), front.acquire(ASK):
            pass
        refused.set()

    waiter = threading.Thread(target=wait)
    with front.acquire(ASK):
        waiter.start()
        wait_for_waiters(front, 1)
        front.shut_down()
        assert refused.wait(PATIENCE_S)
    with pytest.raises(Refused, match="shut down"), front.acquire(ASK):
        pass
    waiter.join(PATIENCE_S)
    assert_at_rest(front)


def test_it_refuses_to_run_on_an_event_loop_with_a_sentence() -> None:
    front = limiter(1)

    async def main() -> None:
        with pytest.raises(RuntimeError, match="which would stand still"), front.acquire(ASK):
            pass

    asyncio.run(main())
    assert_at_rest(front)
