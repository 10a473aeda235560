"""Drives every router through its port, as a gateway in front of real servers would.

It is a program: `python -m tests.routing.port_driver` prints what the routers decided as JSON. What
it imports is what a driver needs, and neither simulated servers nor a simulation are among it.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from windtunnel.core.random import Stream
from windtunnel.core.signals import Signals
from windtunnel.routing.build import (
    POLICIES,
    SCORERS,
    RouterInputs,
    build_counterfactual,
    build_router,
)
from windtunnel.routing.custom import RequestLabels, RequestView, ServerView
from windtunnel.routing.prefixes import CacheJournal
from windtunnel.routing.router import NoServer, Routed, Router, SplitDecider
from windtunnel.routing.settings import RouterSettings
from windtunnel.workload.request import PrefixChain, Request

SERVERS = 3
SYSTEM_PROMPT = 7
"""The key of a prefix that prompts share."""


class CacheEvents:
    """Prefix caches as KV-cache events tell of them; events of servers nobody reads are dropped."""

    def __init__(self) -> None:
        self._readers: dict[int, list[int]] = {}

    def servers(self) -> int:
        return SERVERS

    def block_size(self, server: int) -> int:
        return 16

    def subscribe(self, server: int, changes: list[int]) -> None:
        self._readers[server] = changes

    def unsubscribe(self, server: int) -> None:
        self._readers.pop(server, None)

    def stored(self, server: int, key: int, tokens: int) -> None:
        if server in self._readers:
            self._readers[server].extend((server, key, tokens))


class Fullest:
    """A custom policy: the highest KV utilization among loads that are at most 2 s old."""

    def choose(self, request: RequestView, servers: Sequence[ServerView]) -> ServerView:
        fresh = [server for server in servers if server.load_age_s <= 2.0]
        return max(fresh, key=lambda server: (server.kv_used, server.number))


class Driver:
    """Three servers: 0 is busy and has the prefix, 1 is idle, 2 has the adapter."""

    def __init__(self) -> None:
        self.signals = Signals([8] * SERVERS, 1.0)
        self.caches = CacheEvents()
        self.inputs = RouterInputs(
            self.signals,
            CacheJournal(self.caches),
            ["main"] * SERVERS,
            RequestLabels(adapters=["sql", "chat"]),
            Path(),
        )

    def router(self, settings: RouterSettings) -> Router:
        candidates = list(range(SERVERS))
        return build_router(settings, candidates, self.inputs, Stream(1, "router"))

    def observe(self, signals: Signals) -> None:
        """A scrape of each server, one second after the other, as it may be live."""
        signals.observe_load(0, 2, 4, 0.9, 1.0)
        signals.observe_load(1, 0, 0, 0.0, 2.0)
        signals.observe_load(2, 0, 2, 0.5, 3.0)
        signals.observe_adapters(2, [1], 3.0)
        signals.refreshed(3.0)

    def begin(self) -> None:
        for server, in_flight in enumerate((6, 0, 2)):
            for _ in range(in_flight):
                self.signals.sent(server)
        self.signals.observe_latency(0, 0.5, 0.05)
        self.signals.observe_latency(2, 0.1, 0.01)
        self.observe(self.signals)
        self.caches.stored(0, SYSTEM_PROMPT, 64)

    def decisions(self, router: Router) -> list[list[object]]:
        """Three requests of one session, each sent where the router says."""
        made: list[list[object]] = []
        for number in range(3):
            decision = router.choose(prompt(number), 3.5)
            assert isinstance(decision, Routed)
            self.signals.sent(decision.server)
            made.append([int(decision.server), decision.reason])
        return made


def prompt(number: int) -> Request:
    prefix = PrefixChain([SYSTEM_PROMPT], [64])
    request = Request(number, 3.0, 128, 1, prefix=prefix)
    request.session = 5
    request.adapter = 1
    return request


def decide(**options: Any) -> dict[str, Any]:
    """What a router of these settings decides, and its scores before the first decision."""
    driver = Driver()
    router = driver.router(RouterSettings(cache_delay_s=0.0, **options))
    driver.begin()
    scores = [[server, round(score, 6)] for server, score in router.explain(prompt(0), 3.5)]
    made = driver.decisions(router)
    router.set_candidates([])
    none = router.choose(prompt(9), 4.0)
    assert isinstance(none, NoServer)
    return {"decisions": made, "scores": scores, "without servers": none.reason}


def regret() -> dict[str, Any]:
    """A choice judged by default scorers, on signals that the driver observes for it."""
    driver = Driver()
    settings = RouterSettings(counterfactual=2)
    judge = build_counterfactual(settings, list(range(SERVERS)), driver.inputs)
    driver.begin()
    driver.observe(judge.signals)
    judged = judge.judge(prompt(0), 1, 3.5)
    return {
        "score": round(judged.score, 6),
        "others": [[server, round(score, 6)] for server, score in judged.others],
        "regret": round(judged.regret, 6),
    }


def split() -> list[list[object]]:
    decider = SplitDecider("prefix-threshold", 100)
    decisions = [decider.decide(200, cached) for cached in (0, 150)]
    return [[decision.split, decision.reason] for decision in decisions]


def main() -> None:
    found = {
        "policies": {policy: decide(policy=policy) for policy in POLICIES},
        "scorers": {name: decide(policy="weighted", scorers={name: 1.0}) for name in SCORERS},
        "custom": decide(policy="tests.routing.port_driver:Fullest"),
        "regret": regret(),
        "split": split(),
        "modules": sorted(name for name in sys.modules if name.startswith("windtunnel.")),
    }
    print(json.dumps(found))  # noqa: T201 - the program's output


if __name__ == "__main__":
    main()
