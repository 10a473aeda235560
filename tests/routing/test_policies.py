"""The policies that do not weigh: in turn, at random, by count, by session, by ring."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.routing.fleet import Fleet, chosen, prompt
from windtunnel.core.random import Stream
from windtunnel.routing.build import POLICIES
from windtunnel.routing.load_balancing import LeastLoaded, PowerOfTwo
from windtunnel.routing.sticky import ConsistentHash


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_chooses_among_its_candidates_as_they_come_and_go(policy: str) -> None:
    fleet = Fleet(6)
    router = fleet.router(policy, [1, 3, 4])
    for phase, candidates in enumerate(([1, 3, 4], [3], [0, 5], [0, 1, 2, 3, 4, 5])):
        router.set_candidates(candidates)
        made = []
        for number in range(200):
            made.append(chosen(router, prompt(number, keys=[100 * phase + number % 40]), 0.0))
            fleet.send(made[-1])
        for server in made:
            fleet.signals.ended(server)
        assert set(made) == set(candidates)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_server_that_was_never_there_before_is_chosen_and_one_that_is_gone_is_not(
    policy: str,
) -> None:
    fleet = Fleet(2)
    router = fleet.router(policy)
    router.set_candidates([])
    fleet.grow()
    for candidates in ([2], [2, fleet.grow()], [3]):
        router.set_candidates(candidates)
        for number in range(40):
            server = chosen(router, prompt(number, keys=[number]), 0.0)
            assert server in candidates
            fleet.send(server)
    router.gone(2)
    assert {chosen(router, prompt(number, keys=[number]), 0.0) for number in range(40)} == {3}


@pytest.mark.parametrize("policy", POLICIES)
def test_the_same_draws_give_the_same_choices(policy: str) -> None:
    def choices() -> list[int]:
        fleet = Fleet(5)
        router = fleet.router(policy)
        made = []
        for number in range(50):
            made.append(chosen(router, prompt(number, keys=[number % 3]), 0.0))
            fleet.send(made[-1])
        return made

    assert choices() == choices()


def test_round_robin_takes_each_in_turn() -> None:
    router = Fleet(4).router("round-robin", [0, 2, 3])
    assert [chosen(router, prompt(), 0.0) for _ in range(7)] == [0, 2, 3, 0, 2, 3, 0]


def test_random_takes_each_about_as_often() -> None:
    router = Fleet(4).router("random")
    counts = Counter(chosen(router, prompt(), 0.0) for _ in range(4000))
    assert min(counts.values()) > 900


@given(st.integers(1, 9), st.lists(st.tuples(st.integers(0, 8), st.integers(0, 3)), max_size=80))
def test_least_loaded_is_the_least_of_all_and_of_equals_the_one_chosen_longest_ago(
    servers: int, steps: list[tuple[int, int]]
) -> None:
    fleet = Fleet(servers)
    router = LeastLoaded(fleet.everyone, fleet.signals)
    in_flight = fleet.signals.in_flight
    chosen_at = [-1] * servers
    for number, (place, action) in enumerate(steps):
        server = place % servers
        if action == 0:
            fleet.send(server)
        elif action == 1 and in_flight[server]:
            fleet.signals.ended(server)
        else:
            expected = min(fleet.everyone, key=lambda s: (in_flight[s], chosen_at[s], s))
            assert chosen(router, prompt(), 0.0) == expected
            chosen_at[expected] = number
            fleet.send(expected)


def test_power_of_two_never_takes_the_busier_of_its_two() -> None:
    fleet = Fleet(3)
    fleet.send(*[0] * 5, *[1] * 2)
    router = PowerOfTwo(fleet.everyone, fleet.signals, Stream(3, "router"))
    counts = Counter(chosen(router, prompt(), 0.0) for _ in range(3000))
    assert counts[0] == 0
    assert 900 < counts[1] < 1100  # only when the pair is (0, 1): one of three
    assert 1900 < counts[2] < 2100


def test_a_session_stays_until_its_server_is_gone() -> None:
    fleet = Fleet(4)
    router = fleet.router("session-sticky")
    home = chosen(router, prompt(session=7), 0.0)
    fleet.send(*[home] * 50)
    assert chosen(router, prompt(session=7), 0.0) == home
    assert chosen(router, prompt(session=8), 0.0) != home
    rest = [server for server in fleet.everyone if server != home]
    router.set_candidates(rest)
    moved = chosen(router, prompt(session=7), 0.0)
    assert moved in rest
    router.set_candidates(fleet.everyone)
    assert chosen(router, prompt(session=7), 0.0) == moved


def test_without_a_session_prompts_that_start_alike_stay_together() -> None:
    fleet = Fleet(4)
    router = fleet.router("session-sticky")
    home = chosen(router, prompt(keys=[5]), 0.0)
    fleet.send(home)
    assert chosen(router, prompt(keys=[5, 6], ends=[16, 32]), 0.0) == home
    assert chosen(router, prompt(keys=[9]), 0.0) != home
    alone = {chosen(router, prompt(number), 0.0) for number in range(4)}
    assert alone == {server for server in fleet.everyone if server != home}


def test_the_ring_sends_what_starts_alike_to_one_place_and_moves_little() -> None:
    fleet = Fleet(8)
    router = ConsistentHash(fleet.everyone, fleet.signals, 100, 100.0)

    def places() -> list[int]:
        return [chosen(router, prompt(keys=[key]), 0.0) for key in range(400)]

    before = places()
    assert before == places()
    assert len(set(before)) == 8
    router.set_candidates([s for s in fleet.everyone if s != 3])
    moved = [(old, new) for old, new in zip(before, places(), strict=True) if old != new]
    assert moved
    assert all(old == 3 for old, _ in moved)


def test_the_ring_looks_at_the_first_thousand_tokens() -> None:
    router = ConsistentHash(list(range(8)), Fleet(8).signals, 100, 100.0)
    short = [
        chosen(router, prompt(keys=[1, k], ends=[512, 1000], tokens=2000), 0.0) for k in range(9)
    ]
    long = [
        chosen(router, prompt(keys=[1, k], ends=[1024, 2000], tokens=2000), 0.0) for k in range(9)
    ]
    assert len(set(short)) > 1
    assert len(set(long)) == 1


@given(st.lists(st.integers(0, 3), max_size=100), st.sampled_from([1.0, 1.25, 2.0]))
def test_nobody_on_the_ring_is_loaded_beyond_the_bound(keys: list[int], factor: float) -> None:
    fleet = Fleet(5)
    router = ConsistentHash(fleet.everyone, fleet.signals, 20, factor)
    for count, key in enumerate(keys):
        fleet.send(chosen(router, prompt(keys=[key]), 0.0))
        assert max(fleet.signals.in_flight) < factor * (count + 1) / 5 + 1


UNAWARE = [name for name in POLICIES if not Fleet(1).router(name).follows_changes]


def test_policies_that_balance_load_need_only_the_last_change_before_a_choice() -> None:
    assert set(POLICIES) - set(UNAWARE) == {"weighted"}


@pytest.mark.parametrize("policy", UNAWARE)
@given(
    st.lists(
        st.one_of(
            st.sets(st.integers(0, 7)),  # candidates from now on
            st.just("grow"),
            st.tuples(st.just("ended"), st.integers(0, 7)),
            st.tuples(st.just("gone"), st.integers(0, 7)),
            st.tuples(st.just("choose"), st.integers(0, 5)),
        ),
        max_size=60,
    )
)
def test_changes_may_be_told_late_to_a_policy_that_does_not_follow_them(
    policy: str, steps: list[set[int] | str | tuple[str, int]]
) -> None:
    late, at_once = Fleet(3), Fleet(3)
    routers = (late.router(policy), at_once.router(policy))
    candidates, told = [0, 1, 2], True
    for number, step in enumerate(steps):
        servers = len(late.servers)
        if isinstance(step, set):
            candidates, told = sorted(one for one in step if one < servers), False
            routers[1].set_candidates(list(candidates))
        elif isinstance(step, str):
            late.grow()
            at_once.grow()
        elif step[0] == "choose":
            if not told:
                routers[0].set_candidates(list(candidates))
                told = True
            if candidates:
                request = prompt(number, keys=[step[1]])
                made = [chosen(router, request, 0.0) for router in routers]
                assert made[0] == made[1]
                late.send(made[0])
                at_once.send(made[0])
        elif step[1] < servers and step[0] == "ended" and late.signals.in_flight[step[1]]:
            late.signals.ended(step[1])
            at_once.signals.ended(step[1])
        elif step[1] < servers and step[0] == "gone" and step[1] not in candidates:
            routers[0].gone(step[1])
            routers[1].gone(step[1])
