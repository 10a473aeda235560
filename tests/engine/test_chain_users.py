"""How far a chain is held, beside a plain count of the requests that hold it."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from windtunnel.engine.cache import Chain


@given(st.lists(st.integers(0, 9), max_size=40))
def test_a_chain_is_held_as_far_as_its_furthest_user(steps: list[int]) -> None:
    chain, users = Chain(7, 3), Counter[int]()
    for number in steps:
        if number < 4 and users:
            dropped = sorted(users.elements())[number % users.total()]
            users[dropped] -= 1
            users += Counter()
            chain.drop(dropped)
        else:
            users[number + 3] += 1
            chain.hold(number + 3)
        assert chain.held() == max(users, default=3)
        assert chain.is_held() == bool(users)
