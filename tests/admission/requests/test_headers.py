"""Rate-limit headers in the dialects of providers, and junk."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.admission.requests.budgets import MINUTE_S, Budget, ObservedLimit, WindowFinder
from windtunnel.admission.requests.headers import read_limits, retry_after_s

NOON = 1_767_182_400.0  # 2025-12-31T12:00:00Z


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "30"}, 30.0),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after-ms": "250", "retry-after": "30"}, 0.25),
        ({"Retry-After": "Wed, 31 Dec 2025 12:00:20 GMT"}, 20.0),
        ({"Retry-After": "Wed, 31 Dec 2025 11:00:00 GMT"}, 0.0),
        ({"Retry-After": "2025-12-31T12:01:00Z"}, 60.0),
        ({"Retry-After": "999999999"}, 86400.0),
        ({"Retry-After": "1767182420"}, 20.0),
        ({"Retry-After": "1767182420500"}, 20.5),
        ({"Retry-After": "soon"}, 0.0),
        ({"Retry-After": "-5"}, 0.0),
        ({"Retry-After": "nan"}, 0.0),
        ({}, 0.0),
    ],
)
def test_retry_after(headers: dict[str, str], seconds: float) -> None:
    assert retry_after_s(headers, NOON) == seconds


def test_openai_headers() -> None:
    observed = read_limits(
        {
            "X-RateLimit-Limit-Requests": "5000",
            "X-RateLimit-Remaining-Requests": "4999",
            "X-RateLimit-Reset-Requests": "12ms",
            "x-ratelimit-limit-tokens": "160000",
            "x-ratelimit-remaining-tokens": "0",
            "x-ratelimit-reset-tokens": "6m0s",
        },
        NOON,
    )
    assert observed is not None
    assert (observed.requests.limit, observed.requests.left) == (5000, 4999)
    assert observed.requests.reset_s == 0.012
    assert (observed.tokens.limit, observed.tokens.left, observed.tokens.reset_s) == (
        160000,
        0,
        360.0,
    )


def test_anthropic_headers() -> None:
    observed = read_limits(
        {
            "anthropic-ratelimit-requests-limit": "50",
            "anthropic-ratelimit-requests-remaining": "49",
            "anthropic-ratelimit-requests-reset": "2025-12-31T12:00:30Z",
            "anthropic-ratelimit-tokens-limit": "40000",
        },
        NOON,
    )
    assert observed is not None
    assert (observed.requests.limit, observed.requests.reset_s) == (50, 30.0)
    assert (observed.tokens.limit, observed.tokens.left) == (40000, -1)


def test_the_draft_of_the_ietf_speaks_of_requests_only() -> None:
    observed = read_limits(
        {"RateLimit-Limit": "100", "RateLimit-Remaining": "7", "RateLimit-Reset": "5"}, NOON
    )
    assert observed is not None
    assert (observed.requests.limit, observed.requests.left) == (100, 7)
    assert (observed.requests.reset_s, observed.tokens.limit) == (5.0, -1)


def test_a_reply_that_says_nothing_is_nothing() -> None:
    assert read_limits({"content-type": "application/json"}, NOON) is None


@pytest.mark.parametrize(
    ("headers", "limit", "window_s"),
    [
        ({"x-ratelimit-limit-requests-minute": "30"}, 30, 60.0),
        ({"x-ratelimit-limit-req-minute": "30", "x-ratelimit-limit-requests-day": "9"}, 30, 60.0),
        ({"x-ratelimit-limit-requests-day": "14400"}, 14400, 86400.0),
        ({"x-ratelimit-limit-requests-hour": "900"}, 900, 3600.0),
        ({"X-RateLimit-Limit-Second": "5", "X-RateLimit-Limit-Hour": "1000"}, 5, 1.0),
        ({"x-ratelimit-limit-requests-day": "9", "x-ratelimit-limit-requests": "3"}, 3, -1.0),
        ({"anthropic-ratelimit-requests-limit": "50"}, 50, 60.0),
        ({"ratelimit-limit": "100, 100;w=10, 5000;w=3600"}, 100, 10.0),
        ({"ratelimit-limit": "100", "ratelimit-policy": "5000;w=3600, 100;w=1"}, 100, 1.0),
        ({"ratelimit-limit": "100", "ratelimit-policy": '"a";q=100;w=60'}, 100, 60.0),
        ({"x-ratelimit-limit": "100, 100;window=60, 10000;window=86400"}, 100, 60.0),
        ({"ratelimit-limit": "100", "ratelimit-policy": "100;w=0"}, 100, -1.0),
        ({"x-ratelimit-limit-requests": "100"}, 100, -1.0),
    ],
)
def test_the_window_that_a_name_or_a_policy_says(
    headers: dict[str, str], limit: int, window_s: float
) -> None:
    observed = read_limits(headers, NOON)
    assert observed is not None
    assert (observed.requests.limit, observed.requests.window_s) == (limit, window_s)


def test_tokens_have_a_window_of_their_own() -> None:
    observed = read_limits(
        {"x-ratelimit-limit-requests-day": "9", "x-ratelimit-limit-tokens-minute": "7"}, NOON
    )
    assert observed is not None
    assert (observed.requests.window_s, observed.tokens.window_s) == (86400.0, 60.0)


def at_once(window_s: float, now: float) -> float:
    """The reset of a provider that gives everything back at the end of each window."""
    return window_s - now % window_s


@pytest.mark.parametrize("window_s", [1.0, 60.0, 3600.0, 86400.0])
@pytest.mark.parametrize("limit", [10, 500, 20_000])
def test_the_window_is_found_where_everything_comes_back_at_once(
    window_s: float, limit: int
) -> None:
    """A limit that is used up within each window, one reply for each part of it."""
    finder, start_s = WindowFinder(), 0.3 * window_s
    for step in range(40):
        now = start_s + step * window_s / 10
        used = max(1, int(limit * (now % window_s) / window_s))
        finder.saw(limit, limit - used, at_once(window_s, now))
    assert finder.window_s == window_s


@pytest.mark.parametrize("window_s", [1.0, 60.0, 3600.0, 86400.0])
@pytest.mark.parametrize("limit", [10, 500, 20_000])
def test_the_window_is_found_where_it_comes_back_steadily(window_s: float, limit: int) -> None:
    finder = WindowFinder()
    for used in (1, 2, 4, 8):
        finder.saw(limit, limit - used, round(used * window_s / limit, 4))
    assert finder.window_s == window_s


def test_a_fresh_minute_that_is_used_fast_is_no_hour() -> None:
    finder = WindowFinder()
    for call in range(1, 200):
        finder.saw(60_000, 60_000 - 50 * call, 60.0 - 0.005 * call)
    assert finder.window_s == MINUTE_S


def test_the_last_second_of_a_minute_is_no_window_of_a_second_for_long() -> None:
    finder = WindowFinder()
    finder.saw(100, 10, 0.8)
    assert finder.window_s == 1.0
    finder.saw(100, 99, 59.9)
    assert finder.window_s == 60.0
    finder.saw(100, 10, 0.8)
    assert finder.window_s == 60.0


def test_a_limit_of_a_second_is_kept_to() -> None:
    """Read as one of a minute, ten calls would be followed by a minute of silence."""
    budget = Budget(0, "default")
    assert budget.learn(ObservedLimit(10, 9, 0.1), 0.0)
    assert not budget.learn(ObservedLimit(10, 3, 0.7), 0.0)
    assert (budget.window_s, budget.per_minute) == (1.0, 600)
    for _ in range(3):
        budget.spend(1, 0.0)
    assert budget.ready_s(1, 0.0) == pytest.approx(0.1)
    assert budget.ready_s(2, 0.0) == pytest.approx(0.7)
    assert budget.ready_s(10, 0.9) == 1.0


def test_a_limit_of_a_day_is_left_to_the_provider() -> None:
    """Named so, or found out; what was booked meanwhile is forgotten with it."""
    named = Budget(0, "default")
    assert not named.learn(ObservedLimit(14400, 14399, 6.0, 86400.0), 0.0)
    assert named.ready_s(10**6, 0.0) == 0.0
    found = Budget(0, "default")
    assert found.learn(ObservedLimit(14400, 14399, 6.0), 0.0)
    spent = found.spend(5, 0.0)
    assert found.learn(ObservedLimit(14400, 14390, 60.0), 1.0)
    assert (found.limit, found.used, found.source) == (0, 0, "default")
    assert spent is not None
    found.settle(spent, 9)
    assert found.used == 0


def test_a_configured_minute_is_not_confused_with_what_is_left_of_a_day() -> None:
    budget = Budget(100, "configured")
    assert not budget.learn(ObservedLimit(14400, 3, 6.0, 86400.0), 0.0)
    assert budget.left(0.0) == 100
    assert not budget.learn(ObservedLimit(60, 40, 6.0, 60.0), 0.0)
    assert budget.left(0.0) == 40


NAMES = st.sampled_from(
    ["retry-after", "retry-after-ms", "x-ratelimit-limit-requests", "x-ratelimit-reset-tokens"]
)


@given(st.dictionaries(NAMES, st.text(max_size=40)))
def test_junk_never_stops_a_run(headers: dict[str, str]) -> None:
    observed = read_limits(headers, NOON)
    if observed is not None:
        assert 0.0 <= observed.retry_after_s <= 86400.0
