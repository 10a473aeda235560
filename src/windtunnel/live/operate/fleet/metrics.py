"""The Prometheus metrics of a fleet."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from windtunnel.live.metrics import counter, gauge
from windtunnel.live.operate.fleet.program import FleetProgram

PREFIX = "windtunnel_fleet_"


def fleet_families(program: FleetProgram | None) -> Iterator[Any]:
    """All metrics with their current values; none without a fleet."""
    if program is None:
        return
    shards, coordinator = program.shards, program.coordinator
    leads = [(one.name, float(one.elector.led.is_set())) for one in shards]
    yield gauge(f"{PREFIX}leader", "1 on the leader.", leads, "shard")
    controllers = [(one.name, one.controller) for one in shards if one.controller is not None]
    machines = [
        ((name, *key), count)
        for name, controller in controllers
        for key, count in controller.counts().items()
    ]
    says = "Machines by state."
    yield gauge(f"{PREFIX}machines", says, machines, "shard", "pool", "state")
    short = [(name, len(controller.verdicts)) for name, controller in controllers]
    yield gauge(f"{PREFIX}needs_short", "Needs that lack machines.", short, "shard")
    parts = [*shards, *([] if coordinator is None else [coordinator])]
    unreadable = [(one.name, float(bool(one.fault))) for one in parts]
    says = "1 while a ConfigMap of the fleet cannot be read."
    yield gauge(f"{PREFIX}state_unreadable", says, unreadable, "shard")
    calls = [((one.name, *key), number) for one in shards for key, number in one.counts.items()]
    says = "Calls to the API server."
    yield counter(f"{PREFIX}calls", says, calls, "shard", "verb", "kind", "outcome")
