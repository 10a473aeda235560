"""Drives the fleet's controllers through their ports, as a live driver would: without the twin.

Run as a program, it prints what happened as JSON, with the modules that it took.
"""

import json
import sys

from windtunnel.fleet.demand.demand import Demand
from windtunnel.fleet.demand.requests import ACCELERATOR, GPU, MachineKind, PodRequest
from windtunnel.fleet.machine import Machine, transition
from windtunnel.fleet.orders import CONFIGURE, CREATE, FETCH, TAG, MachineOrder
from windtunnel.fleet.planner.actions import ACTIONS
from windtunnel.fleet.provider import STEPS, Completion, Page
from windtunnel.fleet.shape import shape
from windtunnel.fleet.shard import Shard
from windtunnel.fleet.states import CONFIGURED, IDLE, STATES

BIG = shape("big", "z1", {GPU: 8}, labels={ACCELERATOR: "h200"}, price_per_hour=30.0)
KIND = MachineKind({GPU: 8.0}, {ACCELERATOR: "h200"})


class Provider:
    """Machines that do at once what they are told, and report it."""

    def __init__(self) -> None:
        idle = [Machine("m0", BIG, IDLE, host="h0")]
        self.machines = {one.id: one for one in [*idle, Machine("m1", BIG), Machine("m2", BIG)]}
        self.orders: list[str] = []

    def carry_out(self, order: MachineOrder, now_s: float) -> None:
        step, before = STEPS[order.operation], self.machines[order.machine]
        begun = transition(
            before,
            step.under_way,
            now_s,
            cluster=order.cluster if order.operation == CONFIGURE else None,
            holder=order.need if order.operation in (CREATE, CONFIGURE) else None,
        )
        host = f"h-{before.id}" if order.operation == CREATE else None
        self.machines[order.machine] = transition(begun, step.end, now_s, host=host)
        self.orders.append(f"{order.operation} {order.machine}")


class Driver:
    """One cluster, one shard, one provider."""

    def __init__(self) -> None:
        self.provider, self.shard = Provider(), Shard("s")
        self.demand = Demand("east", [KIND])
        self.actions: list[str] = []

    def pods(self, names: list[str], node: str = "") -> None:
        for number, name in enumerate(names):
            requests = {GPU: 4.0}
            pod = PodRequest(name, name, requests, {ACCELERATOR: "h200"}, place=("q", number))
            self.demand.pod(pod, node, pending=not node, gated=False)

    def cycle(self, now_s: float) -> None:
        shard = self.shard
        shard.fold(Page(list(self.provider.machines.values()), [], 1), now_s)
        self.demand.look(now_s)
        shard.want("east", [row.need("east") for row in self.demand.rows])
        plan, orders = shard.cycle(now_s)
        self.actions += [ACTIONS[one.kind] for one in plan.actions]
        for order in orders:  # grows
            if order.operation not in (FETCH, TAG):
                self.provider.carry_out(order, now_s)
            if order.operation != TAG:
                host = self.provider.machines[order.machine].host
                done = Completion(order.machine, order.token, host=host)
                orders += shard.answer(done, now_s)
        for rank, one in enumerate(self.provider.machines.values()):
            if one.state == CONFIGURED and one.holder is not None:
                labels = {ACCELERATOR: "h200"}
                self.demand.node(one.id, {GPU: 8.0}, labels, ready=True, cordoned=False)
                self.demand.hold(one.id, one.holder.group, rank)
            else:
                self.demand.release(one.id)


def main() -> None:
    driver = Driver()
    driver.pods(["p0", "p1", "p2"])
    driver.cycle(0.0)
    driver.cycle(10.0)
    joined = {one.id: STATES[one.state] for one in driver.provider.machines.values()}
    driver.pods(["p0", "p1"], "m0")
    driver.pods(["p2"], "m1")
    driver.cycle(20.0)
    kept = len(driver.demand.rows)
    driver.demand.pod_gone("p2")
    driver.cycle(30.0)
    driver.cycle(40.0)
    said = {
        "joined": joined,
        "kept": kept,
        "left": {one.id: STATES[one.state] for one in driver.provider.machines.values()},
        "actions": driver.actions,
        "orders": driver.provider.orders,
        "modules": sorted(name for name in sys.modules if name.startswith("windtunnel.")),
    }
    sys.stdout.write(json.dumps(said))


if __name__ == "__main__":
    main()
