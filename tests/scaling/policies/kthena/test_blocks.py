"""Kinds of replica by cost: the vectors of the reference, and what holds for every total."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.scaling.policies.kthena.blocks import Blocks, ReplicaKind, block_sizes


def test_22_cheap_room_is_filled_first() -> None:
    backends = [ReplicaKind("h100", 10, 1, 4), ReplicaKind("a100", 5, 1, 3)]
    assert Blocks(backends, 100).split(5) == {"h100": 2, "a100": 3}


@pytest.mark.parametrize(
    ("total", "h100", "a100"),
    [
        (2, 0, 2),
        (4, 1, 3),
        (6, 1, 5),
        (8, 1, 7),
        (10, 1, 9),
        (12, 2, 10),
        (14, 4, 10),
        (20, 10, 10),
    ],
)
def test_22_a_dear_kind_joins_when_the_next_block_of_the_cheap_one_costs_as_much(
    total: int, h100: int, a100: int
) -> None:
    blocks = Blocks([ReplicaKind("h100", 30, 0, 10), ReplicaKind("a100", 10, 0, 10)], 200)
    assert blocks.split(total) == {"h100": h100, "a100": a100}


@pytest.mark.parametrize(
    ("percent", "sizes"),
    [
        (200, [1, 2, 4, 5]),
        (150, [1, 1, 2, 3, 5]),
        (100, [12]),
        (50, [12]),
        (0, [12]),
    ],
)
def test_blocks_grow_by_the_rate(percent: int, sizes: list[int]) -> None:
    assert block_sizes(12, percent) == sizes


BACKENDS = st.lists(
    st.tuples(st.integers(0, 50), st.integers(0, 5), st.integers(0, 20)), min_size=1, max_size=4
).map(
    lambda rows: [
        ReplicaKind(f"ns{index % 2}/kind{index // 2}", cost, low, low + room)
        for index, (cost, low, room) in enumerate(rows)
    ]
)


@given(BACKENDS, st.sampled_from([0, 50, 100, 101, 150, 200, 1000]))
def test_22_and_23_every_total_is_split_whole_and_no_kind_shrinks_when_it_grows(
    backends: list[ReplicaKind], percent: int
) -> None:
    blocks = Blocks(backends, percent)
    before = blocks.split(blocks.minimum - 1)
    for total in range(blocks.minimum - 1, blocks.maximum + 2):
        sizes = blocks.split(total)
        assert sizes == Blocks(backends, percent).split(total)
        assert sum(sizes.values()) == min(max(total, blocks.minimum), blocks.maximum)
        for backend in backends:
            assert backend.minimum <= sizes[backend.name] <= backend.maximum
            assert sizes[backend.name] >= before[backend.name]
        before = sizes


def test_24_one_name_in_two_namespaces_is_two_kinds() -> None:
    blocks = Blocks([ReplicaKind("a/llm", 10, 1, 4), ReplicaKind("b/llm", 5, 2, 3)], 100)
    assert blocks.split(5) == {"a/llm": 2, "b/llm": 3}


def test_a_million_replicas_are_few_blocks() -> None:
    assert len(block_sizes(1_000_000, 101)) < 1000
    assert block_sizes(1_000_000, 50) == [1_000_000]
