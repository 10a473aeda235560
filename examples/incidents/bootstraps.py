"""A fleet that orders the same machines again and again, and one that knows what is on its way.

Run it with `python examples/incidents/bootstraps.py`. A cluster needs 200 machines and loses
eight between two cycles; twenty orders may be given in a cycle, and a machine has joined four
cycles after it was ordered. That is plenty, if each order is for another machine. The old rule
decides by what the provider lists, and there a machine is idle until it has joined: each is
ordered four times over, and five a cycle are fewer than eight. The same planner that remembers
what it decided orders each machine once.
"""

from collections import Counter

from windtunnel.fleet.execution import Executor
from windtunnel.fleet.machine import Machine
from windtunnel.fleet.need import Need, need, profile
from windtunnel.fleet.orders import CONFIGURE, FETCH, ExecutionLimits, MachineOrder
from windtunnel.fleet.planner.cycle import Planner
from windtunnel.fleet.shape import shape
from windtunnel.fleet.states import CONFIGURED, FAILED, IDLE

NEEDED = 200
LOST_A_CYCLE = 8
ORDERS_A_CYCLE = 20
JOINS_AFTER = 4
CYCLES = 120
CYCLE_S = 10.0

SHAPE = shape("gpu", "zone-a", {"gpu": 8}, price_per_hour=20.0)
NEED: Need = need("prod", profile(), {"gpu": 8 * NEEDED}, {"gpu": 8})
LIMITS = ExecutionLimits(actions_per_cycle=ORDERS_A_CYCLE, concurrency=10 * ORDERS_A_CYCLE)


class Provider:
    """The machines as they are: idle until they have joined; some are lost, and others come."""

    def __init__(self) -> None:
        self.idle = [f"m{number:05}" for number in range(2 * NEEDED)]
        self.joined: list[str] = []
        self.under_way: dict[str, int] = {}  # by machine: the cycle in which it has joined
        self.ordered: Counter[str] = Counter()
        self._made = 2 * NEEDED

    def order(self, machine: str, cycle: int) -> None:
        self.ordered[machine] += 1
        self.under_way.setdefault(machine, cycle + JOINS_AFTER)

    def joins(self, cycle: int) -> list[str]:
        """Who has joined since the last cycle."""
        new = [machine for machine, at in self.under_way.items() if at <= cycle]
        for machine in new:
            del self.under_way[machine]
            self.idle.remove(machine)
            self.joined.append(machine)
        return new

    def loses(self) -> tuple[list[str], list[str]]:
        """The oldest fail; as many new ones are idle."""
        lost = self.joined[:LOST_A_CYCLE]
        del self.joined[: len(lost)]
        new = [f"m{self._made + number:05}" for number in range(len(lost))]
        self._made += len(lost)
        self.idle += new
        return lost, new

    def lists(self) -> list[Machine]:
        joined = [
            Machine(name, SHAPE, CONFIGURED, host=name, cluster="prod", holder=NEED.key())
            for name in self.joined
        ]
        return joined + [idle(name) for name in self.idle]


def idle(name: str) -> Machine:
    return Machine(name, SHAPE, IDLE, host=name)


def by_what_is_listed(provider: Provider) -> None:
    """The old rule: every cycle decides anew, by what the provider lists."""
    for cycle in range(CYCLES):
        provider.joins(cycle)
        provider.loses()
        planner = Planner()
        planner.inventory.load(provider.lists())
        planner.needs.replace("prod", [NEED])
        for action in planner.cycle(cycle * CYCLE_S).actions[:ORDERS_A_CYCLE]:
            provider.order(action.machine, cycle)


def with_what_is_decided(provider: Provider) -> None:
    """Ours: what is planned, ordered and under way is counted, and not asked for again."""
    planner = Planner()
    planner.inventory.load(provider.lists())
    planner.needs.replace("prod", [NEED])
    executor = Executor(planner.inventory, LIMITS)
    configuring: dict[str, MachineOrder] = {}
    for cycle in range(CYCLES):
        now_s = cycle * CYCLE_S
        for name in provider.joins(cycle):
            executor.completed(name, configuring.pop(name).token, now_s, [])
        lost, new = provider.loses()
        for name in lost:
            entry = planner.inventory.entries[name]
            planner.inventory.transition(entry, FAILED, now_s, error="lost")
            planner.inventory.remove(name)
        for name in new:
            planner.inventory.add(idle(name))
        orders = executor.submit(planner.cycle(now_s), now_s)
        for order in orders:  # a fetch is answered at once, and a configure follows from it
            if order.operation == FETCH:
                executor.completed(order.machine, order.token, now_s, orders)
            elif order.operation == CONFIGURE:
                configuring[order.machine] = order
                provider.order(order.machine, cycle)


def outcome(provider: Provider) -> dict[str, int]:
    """What became of it: orders, how many were for a machine that had one, who has joined."""
    orders = sum(provider.ordered.values())
    return {
        "orders": orders,
        "repeated": orders - len(provider.ordered),
        "joined": len(provider.joined),
        "short": NEEDED - len(provider.joined),
    }


NAMES = ("by what is listed", "with what is decided")


def both() -> tuple[dict[str, int], dict[str, int]]:
    old, ours = Provider(), Provider()
    by_what_is_listed(old)
    with_what_is_decided(ours)
    return outcome(old), outcome(ours)


if __name__ == "__main__":
    for name, figures in zip(NAMES, both(), strict=True):
        print(f"{name:22}", "  ".join(f"{key} {value:5,}" for key, value in figures.items()))
