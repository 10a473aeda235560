"""The Prometheus metrics of a fleet."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from windtunnel.live.operate.fleet.program import FleetProgram


class FleetCollector:
    """A fleet's metrics, collected at each scrape."""

    def __init__(self, find: Callable[[], FleetProgram | None]) -> None:
        self._find: Final = find

    def collect(self) -> Iterable[Any]:
        from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

        program = self._find()
        if program is None:
            return
        name = "windtunnel_fleet_"
        leads = GaugeMetricFamily(f"{name}leader", "1 on the leader.", labels=["shard"])
        machines = GaugeMetricFamily(
            f"{name}machines", "Machines by state.", labels=["shard", "pool", "state"]
        )
        short = GaugeMetricFamily(
            f"{name}needs_short", "Needs that lack machines.", labels=["shard"]
        )
        unreadable = GaugeMetricFamily(
            f"{name}state_unreadable",
            "1 while a ConfigMap of the fleet cannot be read.",
            labels=["shard"],
        )
        calls = CounterMetricFamily(
            f"{name}calls", "Calls to the API server.", labels=["shard", "verb", "kind", "outcome"]
        )
        for one in program.shards:
            leads.add_metric([one.name], float(one.elector.led.is_set()))
            unreadable.add_metric([one.name], float(bool(one.fault)))
            for key, number in one.counts.items():
                calls.add_metric([one.name, *key], number)
            if one.controller is not None:
                short.add_metric([one.name], len(one.controller.verdicts))
                for (pool, state), count in one.controller.counts().items():
                    machines.add_metric([one.name, pool, state], count)
        if program.coordinator is not None:
            found = program.coordinator
            unreadable.add_metric([found.name], float(bool(found.fault)))
        yield from (leads, machines, short, unreadable, calls)
