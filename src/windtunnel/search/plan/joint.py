"""The cheapest joint choice of deployments, one for each of several models, within one budget.

It knows no scenario and runs nothing. Models share accelerators and machines: servers of two models
may be on one machine.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from windtunnel.search.plan.candidates.choices import PlanBudget

DECIMALS = 9
"""Digits to which a cost is rounded."""


class Use(NamedTuple):
    """The resources of a deployment: servers, accelerators per server, and dollars per accelerator.

    Without prices an accelerator costs 1.
    """

    accelerator: str
    degree: int
    servers: int
    price: float

    @property
    def accelerators(self) -> int:
        return self.degree * self.servers

    @property
    def cost(self) -> float:
        return self.accelerators * self.price


class JointUse(NamedTuple):
    """The joint use of one type of accelerator by several deployments."""

    used: int
    """Accelerators used by servers."""
    taken: int
    """The same with those left idle in whole machines."""
    cost: float


def taken_by(uses: Sequence[Use], machine: int | None) -> dict[str, JointUse]:
    """Joint use by accelerator; idle ones of a machine cost as much as the most expensive use of
    their type."""
    found = {}
    for name in dict.fromkeys(use.accelerator for use in uses):
        own = [use for use in uses if use.accelerator == name]
        used = sum(use.accelerators for use in own)
        taken = used if machine is None else machines(own, machine) * machine
        idle = (taken - used) * max(use.price for use in own)
        found[name] = JointUse(used, taken, sum(use.cost for use in own) + idle)
    return found


def cost_of(parts: Iterable[Use | JointUse]) -> float:
    """The total cost, rounded so that it does not depend on the order of summation."""
    return round(math.fsum(one.cost for one in parts), DECIMALS)


def machines(uses: Sequence[Use], machine: int) -> int:
    """Machines that the servers fill, largest servers first; a server is on as few as possible.

    This is the minimum where each size divides the next larger one, as powers of two do.
    """
    free = [0] * (machine + 1)  # machines by number of free accelerators
    count = 0
    for use in sorted(uses, key=lambda one: -one.degree):
        if use.degree >= machine:
            count += use.servers * -(-use.degree // machine)
            continue
        left = use.servers
        for room in range(use.degree, machine + 1):  # the fullest first
            fit = room // use.degree
            filled = min(free[room], left // fit)
            free[room] -= filled
            free[room - fit * use.degree] += filled
            left -= filled * fit
            if free[room] and left and left < fit:
                free[room] -= 1
                free[room - left * use.degree] += 1
                left = 0
        fit = machine // use.degree
        count += -(-left // fit)
        free[machine - fit * use.degree] += left // fit
        if left % fit:
            free[machine - left % fit * use.degree] += 1
    return count


def usable(budget: PlanBudget, accelerator: str) -> int | None:
    """Accelerators of the stock that can be used, those in whole machines; None: unlimited."""
    stock = budget.stock.get(accelerator)
    if stock is None or budget.machine is None:
        return stock
    return stock - stock % budget.machine


def fits(taken: Mapping[str, JointUse], budget: PlanBudget) -> bool:
    """Whether the use is within the stock and the hourly budget."""
    for name, one in taken.items():
        most = usable(budget, name)
        if most is not None and one.taken > most:
            return False
    dollars = budget.dollars_per_hour
    return dollars is None or cost_of(taken.values()) <= dollars


def _undominated(own: Sequence[Use]) -> list[int]:
    """Options without those that another option can always replace at no higher cost."""

    def replaces(other: Use, use: Use) -> bool:
        return (
            other.accelerator == use.accelerator
            and use.degree % other.degree == 0
            and other.accelerators <= use.accelerators
            and other.price <= use.price
        )

    return [
        n
        for n, use in enumerate(own)
        if not any(
            replaces(other, use) and (m < n or not replaces(use, other))
            for m, other in enumerate(own)
            if m != n
        )
    ]


def cheapest(options: Sequence[Sequence[Use]], budget: PlanBudget) -> list[int | None]:
    """The index of the chosen option for each model; None: the model is not served.

    Leaves as few models as possible unserved, then minimizes cost, then prefers more of it to be
    idle. Exact, by branch and bound; of equal choices, the first one found.
    """
    ranked = []
    for own in options:
        alone = [n for n in _undominated(own) if fits(taken_by([own[n]], budget.machine), budget)]
        ranked.append(sorted(alone, key=lambda one: (own[one].cost, one)))
    # For the models from a place on: how many can never be served, and the least cost of the rest.
    never = [sum(not own for own in ranked[place:]) for place in range(len(options) + 1)]
    least = [
        own[known[0]].cost if known else 0.0 for own, known in zip(options, ranked, strict=True)
    ]
    rest = [sum(least[place:]) for place in range(len(options) + 1)]
    best: list[int | None] = [None] * len(options)
    bound = (len(options), 0.0, 0.0)
    chosen: list[int | None] = []
    uses: list[Use] = []

    def walk(unserved: int) -> None:
        nonlocal best, bound
        taken = taken_by(uses, budget.machine)
        if not fits(taken, budget):
            return
        place = len(chosen)
        if place == len(options):
            reached = (unserved, cost_of(taken.values()), cost_of(uses))
            if reached < bound:
                best, bound = list(chosen), reached
            return
        # Fewer unserved models come first, so the least cost of all the rest is a bound.
        spent = cost_of(uses)
        lost = budget.dollars_per_hour is not None
        lost = lost and spent + rest[place] > (budget.dollars_per_hour or 0.0) + 10**-DECIMALS
        least_used = spent if lost else round(spent + rest[place], DECIMALS)
        missing = unserved + max(lost, never[place])
        if (missing, max(least_used, cost_of(taken.values())), least_used) >= bound:
            return
        for number in ranked[place]:
            chosen.append(number)
            uses.append(options[place][number])
            walk(unserved)
            chosen.pop()
            uses.pop()
        chosen.append(None)
        walk(unserved + 1)
        chosen.pop()

    walk(0)
    return best
