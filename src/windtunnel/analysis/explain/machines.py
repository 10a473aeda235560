"""How long a machine took from the decision to order it until it was usable."""

import msgspec

from windtunnel.analysis.explain.history import ControlHistory, LoggedEvent, ReplicaLife
from windtunnel.analysis.explain.steps import took

ORDERS = ("fleet.provision", "fleet.bootstrap", "fleet.adopt", "fleet.preempt")
UNTIL_CREATED = "until its creation began"
CREATING, IDLE = "machine.creating", "machine.idle"
CONFIGURING, CONFIGURED = "machine.configuring", "machine.configured"


class Arrival(msgspec.Struct, frozen=True):
    """How a machine joined a cluster."""

    machine: str
    kind: str
    order: LoggedEvent
    seconds: dict[str, float]
    """The seconds of each part, in order; parts of no time are omitted."""
    end_s: float | None
    """When it was usable; None: never."""

    @property
    def begun_s(self) -> float:
        """When its creation began; if it already existed, when it was ordered."""
        return self.order.time + self.seconds.get(UNTIL_CREATED, 0.0)

    def in_words(self) -> str:
        parts = ", ".join(f"{took(seconds)} {part}" for part, seconds in self.seconds.items())
        return parts if self.end_s is not None else f"{parts}, and it never arrived".strip(", ")


def arrival_of(history: ControlHistory, machine: str, before_s: float) -> Arrival | None:
    """The last time a machine joined a cluster, if it was ordered during the run."""
    events = [one for one in history.of_machine.get(machine, []) if one.time <= before_s]
    order = next((one for one in reversed(events) if one.kind in ORDERS), None)
    if order is None:
        return None
    after = [one for one in history.of_machine[machine] if one.time >= order.time]
    times: dict[str, float] = {}
    for one in after:
        times.setdefault(one.kind, one.time)
        if one.kind == CONFIGURED:
            break
    seconds: dict[str, float] = {}
    at_s = order.time
    for kind, part in (
        (CREATING, UNTIL_CREATED),
        (IDLE, "to be created"),
        (CONFIGURED, "to join the cluster"),
    ):
        if kind in times and times[kind] >= at_s:
            if times[kind] > at_s:
                seconds[part] = times[kind] - at_s
            at_s = times[kind]
    return Arrival(machine, order.data.get("kind", ""), order, seconds, times.get(CONFIGURED))


def arrivals_of(history: ControlHistory, life: ReplicaLife) -> list[Arrival]:
    """The machines of a replica that it had to wait for."""
    placed_s = life.since.get("starting", life.since.get("ready", float("inf")))
    found = []
    for machine in life.machines:
        came = arrival_of(history, machine, placed_s)
        if came is not None and (came.end_s is None or came.end_s > life.asked_s):
            found.append(came)
    return found
