"""Rate-limit headers in the dialects of providers, and junk."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.admission.headers import read_limits, retry_after_s

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
    assert (observed.requests_limit, observed.requests_left) == (5000, 4999)
    assert observed.requests_reset_s == 0.012
    assert (observed.tokens_limit, observed.tokens_left, observed.tokens_reset_s) == (
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
    assert (observed.requests_limit, observed.requests_reset_s) == (50, 30.0)
    assert (observed.tokens_limit, observed.tokens_left) == (40000, -1)


def test_the_draft_of_the_ietf_speaks_of_requests_only() -> None:
    observed = read_limits(
        {"RateLimit-Limit": "100", "RateLimit-Remaining": "7", "RateLimit-Reset": "5"}, NOON
    )
    assert observed is not None
    assert (observed.requests_limit, observed.requests_left) == (100, 7)
    assert (observed.requests_reset_s, observed.tokens_limit) == (5.0, -1)


def test_a_reply_that_says_nothing_is_nothing() -> None:
    assert read_limits({"content-type": "application/json"}, NOON) is None


NAMES = st.sampled_from(
    ["retry-after", "retry-after-ms", "x-ratelimit-limit-requests", "x-ratelimit-reset-tokens"]
)


@given(st.dictionaries(NAMES, st.text(max_size=40)))
def test_junk_never_stops_a_run(headers: dict[str, str]) -> None:
    observed = read_limits(headers, NOON)
    if observed is not None:
        assert 0.0 <= observed.retry_after_s <= 86400.0
