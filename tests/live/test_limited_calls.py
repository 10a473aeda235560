"""Calls that are limited and retried in one line, on asyncio and on threads."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.live.virtual import run
from windtunnel.admission.reasons import Outcome
from windtunnel.admission.requests.admission import RequestAdmission
from windtunnel.admission.requests.endpoint import RequestAsk
from windtunnel.admission.requests.limiter import AimdSettings
from windtunnel.core.random import Streams
from windtunnel.live.admission.asyncio_limiter import AsyncLimiter, call_all
from windtunnel.live.admission.leases import judge
from windtunnel.live.admission.thread_limiter import ThreadLimiter

ASKS = (RequestAsk("p", "m"), RequestAsk("q", "m"))


class Reply:
    """As clients have it."""

    def __init__(self, status: int, retry_after: str = "") -> None:
        self.status = status
        self.headers = {"retry-after": retry_after} if retry_after else {}


class Refusal(Exception):
    """As the openai package raises it."""

    def __init__(self, status: int) -> None:
        super().__init__(f"{status}")
        self.status_code = status


def admission() -> RequestAdmission:
    return RequestAdmission("run", Streams(1), AimdSettings(startup_ramp_s=0.0))


@pytest.mark.parametrize(
    ("said", "outcome", "may_pass"),
    [
        (Reply(200), Outcome.SUCCESS, False),
        (Reply(400), Outcome.SUCCESS, False),
        (Reply(429), Outcome.RATE_LIMITED, True),
        (Reply(503), Outcome.PROVIDER_OVERLOADED, True),
        (Reply(500), Outcome.PROVIDER_FAILURE, True),
        (Refusal(429), Outcome.RATE_LIMITED, True),
        (TimeoutError(), Outcome.PROVIDER_TIMEOUT, True),
        (ConnectionResetError(), Outcome.PROVIDER_FAILURE, True),
        (ValueError(), Outcome.UNEXPECTED, False),
        ("text", Outcome.SUCCESS, False),
    ],
)
def test_what_a_reply_or_an_error_means(said: object, outcome: Outcome, may_pass: bool) -> None:
    verdict = judge(said)
    assert (verdict.outcome, verdict.may_pass) == (outcome, may_pass)


def test_one_line_limits_and_retries() -> None:
    seen: dict[int, int] = {}
    most = at_once = 0

    async def send(item: int) -> str:
        nonlocal most, at_once
        seen[item] = seen.get(item, 0) + 1
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0.1)
        at_once -= 1
        if item % 10 == 0 and seen[item] < 3:
            raise Refusal(429)
        return f"said {item}"

    answers = run(call_all(send, range(50), at_once=8))
    assert answers == [f"said {item}" for item in range(50)]
    assert 4 <= most <= 8
    assert {item for item, times in seen.items() if times > 1} == {0, 10, 20, 30, 40}


def test_a_call_waits_for_its_retry_after_and_gives_up_in_the_end() -> None:
    times: list[float] = []

    async def main() -> None:
        limiter = AsyncLimiter(admission())
        limiter.register("p", "m", "alias", 4)

        async def send() -> Reply:
            times.append(limiter.now())
            return Reply(429, "7")

        reply = await limiter.call(send, ASKS[0], tries=3)
        assert reply.status == 429

    run(main())
    assert times == pytest.approx([0.0, 7.0, 14.0], abs=0.3)


def test_a_refusal_by_chance_is_retried_soon() -> None:
    """It waited for 1 to 9 s, and so did the job that it was the last of."""
    tries = 0

    async def send(_: int) -> Reply:
        nonlocal tries
        tries += 1
        await asyncio.sleep(0.1)
        return Reply(429 if tries % 33 == 0 else 200)

    async def main() -> float:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        replies = await call_all(send, range(500), at_once=32)
        assert {reply.status for reply in replies} == {200}
        return loop.time() - began_s

    assert run(main()) <= 2.2


def test_threads_register_and_ask_several_endpoints() -> None:
    front = ThreadLimiter(admission())
    front.register("p", "m", "alias", 1)
    front.register("q", "m", "alias", 2)
    inside, most, used, counting = 0, 0, set[str](), threading.Lock()

    def work(_: int) -> None:
        nonlocal inside, most
        with front.acquire(*ASKS, timeout=60.0) as held:
            assert held.lease is not None
            with counting:
                inside += 1
                most = max(most, inside)
                used.add(held.lease.ask.provider)
            threading.Event().wait(0.002)
            with counting:
                inside -= 1

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(60)))
    assert (most, used) == (3, {"p", "q"})
    assert front.admission.waiting == 0
    assert front.admission.ledger.active == {}


def test_a_thread_call_is_tried_again() -> None:
    front = ThreadLimiter(admission())
    front.register("p", "m", "alias", 1)
    replies = [Reply(429, "0.01"), Reply(200)]
    assert front.call(lambda: replies.pop(0), ASKS[0]).status == 200
    with pytest.raises(ValueError, match="a slip"):
        front.call(_slip, ASKS[0])


def _slip() -> Reply:
    raise ValueError("a slip")
