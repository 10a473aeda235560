"""The picture of caches is what the caches are, once heard; and a memory has its bounds."""

from hypothesis import example, given
from hypothesis import strategies as st

from tests.routing.fleet import Fleet, prompt
from windtunnel.routing.prefixes import CacheIndex, RouteMemory
from windtunnel.workload.request import PrefixChain, Request

GROUPS = st.tuples(st.integers(0, 4), st.integers(1, 3), st.integers(0, 1), st.integers(1, 40))


def run_all(fleet: Fleet, requests: list[Request]) -> None:
    """Every server gets every other request, and works until all have ended."""
    for request in requests:
        server = fleet.servers[request.id % len(fleet.servers)]
        server.submit(request, server.wake_s if server.wake_s < 1e9 else 0.0)
        for _ in range(request.id % 3):
            if server.wake_s < 1e9:
                server.advance(server.wake_s)


def a_request(number: int, group: int, depth: int, odd: int, tail: int) -> Request:
    ends = [24 + 8 * odd, 40 + 8 * odd, 100][:depth]
    keys = [group * 10 + odd, group * 10 + 2 + odd, group * 10 + 4 + odd][:depth]
    return Request(number, 0.0, ends[-1] + tail, 5, prefix=PrefixChain(keys, ends))


@given(
    st.lists(GROUPS, max_size=40), st.integers(16, 60), st.sampled_from([(4,), (4, 16), (32, 40)])
)
@example([(0, 1, 0, 1), (0, 1, 0, 1), (0, 3, 1, 1)], 16, (32, 40))
def test_what_was_heard_is_what_is_cached(
    groups: list[tuple[int, int, int, int]], kv_blocks: int, block_sizes: tuple[int, ...]
) -> None:
    fleet = Fleet(2, kv_blocks=kv_blocks, block_sizes=block_sizes)
    index = fleet.index()
    run_all(fleet, [a_request(number, *group) for number, group in enumerate(groups)])
    index.catch_up(0.0)
    for number, group in enumerate(groups):
        probe = a_request(1000 + number, *group)
        probe.target = probe.prompt_tokens
        truth = [server.pool.hit(probe) * server.pool.block_size for server in fleet.servers]
        assert [index.tokens(probe, server) for server in fleet.everyone] == truth
        index.find(probe)
        assert [index.found[server] for server in fleet.everyone] == truth
        assert sorted(index.holders) == [server for server in fleet.everyone if truth[server]]


def test_news_of_caches_comes_with_a_delay() -> None:
    fleet = Fleet(2)
    index = fleet.index(delay_s=0.5)
    request = prompt(keys=[3])
    index.catch_up(0.0)
    fleet.caches(1, 3, 80)
    index.catch_up(0.4)
    assert index.tokens(request, 1) == 0
    index.catch_up(0.5)
    assert index.tokens(request, 1) == 80
    fleet.caches(1, 3, 0)
    index.catch_up(0.9)
    assert index.tokens(request, 1) == 80
    index.catch_up(1.0)
    assert index.tokens(request, 1) == 0


def test_two_readers_of_a_journal_read_all_of_it_and_it_is_forgotten() -> None:
    fleet = Fleet(2)
    fast, slow = fleet.index(), fleet.index(delay_s=9.0)
    slow.catch_up(0.0)
    for tokens in (16, 32, 48):
        fleet.caches(0, 5, tokens)
        fast.catch_up(1.0)
    request = prompt(keys=[5])
    assert (fast.tokens(request, 0), slow.tokens(request, 0)) == (48, 0)
    assert len(fleet.journal.entries) == 9
    slow.catch_up(9.0)
    assert slow.tokens(request, 0) == 48
    assert fleet.journal.entries == []


def test_nobody_writes_what_nobody_reads() -> None:
    fleet = Fleet(3)
    assert all(server.pool.journal is None for server in fleet.servers)
    CacheIndex(fleet.journal, [1], 0.0)
    assert [server.pool.journal is None for server in fleet.servers] == [True, False, True]


def test_the_last_token_of_a_prompt_is_never_found() -> None:
    fleet = Fleet(1)
    index = fleet.index()
    fleet.caches(0, 1, 96)
    index.catch_up(0.0)
    for tokens, found in ((96, 80), (97, 96)):
        request = prompt(tokens=tokens, keys=[1], ends=[96])
        index.find(request)
        assert index.found[0] == index.tokens(request, 0) == found


def test_a_memory_forgets_what_was_sent_longest_ago() -> None:
    memory = RouteMemory(2, most_tokens=100)
    for key in (1, 2, 1, 3):
        memory.note(prompt(keys=[key], ends=[40]), 0)
    found = [memory.tokens(prompt(keys=[key], ends=[40]), 0) for key in (1, 2, 3)]
    assert found == [40, 0, 40]
    memory.note(prompt(keys=[9], ends=[160]), 0)
    assert [memory.tokens(prompt(keys=[key], ends=[40]), 0) for key in (1, 3, 9)] == [0, 0, 0]
    assert memory.tokens(prompt(keys=[1], ends=[40]), 1) == 0
