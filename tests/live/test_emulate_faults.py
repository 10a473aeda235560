"""Faults and limits of an emulated server as people write them, and filler of an exact size."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.admission.requests.budgets import WindowFinder
from windtunnel.admission.requests.headers import read_limits
from windtunnel.core.errors import InputError
from windtunnel.live.emulate.faults import (
    RequestRateLimit,
    ResponseFault,
    parse_faults,
    parse_rate_limit,
)
from windtunnel.live.emulate.prompts import (
    PrefixSharing,
    chat_prompt,
    text_prompt,
    token_count,
    token_prompt,
)
from windtunnel.live.filler import ROUND, WORDS, filler


def test_faults_are_read_as_they_are_written() -> None:
    assert parse_faults("500=0.01, 429=5%,latency=0.1:2s,break=1e-3") == (
        ResponseFault(0.01, status=500),
        ResponseFault(0.05, status=429),
        ResponseFault(0.1, delay_s=2.0),
        ResponseFault(0.001, breaks=True),
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("500", "'' is not a share"),
        ("500=often", "'often' is not a share"),
        ("500=1.5", "'1.5' is not a share"),
        ("500=nan", "'nan' is not a share"),
        ("500=-0.1", "'-0.1' is not a share"),
        ("200=0.1", "'200' is not a kind of fault"),
        ("teapot=0.1", "'teapot' is not a kind of fault"),
        ("500=0.1:2s", "only latency has a duration"),
        ("latency=0.1", "is not a duration"),
        ("latency=0.1:-2s", "negative"),
        ("500=0.6,503=0.6", "add up to more than 1"),
        ("500=0.1,,", "is not a share"),
    ],
)
def test_a_bad_fault_is_a_sentence(text: str, says: str) -> None:
    with pytest.raises(InputError, match="--fault") as caught:
        parse_faults(text)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("text", "rate_per_s", "burst"),
    [("400/s", 400.0, 400.0), ("60/min", 1.0, 60.0), ("7", 7.0, 7.0), ("0.5/s", 0.5, 1.0)],
)
def test_a_rate_limit_holds_what_was_written(text: str, rate_per_s: float, burst: float) -> None:
    limit = parse_rate_limit(text)
    assert (limit.rate_per_s, limit.burst) == pytest.approx((rate_per_s, burst))


@pytest.mark.parametrize("text", ["0/s", "-1/s", "fast", "4/fortnight"])
def test_a_bad_rate_limit_is_a_sentence(text: str) -> None:
    with pytest.raises(InputError, match="--rate-limit"):
        parse_rate_limit(text)


@given(
    st.floats(0.1, 1000),
    st.integers(1, 50),
    st.lists(st.floats(0, 10), min_size=1, max_size=60),
)
def test_no_stretch_of_time_has_more_than_its_part(
    rate_per_s: float, burst: int, gaps: list[float]
) -> None:
    """And whoever comes again when he was told to is let in."""
    limit = RequestRateLimit(rate_per_s, burst)
    taken: list[float] = []
    now_s = 5.0
    for gap in gaps:
        now_s += gap / rate_per_s
        wait_s = limit.take(now_s)
        if wait_s > 0.0:
            now_s += wait_s
            assert limit.take(now_s) == 0.0
        taken.append(now_s)
    for first, start_s in enumerate(taken):
        for last in range(first, len(taken)):
            most = burst + rate_per_s * (taken[last] - start_s)
            assert last - first + 1 <= most * (1 + 1e-6) + 1e-6


def test_filler_is_four_bytes_a_token_and_goes_round() -> None:
    assert len(ROUND.split()) == len(set(ROUND.split())) == WORDS == 64
    assert filler(3, 63) == " sea act add"
    for tokens in (0, 1, 4095, 4096, 10_000):
        text = filler(tokens, 17)
        assert len(text) == 4 * tokens
        assert len(text.split()) == tokens
    assert filler(10_000, 5)[:400] == filler(100, 5)


@given(st.text(max_size=300), st.text(max_size=300), st.sampled_from([1, 4, 16]))
def test_prompts_share_the_full_blocks_of_what_they_both_begin_with(
    one: str, other: str, block_size: int
) -> None:
    first, second = text_prompt(one), text_prompt(other)
    size = 4 * block_size
    alike = 0
    while alike < min(len(first), len(second)) // size and (
        first[: size * (alike + 1)] == second[: size * (alike + 1)]
    ):
        alike += 1
    sharing = PrefixSharing(block_size)
    chains = [sharing.chain(prompt, b"")[0] for prompt in (first, second)]
    keys = [chain.keys if chain is not None else [] for chain in chains]
    assert [len(found) for found in keys] == [len(first) // size, len(second) // size]
    shared = [a == b for a, b in zip(*keys, strict=False)]
    assert shared == [True] * alike + [False] * (len(shared) - alike)


def test_a_prompt_is_counted_by_its_bytes() -> None:
    assert token_count(text_prompt("abcde")) == 2
    assert token_count(text_prompt("äöü")) == 2
    assert token_count(token_prompt([1, 2, 3])) == 3
    assert token_count(chat_prompt([("user", "abcd"), ("assistant", "")])) == 13
    assert token_count(text_prompt("\ud800abc")) == 2


def test_a_prompt_that_goes_on_from_an_answer_names_it_as_the_engine_does() -> None:
    sharing = PrefixSharing(2)  # eight bytes a block
    first = b"0123456789"
    answer = b" one two six"  # three tokens, the last of which is never fed back
    chain, answer_key = sharing.chain(first, answer)
    assert chain is not None
    assert (len(chain.keys), chain.ends) == (1, [2])
    # The second block has the last two bytes of the prompt and six of the answer.
    again, _ = sharing.chain(first + answer + b" and so on", b"")
    assert again is not None
    assert again.keys[:2] == [chain.keys[0], answer_key]
    assert again.ends == [2, 4, 6, 8]
    # An answer of several blocks is one segment.
    long = b" act" * 9
    _, long_key = sharing.chain(first, long)
    after, _ = sharing.chain(first + long + b" and so on", b"")
    assert after is not None
    assert after.keys[1] == long_key
    assert after.ends == [2, 10, 12, 14]


def test_an_answer_within_a_block_is_known_by_nothing() -> None:
    assert PrefixSharing(16).chain(b"short", b" one")[1] == -1
    assert PrefixSharing(16).chain(b"", b"")[1] == -1


@pytest.mark.parametrize(
    ("text", "limit", "window_s"), [("400/s", 400, 1.0), ("7/s", 7, 1.0), ("60/min", 60, 60.0)]
)
def test_what_is_said_of_a_rate_limit_says_what_it_is(
    text: str, limit: int, window_s: float
) -> None:
    """Who reads limit, rest and reset of each answer finds the limit as it was written."""
    rate, finder = parse_rate_limit(text), WindowFinder()
    for request in range(2 * limit):
        wait_s = rate.take(request * window_s / (2 * limit))
        headers = {name.decode(): value.decode() for name, value in rate.headers(wait_s)}
        said = read_limits(headers, 0.0)
        assert said is not None
        assert said.requests.limit == limit
        finder.saw(said.requests.limit, said.requests.left, said.requests.reset_s)
    assert finder.window_s == window_s
