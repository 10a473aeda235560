"""The shared link against a link that is simulated byte by byte, and by hand."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.twin.requests.kv_link import Link, Transfer
from windtunnel.workload.request import Request


def request(number: int) -> Request:
    return Request(number, 0.0, 10, 10)


def run(link: Link, until_s: float = math.inf) -> list[tuple[int, float]]:
    """Who arrived when, up to a time."""
    arrivals = []
    while link.wake_s <= until_s and link.wake_s != math.inf:
        now_s = link.wake_s
        arrivals += [(int(one.id), now_s) for one in link.advance(now_s)]
    return arrivals


def test_one_transfer_takes_latency_and_bytes_over_bandwidth() -> None:
    link = Link(0, 100.0, 0.5, True)
    link.start(request(1), 200.0, 1.0)
    assert run(link) == [(1, 3.5)]


def test_two_transfers_share_and_the_second_speeds_up_when_the_first_ends() -> None:
    link = Link(0, 100.0, 0.0, True)
    link.start(request(1), 100.0, 0.0)
    link.start(request(2), 300.0, 0.0)
    # Both at 50/s until 2 s; then 200 bytes are left for the second alone.
    assert run(link) == [(1, 2.0), (2, 4.0)]


def test_without_contention_each_has_the_whole_bandwidth() -> None:
    link = Link(0, 100.0, 0.0, False)
    link.start(request(1), 100.0, 0.0)
    link.start(request(2), 300.0, 0.0)
    assert run(link) == [(1, 1.0), (2, 3.0)]


def test_who_abandons_a_transfer_leaves_its_share_to_the_others() -> None:
    link = Link(0, 100.0, 0.0, True)
    link.start(request(1), 400.0, 0.0)
    second = link.start(request(2), 400.0, 0.0)
    assert run(link, 2.0) == []
    link.abandon(second, 2.0)
    assert run(link) == [(1, 5.0)]
    assert (link.started, link.finished, link.abandoned, link.active) == (2, 1, 1, 0)


def test_an_abandoned_transfer_may_not_have_begun_to_move() -> None:
    link = Link(0, 100.0, 1.0, True)
    first = link.start(request(1), 100.0, 0.0)
    link.start(request(2), 100.0, 0.5)
    link.abandon(first, 0.25)
    assert run(link) == [(2, 2.5)]


class SlowLink:
    """The same link, looked at whenever anything changes: every transfer has its bytes left."""

    def __init__(self, speed: float, latency_s: float) -> None:
        self.speed, self.latency_s = speed, latency_s
        self.left: dict[int, float] = {}
        self.joins: dict[int, tuple[float, float]] = {}
        self.now_s = 0.0
        self.arrivals: list[tuple[int, float]] = []

    def start(self, number: int, size: float, now_s: float) -> None:
        self.pass_to(now_s)
        self.joins[number] = (now_s + self.latency_s, size)

    def abandon(self, number: int, now_s: float) -> None:
        self.pass_to(now_s)
        self.joins.pop(number, None)
        self.left.pop(number, None)

    def pass_to(self, until_s: float) -> None:
        while True:
            share = self.speed / len(self.left) if self.left else 0.0
            ends = [self.now_s + left / share for left in self.left.values()]
            next_s = min([until_s, *ends, *(joins_s for joins_s, _ in self.joins.values())])
            if next_s == math.inf:
                return
            for number in list(self.left):
                self.left[number] -= share * (next_s - self.now_s)
                if self.left[number] <= 1e-7:
                    del self.left[number]
                    self.arrivals.append((number, next_s))
            self.now_s = next_s
            for number, (joins_s, size) in list(self.joins.items()):
                if joins_s <= next_s:
                    del self.joins[number]
                    self.left[number] = size
            if next_s == until_s:
                return


@given(
    st.lists(
        st.tuples(st.floats(0.001, 3.0), st.integers(1, 1000), st.booleans()),
        min_size=1,
        max_size=30,
    ),
    st.sampled_from([0.0, 0.5]),
)
def test_the_link_equals_one_that_counts_every_byte(
    events: list[tuple[float, int, bool]], latency_s: float
) -> None:
    link, slow = Link(0, 100.0, latency_s, True), SlowLink(100.0, latency_s)
    now_s = 0.0
    arrivals: list[tuple[int, float]] = []
    open_ones: dict[int, Transfer] = {}
    for number, (gap_s, size, leaves) in enumerate(events):
        now_s += gap_s
        arrivals += run(link, now_s)
        slow.pass_to(now_s)
        for one, _ in arrivals:
            open_ones.pop(one, None)
        if leaves and open_ones:
            gone = max(open_ones)
            slow_has_it = gone in slow.left or gone in slow.joins
            if slow_has_it:
                link.abandon(open_ones.pop(gone), now_s)
                slow.abandon(gone, now_s)
        open_ones[number] = link.start(request(number), float(size), now_s)
        slow.start(number, float(size), now_s)
    arrivals += run(link)
    slow.pass_to(math.inf)
    assert [one for one, _ in sorted(arrivals)] == [one for one, _ in sorted(slow.arrivals)]
    for (_, ours), (_, theirs) in zip(sorted(arrivals), sorted(slow.arrivals), strict=True):
        assert ours == pytest.approx(theirs, abs=1e-6)
    assert link.active == 0


def test_what_the_link_has_carried_is_known_at_any_time() -> None:
    link = Link(0, 100.0, 1.0, True)
    link.start(request(1), 100.0, 0.0)
    second = link.start(request(2), 300.0, 0.0)
    assert link.carried_until(0.5) == 0.0
    assert run(link, 1.0) == []
    assert link.carried_until(1.5) == pytest.approx(50.0)
    assert run(link, 3.0) == [(1, 3.0)]
    link.abandon(second, 3.5)
    assert link.carried_until(9.0) == pytest.approx(250.0)
    assert link.moved_bytes == 100.0


def test_the_link_is_busy_while_something_moves() -> None:
    link = Link(0, 100.0, 1.0, True)
    link.start(request(1), 100.0, 0.0)
    assert link.busy_until(0.9) == 0.0
    assert run(link, 1.0) == []
    assert link.busy_until(1.5) == pytest.approx(0.5)
    second = link.start(request(2), 300.0, 1.5)
    run(link, 2.5)
    link.abandon(second, 3.5)
    assert link.busy_until(9.0) == pytest.approx(2.0)


def test_without_contention_the_link_carries_every_transfer_at_full_speed() -> None:
    link = Link(0, 100.0, 0.0, False)
    link.start(request(1), 100.0, 0.0)
    link.start(request(2), 300.0, 0.0)
    run(link)
    assert link.carried_until(3.0) == pytest.approx(link.moved_bytes) == 400.0
