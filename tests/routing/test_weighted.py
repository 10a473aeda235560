"""The weighted router: as if everybody were scored, ties and all; and its sums by hand."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.routing.fleet import Fleet, chosen, prompt
from windtunnel.core.random import Stream
from windtunnel.routing.build import SCORERS, build_router
from windtunnel.routing.router import Routed, Router
from windtunnel.routing.settings import RouterSettings
from windtunnel.routing.weighted import Weighted
from windtunnel.workload.request import Request

SERVERS = 6
STEP = st.tuples(st.integers(0, 11), st.integers(0, SERVERS - 1), st.integers(0, 2**20))


def weighted(fleet: Fleet, **scorers: float) -> Weighted:
    router = fleet.router("weighted", None, **scorers)
    assert isinstance(router, Weighted)
    return router


class Chooser:
    """Chooses by the scores of everybody; of equals, the one chosen longest ago, then by number."""

    def __init__(self, router: Weighted) -> None:
        self.router = router
        self.choices = 0
        self.chosen_at: dict[int, int] = {}

    def choose(self, request: Request, now_s: float) -> int:
        scores = self.router.explain(request, now_s)
        best = min(scores, key=lambda one: (-one[1], self.chosen_at.get(one[0], 0), one[0]))[0]
        self.choices += 1
        self.chosen_at[best] = self.choices
        return best


def a_request(number: int, luck: int) -> Request:
    """Prompts that share one, two or three segments, or none; some are shorter than their end."""
    depth = luck % 4
    keys = [luck // 4 % 3, 10 + luck // 12 % 2, 20][:depth]
    return prompt(
        number, tokens=96, keys=keys, ends=[32, 40, 96][:depth], adapter=luck // 24 % 3 - 1
    )


def shake(fleet: Fleet, step: tuple[int, int, int]) -> None:
    """Changes what is known of servers, in one of several ways."""
    action, server, luck = step
    signals = fleet.signals
    if action == 0:
        fleet.see(
            running=[luck >> s & 3 for s in range(SERVERS)],
            kv_used=[(luck >> s & 1) / 2 for s in range(SERVERS)],
        )
    elif action == 1:
        signals.ttft_s[server] = luck % 3 / 4
        signals.tpot_s[server] = luck // 3 % 3 / 4
        signals.latency_seen_s[server] = -12.0 + luck % 17
        loaded, queued = [0] if luck % 2 else [0, 1], [luck % 3] if luck % 5 else []
        signals.observe_adapters(server, loaded, 0.0, queued, luck % 3)
        fleet.see()
    elif action in (2, 3, 4):
        fleet.caches(
            server, (0, 1, 2, 10, 11, 20)[luck % 6], (0, 16, 32, 40, 64, 96)[luck // 6 % 6]
        )
    elif action in (5, 6) and signals.in_flight[server]:
        signals.ended(server)


@given(
    st.lists(st.sampled_from(SCORERS), min_size=1, max_size=5, unique=True),
    st.lists(st.sampled_from([0.5, 1.0, 2.0, 3.7]), min_size=5, max_size=5),
    st.lists(STEP, max_size=60),
    st.sampled_from([(16,), (16, 32), (1, 16, 64)]),
)
@example(["no-hit-lru"], [0.5] * 5, [(2, 2, 118), (0, 0, 182)], (1, 16, 64))
@example(["prefix-cache"], [0.5] * 5, [(2, 2, 9), (4, 0, 637), (2, 2, 199)], (16,))
def test_it_chooses_as_if_it_asked_every_scorer_about_everybody(
    names: list[str],
    weights: list[float],
    steps: list[tuple[int, int, int]],
    block_sizes: tuple[int, ...],
) -> None:
    fleet = Fleet(SERVERS, block_sizes=block_sizes)
    scorers = {name.replace("-", "_"): weight for name, weight in zip(names, weights, strict=False)}
    router = weighted(fleet, **scorers)
    reference = Chooser(router)
    for number, step in enumerate(steps):
        shake(fleet, step)
        action, server, luck = step
        if action == 11:
            router.set_candidates([s for s in fleet.everyone if luck >> s & 1] or [server])
        request = a_request(number, luck)
        expected = reference.choose(request, float(number))
        assert chosen(router, request, float(number)) == expected
        if action > 6:
            fleet.send(expected)


def test_the_sum_is_by_share_of_weight() -> None:
    fleet = Fleet(3)
    router = weighted(fleet, prefix_cache=2.0, queue_depth=1.0, kv_utilization=1.0)
    fleet.see(running=[1, 0, 0], kv_used=[0.8, 0.5, 0.0])
    fleet.send(0, 0, 0, 1, 1)  # two wait at each of them
    fleet.caches(0, 7, 80)
    fleet.caches(1, 7, 40)
    request = prompt(keys=[7], tokens=160)
    told = dict(router.explain(request, 0.0))
    assert [round(told[s], 9) for s in range(3)] == [
        0.5 * 1 + 0.25 * 0 + 0.25 * 0.2,
        0.5 * 0.5 + 0.25 * 0 + 0.25 * 0.5,
        0.5 * 0 + 0.25 * 1 + 0.25 * 1,
    ]
    assert chosen(router, request, 0.0) == 0


def test_among_equals_the_one_chosen_longest_ago_is_next() -> None:
    router = weighted(Fleet(3), kv_utilization=1.0)
    assert [chosen(router, prompt(), 0.0) for _ in range(7)] == [0, 1, 2, 0, 1, 2, 0]


def test_requests_between_two_looks_do_not_all_go_to_one_server() -> None:
    fleet = Fleet(4)
    router = weighted(fleet, queue_depth=1.0, kv_utilization=1.0)
    fleet.see(kv_used=[0.1, 0.2, 0.3, 0.4])
    for _ in range(12):
        fleet.send(chosen(router, prompt(), 0.0))
    assert fleet.signals.in_flight == [3, 3, 3, 3]


def test_it_asks_for_signals_only_when_a_scorer_looks_at_them() -> None:
    assert weighted(Fleet(2), kv_utilization=1.0).reads_signals
    assert weighted(Fleet(2), lora_affinity=1.0).reads_signals
    assert not weighted(Fleet(2), load_balance=1.0, prefix_cache=1.0).reads_signals


@given(
    st.lists(st.sampled_from(SCORERS), min_size=1, max_size=4, unique=True),
    st.lists(STEP, max_size=40),
)
def test_servers_may_come_and_go_while_it_chooses(
    names: list[str], steps: list[tuple[int, int, int]]
) -> None:
    fleet = Fleet(1, block_sizes=(16, 32))
    router = weighted(fleet, **{name.replace("-", "_"): 1.0 for name in names})
    reference = Chooser(router)
    ready = [0]
    for number, (action, pick, luck) in enumerate(steps):
        if action in (0, 11):
            ready.append(fleet.grow())
            router.set_candidates(ready[:])
        elif action == 10 and ready:
            gone = ready.pop(pick % len(ready))
            router.set_candidates(ready[:])
            router.gone(gone)
        if not ready:
            continue
        server = ready[pick % len(ready)]
        if action:
            shake(fleet, (action, server, luck))
        request = a_request(number, luck)
        expected = reference.choose(request, float(number))
        assert chosen(router, request, float(number)) == expected
        assert expected in ready
        fleet.send(expected)


def filtered(
    fleet: Fleet,
    *filters: dict[str, object],
    picker: str = "max-score",
    scorer: str = "kv-utilization",
) -> Router:
    """A router over one scorer."""
    data = {"policy": "weighted", "scorers": {scorer: 1}, "cache_delay": "0s"}
    settings = RouterSettings.read({**data, "filters": list(filters), "picker": picker})
    return build_router(settings, fleet.everyone, fleet.inputs(), Stream(1, "router"))


def busy() -> Fleet:
    """Servers of which the freest has the longest queue, and the second most requests in flight."""
    fleet = Fleet(4)
    fleet.see(waiting=[9, 0, 3, 3], kv_used=[0.1, 0.3, 0.5, 0.9])
    fleet.send(1, 1, 1, 1)
    return fleet


def test_filters_keep_servers_before_any_is_scored() -> None:
    assert chosen(filtered(busy()), prompt(), 0.0) == 0
    queues = {"kind": "queue-depth", "max": 3}
    assert chosen(filtered(busy(), queues), prompt(), 0.0) == 1
    in_flight = {"kind": "active-requests", "max": 3}
    assert chosen(filtered(busy(), queues, in_flight), prompt(), 0.0) == 2
    room = {"kind": "kv-utilization", "max": 0.2}
    assert chosen(filtered(busy(), room), prompt(), 0.0) == 0
    # What the first two keep has no such room: the third is passed over.
    assert chosen(filtered(busy(), queues, in_flight, room), prompt(), 0.0) == 2


def test_a_filter_of_adapters_keeps_those_that_have_it() -> None:
    fleet = busy()
    fleet.signals.observe_adapters(3, [7], 0.0)
    router = filtered(fleet, {"kind": "lora-affinity"})
    assert chosen(router, prompt(adapter=7), 0.0) == 3
    assert chosen(router, prompt(adapter=8), 0.0) == 0
    assert chosen(router, prompt(), 0.0) == 0


def test_a_filter_of_prefixes_gives_way_where_they_would_wait_for_long() -> None:
    fleet = busy()
    router = filtered(
        fleet, {"kind": "prefix-cache", "penalty": "10s", "prefill_tokens_per_s": 1000}
    )
    fleet.caches(2, 5, 150)
    fleet.caches(3, 5, 120)
    request = prompt(keys=[5], ends=[160], tokens=160)
    assert chosen(router, request, 0.0) == 2
    assert chosen(router, prompt(), 0.0) == 0
    fleet.signals.sent(2, 10_000)
    assert chosen(router, request, 0.0) == 2
    fleet.signals.sent(2, 1)
    assert chosen(router, request, 0.0) == 0


def test_prompts_cached_only_on_refused_servers_are_rotated_over_the_others() -> None:
    fleet = Fleet(4)
    fleet.see(waiting=[9, 0, 0, 0])
    router = filtered(fleet, {"kind": "queue-depth", "max": 3}, scorer="no-hit-lru")
    for key in range(6):
        fleet.caches(0, key, 80)
    assert [chosen(router, prompt(keys=[key])) for key in range(6)] == [1, 2, 3, 1, 2, 3]
    fleet.caches(2, 7, 80)
    request = prompt(keys=[7])
    assert [score for _, score in router.explain(request, 0.0)] == [0.5] * 4
    assert [chosen(router, request) for _ in range(3)] == [1, 2, 3]


def test_no_hit_lru_ranks_only_servers_that_pass_the_filters() -> None:
    fleet = Fleet(4)
    fleet.see(waiting=[9, 0, 9, 0], kv_used=[0.0, 0.4, 0.0, 0.0])
    data = {"scorers": {"no-hit-lru": 1, "kv-utilization": 2}, "cache_delay": "0s"}
    filters = [{"kind": "queue-depth", "max": 3}]
    settings = RouterSettings.read({"policy": "weighted", **data, "filters": filters})
    router = build_router(settings, fleet.everyone, fleet.inputs(), Stream(1, "router"))
    # Of the two that pass, server 1 scores 1 to 0 by no-hit-lru, and 0.6 to 1 by kv-utilization.
    assert chosen(router, prompt()) == 1


def test_pickers_draw_by_score_or_any() -> None:
    by_score = filtered(busy(), {"kind": "queue-depth", "max": 3}, picker="weighted-random")
    anyone = filtered(busy(), {"kind": "queue-depth", "max": 3}, picker="random")
    for router, shares in ((by_score, [0, 7, 5, 1]), (anyone, [0, 1, 1, 1])):
        counts = [0] * 4
        for _ in range(2600):
            counts[chosen(router, prompt(), 0.0)] += 1
        expected = [2600 * share / sum(shares) for share in shares]
        assert counts[0] == 0
        assert counts == pytest.approx(expected, rel=0.15)
    decision = by_score.choose(prompt(), 0.0)
    assert isinstance(decision, Routed)
    assert decision.reason == "drawn at random by score"
