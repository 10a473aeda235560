"""What a reflector does next, after each way in which a list or a watch can end."""

import pytest

from windtunnel.core.random import Streams
from windtunnel.live.kubernetes.errors import KubernetesError, NoAnswer, error_of
from windtunnel.live.kubernetes.reflector import (
    LONGEST_WATCH_S,
    SHORTEST_WATCH_S,
    ListNow,
    ListWatch,
    WatchFrom,
)

GONE = error_of("GET /pods", 410, b'{"message": "too old resource version", "reason": "Expired"}')
FUTURE = error_of(
    "GET /pods",
    504,
    b'{"code": 504, "reason": "Timeout", "details": {"retryAfterSeconds": 1, "causes":'
    b' [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]}}',
)
SHED = error_of("GET /pods", 429, b"", "7")


def watching(version: str = "5") -> ListWatch:
    steps = ListWatch(Streams(1)["reflector"])
    assert steps.next() == ListNow(0.0)
    steps.listed(version)
    first = steps.next()
    assert isinstance(first, WatchFrom)
    assert (first.version, first.delay_s) == (version, 0.0)
    assert SHORTEST_WATCH_S <= first.timeout_s <= LONGEST_WATCH_S
    steps.began(100.0)
    return steps


def test_a_watch_that_ends_goes_on_from_the_last_version() -> None:
    steps = watching()
    steps.received("9")
    steps.ended(100.1)
    after = steps.next()
    assert isinstance(after, WatchFrom)
    assert (after.version, after.delay_s) == ("9", 0.0)


def test_two_silent_watches_are_followed_by_a_list() -> None:
    steps = watching()
    steps.ended(400.0)
    assert isinstance(steps.next(), WatchFrom)
    steps.began(400.0)
    steps.ended(700.0)
    assert steps.next() == ListNow(0.0)


def test_a_watch_that_ends_at_once_backs_off() -> None:
    steps = watching()
    delays = []
    now_s = 100.0
    for _ in range(12):
        steps.began(now_s)
        steps.ended(now_s)
        delays.append(steps.next().delay_s)
        now_s += delays[-1]
    assert 0.25 <= delays[0] < 0.4
    assert 20.0 <= delays[-1] <= 30.0


@pytest.mark.parametrize("error", [NoAnswer("cut"), error_of("GET /pods", 500, b"")])
def test_a_broken_watch_goes_on_after_a_backoff(error: KubernetesError) -> None:
    steps = watching()
    steps.received("8")
    steps.failed(error, 101.0)
    after = steps.next()
    assert isinstance(after, WatchFrom)
    assert after.version == "8"
    assert after.delay_s > 0


def test_history_that_is_gone_is_followed_by_a_list() -> None:
    steps = watching()
    steps.failed(GONE, 101.0)
    assert isinstance(steps.next(), ListNow)


def test_a_version_from_the_future_is_tried_three_times_then_listed() -> None:
    steps = watching()
    for _ in range(2):
        steps.failed(FUTURE, 101.0)
        assert isinstance(steps.next(), WatchFrom)
    steps.failed(FUTURE, 104.0)
    assert steps.next() == ListNow(1.0)


def test_after_a_lost_connection_the_version_is_verified_and_a_restored_server_is_listed() -> None:
    steps = watching("5000")
    steps.failed(NoAnswer("cut"), 101.0)
    after = steps.next()
    assert isinstance(after, WatchFrom)
    assert after.verify
    assert steps.verified("5000")
    again = steps.next()
    assert isinstance(again, WatchFrom)
    assert not again.verify
    steps.failed(NoAnswer("cut"), 102.0)
    assert not steps.verified("900")
    assert isinstance(steps.next(), ListNow)


def test_the_server_says_how_long_to_wait() -> None:
    steps = watching()
    steps.failed(SHED, 101.0)
    assert steps.next().delay_s == 7.0


def test_what_was_to_be_verified_still_is_after_an_answer_of_failure() -> None:
    """The server that comes back after a restore may answer 503 at first."""
    steps = watching()
    steps.failed(NoAnswer("cut"), 100.0)
    steps.failed(SHED, 101.0)
    after = steps.next()
    assert isinstance(after, WatchFrom)
    assert after.verify
    assert not steps.verified("3")
    assert isinstance(steps.next(), ListNow)
