"""The network between servers against one that is simulated byte by byte, and by hand."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.twin.requests.kv_link import KvNetwork
from windtunnel.twin.requests.links import Link, LinkShares, Transfer
from windtunnel.twin.settings import RackSettings, TransferSettings
from windtunnel.workload.request import Request


def request(number: int, server: int = 9) -> Request:
    made = Request(number, 0.0, 10, 10)
    made.server = server
    return made


def links(latency_s: float = 0.0, **settings: Any) -> KvNetwork:
    """NICs of 100 bytes per second."""
    given: dict[str, Any] = {"contention": True, "rack": None, "fabric_bytes_per_s": None}
    given |= {"bandwidth_bytes_per_s": 100.0, "latency_s": latency_s, **settings}
    return KvNetwork(0, TransferSettings.model_construct(**given))


def run(link: KvNetwork, until_s: float = math.inf) -> list[tuple[int, float]]:
    """Who arrived when, up to a time."""
    arrivals = []
    while link.wake_s <= until_s and link.wake_s != math.inf:
        now_s = link.wake_s
        arrivals += [(int(one.id), now_s) for one in link.advance(now_s)]
    return arrivals


def test_one_transfer_takes_latency_and_bytes_over_bandwidth() -> None:
    link = links(0.5)
    link.start(request(1), 200.0, 1, 0, 1.0)
    assert run(link) == [(1, 3.5)]


def test_two_transfers_share_and_the_second_speeds_up_when_the_first_ends() -> None:
    link = links(0.0)
    link.start(request(1), 100.0, 1, 0, 0.0)
    link.start(request(2), 300.0, 1, 0, 0.0)
    # Both at 50/s until 2 s; then 200 bytes are left for the second alone.
    assert run(link) == [(1, 2.0), (2, 4.0)]


def test_without_contention_each_has_the_whole_bandwidth() -> None:
    link = links(0.0, contention=False)
    link.start(request(1), 100.0, 1, 0, 0.0)
    link.start(request(2), 300.0, 1, 0, 0.0)
    assert run(link) == [(1, 1.0), (2, 3.0)]


def test_who_abandons_a_transfer_leaves_its_share_to_the_others() -> None:
    link = links(0.0)
    link.start(request(1), 400.0, 1, 0, 0.0)
    second = link.start(request(2), 400.0, 1, 0, 0.0)
    assert run(link, 2.0) == []
    link.abandon(second, 2.0)
    assert run(link) == [(1, 5.0)]
    assert (link.started, link.finished, link.abandoned, link.active) == (2, 1, 1, 0)


def test_an_abandoned_transfer_may_not_have_begun_to_move() -> None:
    link = links(1.0)
    first = link.start(request(1), 100.0, 1, 0, 0.0)
    link.start(request(2), 100.0, 1, 0, 0.5)
    link.abandon(first, 0.25)
    assert run(link) == [(2, 2.5)]


def test_transfers_between_other_servers_do_not_share() -> None:
    """Two come from 1, two go to 9; the last has its NICs for itself."""
    network = links()
    network.start(request(1, 9), 100.0, 1, 0, 0.0)
    network.start(request(2, 8), 100.0, 1, 0, 0.0)
    network.start(request(3, 9), 100.0, 2, 0, 0.0)
    network.start(request(4, 7), 100.0, 3, 0, 0.0)
    assert run(network) == [(4, 1.0), (1, 2.0), (2, 2.0), (3, 2.0)]


def test_all_transfers_of_a_cluster_share_its_fabric() -> None:
    network = links(fabric_bytes_per_s=100.0)
    network.start(request(1, 8), 100.0, 1, 0, 0.0)
    network.start(request(2, 9), 100.0, 2, 0, 0.0)
    network.start(request(3, 7), 100.0, 3, 1, 0.0)  # in another cluster
    assert run(network) == [(3, 1.0), (1, 2.0), (2, 2.0)]


def test_transfers_between_racks_share_their_uplinks() -> None:
    network = links(rack=RackSettings.model_construct(servers=4, uplink_bytes_per_s=100.0))
    network.start(request(1, 4), 100.0, 0, 0, 0.0)
    network.start(request(2, 5), 100.0, 1, 0, 0.0)
    network.start(request(3, 3), 100.0, 2, 0, 0.0)  # within its rack
    assert run(network) == [(3, 1.0), (1, 2.0), (2, 2.0)]


def test_what_was_moved_before_is_not_moved_again_but_for_the_last_layer() -> None:
    network = links(1.0)
    half = network.start(request(1, 8), 100.0, 1, 0, 0.0)
    network.shift(half, -0.5, 0.0, 10.0)
    whole = network.start(request(2, 9), 100.0, 2, 0, 0.0)
    network.shift(whole, -5.0, 0.0, 10.0)
    assert run(network) == [(2, 1.1), (1, 1.5)]
    assert network.moved_bytes == pytest.approx(network.carried_until(2.0)) == 200.0


def filled(routes: dict[int, list[Link]]) -> dict[int, float]:
    """Progressive filling, from nothing: the rate of each."""
    left = {link: link.bytes_per_s for route in routes.values() for link in route}
    rates = dict.fromkeys(routes, 0.0)
    growing = set(routes)
    while growing:
        users = {link: [one for one in growing if link in routes[one]] for link in left}
        more = min(left[link] / len(users[link]) for link in left if users[link])
        full = set()
        for link, those in users.items():
            left[link] -= more * len(those)
            if those and left[link] <= 1e-9 * link.bytes_per_s:
                full.add(link)
        for one in list(growing):
            rates[one] += more
            if any(link in full for link in routes[one]):
                growing.remove(one)
    return rates


def test_the_time_of_a_nic_is_given_to_layers_once() -> None:
    """Three prefills of a second end together, and their KV goes to one server: one fits."""
    network = links(1.0)
    for number in (1, 2, 3):
        transfer = network.start(request(number), 100.0, number, 0, 0.0)
        network.shift(transfer, -1.0, 0.0, 10.0)
    # The NIC has moved 90 bytes of the first and 10 of the second; 10, 90 and 100 are left.
    assert run(network) == [(1, pytest.approx(1.3)), (2, pytest.approx(2.9)), (3, 3.0)]
    assert network.busy_until(3.0) == pytest.approx(3.0)
    late = network.start(request(4), 100.0, 4, 0, 3.5)
    network.shift(late, 2.0, 3.5, 10.0)
    assert run(network) == [(4, 5.0)]  # it was busy from 2 to 3, and free for half a second


class SlowNetwork:
    """The same network, looked at whenever anything changes: every transfer has its bytes left."""

    def __init__(self, latency_s: float) -> None:
        self.latency_s = latency_s
        self.left: dict[int, float] = {}
        self.links: dict[int, list[Link]] = {}
        self.joins: dict[int, tuple[float, float]] = {}
        self.now_s = 0.0
        self.arrivals: list[tuple[int, float]] = []

    def start(self, number: int, size: float, links: list[Link], now_s: float) -> None:
        self.pass_to(now_s)
        self.links[number] = links
        self.joins[number] = (now_s + self.latency_s, size)

    def abandon(self, number: int, now_s: float) -> None:
        self.pass_to(now_s)
        self.joins.pop(number, None)
        self.left.pop(number, None)

    def pass_to(self, until_s: float) -> None:
        while True:
            rates = filled({number: self.links[number] for number in self.left})
            ends = [self.now_s + left / rates[number] for number, left in self.left.items()]
            next_s = min([until_s, *ends, *(joins_s for joins_s, _ in self.joins.values())])
            if next_s == math.inf:
                return
            for number in list(self.left):
                self.left[number] -= rates[number] * (next_s - self.now_s)
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


ROUTES = st.lists(st.integers(0, 7), min_size=1, max_size=4, unique=True)


@given(
    st.lists(st.sampled_from([1.0, 2.0, 3.0, 7.0, 10.0, 0.1]), min_size=8, max_size=8),
    st.lists(st.lists(st.one_of(ROUTES, st.integers(0, 99)), max_size=4), max_size=25),
)
def test_rates_are_those_of_progressive_filling(
    capacities: list[float], rounds: list[list[list[int] | int]]
) -> None:
    """Several come (their links) and go (a number) at once; then each has its rate."""
    among = [Link(number, bytes_per_s) for number, bytes_per_s in enumerate(capacities)]
    shares = LinkShares()
    moving: dict[int, Transfer] = {}
    for round_number, changes in enumerate(rounds):
        now_s = float(round_number)
        for number, change in enumerate(changes):
            if isinstance(change, int):
                if moving:
                    gone = sorted(moving)[change % len(moving)]
                    shares.remove(moving.pop(gone), now_s)
            else:
                name = 10 * round_number + number
                route = [among[one] for one in change]
                moving[name] = Transfer(request(name), 1e9, now_s, route)
                shares.add(moving[name], now_s)
        shares.share(now_s)
        rates = filled({name: one.links for name, one in moving.items()})
        for name, one in moving.items():
            assert one.held_by is not None
            assert one.held_by in one.links
            assert one.held_by.level == pytest.approx(rates[name], rel=1e-9)
        assert shares.speed == pytest.approx(sum(rates.values()), rel=1e-9, abs=1e-9)


def test_what_a_transfer_cannot_use_of_its_share_is_for_others() -> None:
    """Four go to 9, at 25 each; one of them comes from 1, which has 75 for its other transfer."""
    network = links()
    network.start(request(1, 8), 300.0, 1, 0, 0.0)
    for number, source in ((2, 1), (3, 2), (4, 3), (5, 4)):
        network.start(request(number, 9), 1000.0, source, 0, 0.0)
    assert run(network, 5.0) == [(1, 4.0)]
    assert network.carried_until(4.0) == pytest.approx(700.0)


@given(
    st.lists(
        st.tuples(
            st.floats(0.001, 3.0),
            st.integers(1, 1000),
            st.booleans(),
            st.integers(0, 2),
            st.integers(3, 5),
        ),
        min_size=1,
        max_size=30,
    ),
    st.sampled_from([0.0, 0.5]),
    st.sampled_from([None, 150.0]),
    st.sampled_from([None, RackSettings.model_construct(servers=2, uplink_bytes_per_s=120.0)]),
)
def test_the_network_equals_one_that_counts_every_byte(
    events: list[tuple[float, int, bool, int, int]],
    latency_s: float,
    fabric: float | None,
    rack: RackSettings | None,
) -> None:
    network = links(latency_s, fabric_bytes_per_s=fabric, rack=rack)
    slow = SlowNetwork(latency_s)
    now_s = 0.0
    arrivals: list[tuple[int, float]] = []
    open_ones: dict[int, Transfer] = {}
    for number, (gap_s, size, leaves, source, target) in enumerate(events):
        now_s += gap_s
        arrivals += run(network, now_s)
        slow.pass_to(now_s)
        for one, _ in arrivals:
            open_ones.pop(one, None)
        if leaves and open_ones:
            gone = max(open_ones)
            if gone in slow.left or gone in slow.joins:
                network.abandon(open_ones.pop(gone), now_s)
                slow.abandon(gone, now_s)
        transfer = network.start(request(number, target), float(size), source, 0, now_s)
        open_ones[number] = transfer
        slow.start(number, float(size), transfer.links, now_s)
    arrivals += run(network)
    slow.pass_to(math.inf)
    assert [one for one, _ in sorted(arrivals)] == [one for one, _ in sorted(slow.arrivals)]
    for (_, ours), (_, theirs) in zip(sorted(arrivals), sorted(slow.arrivals), strict=True):
        assert ours == pytest.approx(theirs, abs=1e-6)
    assert network.active == 0


def test_what_the_link_has_carried_is_known_at_any_time() -> None:
    link = links(1.0)
    link.start(request(1), 100.0, 1, 0, 0.0)
    second = link.start(request(2), 300.0, 1, 0, 0.0)
    assert link.carried_until(0.5) == 0.0
    assert run(link, 1.0) == []
    assert link.carried_until(1.5) == pytest.approx(50.0)
    assert run(link, 3.0) == [(1, 3.0)]
    link.abandon(second, 3.5)
    assert link.carried_until(9.0) == pytest.approx(250.0)
    assert link.moved_bytes == 100.0


def test_the_link_is_busy_while_something_moves() -> None:
    link = links(1.0)
    link.start(request(1), 100.0, 1, 0, 0.0)
    assert link.busy_until(0.9) == 0.0
    assert run(link, 1.0) == []
    assert link.busy_until(1.5) == pytest.approx(0.5)
    second = link.start(request(2), 300.0, 1, 0, 1.5)
    run(link, 2.5)
    link.abandon(second, 3.5)
    assert link.busy_until(9.0) == pytest.approx(2.0)


def test_without_contention_the_link_carries_every_transfer_at_full_speed() -> None:
    link = links(0.0, contention=False)
    link.start(request(1), 100.0, 1, 0, 0.0)
    link.start(request(2), 300.0, 1, 0, 0.0)
    run(link)
    assert link.carried_until(3.0) == pytest.approx(link.moved_bytes) == 400.0
