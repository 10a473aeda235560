"""The joint choice against trying every combination."""

import itertools
import math

from hypothesis import given
from hypothesis import strategies as st

from windtunnel.search.plan.candidates.choices import PlanBudget
from windtunnel.search.plan.joint import Use, cheapest, fits, machines, taken_by

PRICES = {"h100": 3.0, "l4": 0.5, "": 1.0}
USES = st.builds(
    lambda name, power, servers: Use(name, 2**power, servers, PRICES[name]),
    st.sampled_from(list(PRICES)),
    st.integers(0, 4),
    st.integers(1, 5),
)
BUDGETS = st.builds(
    PlanBudget,
    st.dictionaries(st.sampled_from(["h100", "l4"]), st.integers(0, 40)),
    st.sampled_from([None, 4, 8]),
    st.none() | st.floats(1, 60),
)


def by_hand(uses: list[Use], budget: PlanBudget) -> float | None:
    """The cost of a choice within the budget; sizes that are powers of two leave no gaps."""
    cost = 0.0
    for name, price in PRICES.items():
        used = sum(use.degree * use.servers for use in uses if use.accelerator == name)
        most = budget.stock.get(name, math.inf)
        if budget.machine is not None:
            used = -(-used // budget.machine) * budget.machine
        if used > most:
            return None
        cost += used * price
    if budget.dollars_per_hour is not None and round(cost, 9) > budget.dollars_per_hour:
        return None
    return cost


@given(st.lists(st.lists(USES, max_size=4), min_size=1, max_size=4), BUDGETS)
def test_the_choice_is_the_cheapest_of_all_that_serve_most(
    options: list[list[Use]], budget: PlanBudget
) -> None:
    scores = []
    for chosen in itertools.product(*([*range(len(own)), None] for own in options)):
        uses = [own[n] for own, n in zip(options, chosen, strict=True) if n is not None]
        cost = by_hand(uses, budget)
        if cost is not None:
            scores.append((chosen.count(None), cost, sum(use.cost for use in uses)))
    found = cheapest(options, budget)
    uses = [own[n] for own, n in zip(options, found, strict=True) if n is not None]
    taken = taken_by(uses, budget.machine)
    assert fits(taken, budget)
    least = min(scores)
    assert found.count(None) == least[0]
    assert math.isclose(sum(one.cost for one in taken.values()), least[1], abs_tol=1e-9)
    assert math.isclose(sum(use.cost for use in uses), least[2], abs_tol=1e-9)


@given(st.lists(st.builds(Use, st.just("x"), st.integers(1, 9), st.integers(1, 6), st.just(1.0))))
def test_machines_hold_their_servers(uses: list[Use]) -> None:
    """Of any sizes: never fewer than the accelerators need, never more than each by itself."""
    alone = PlanBudget({}, 8, None)
    used = sum(use.accelerators for use in uses)
    assert machines(uses, 8) >= -(-used // 8)
    assert machines(uses, 8) <= sum(alone.machines(use.servers, use.degree) for use in uses)


def test_servers_of_two_models_share_a_machine() -> None:
    small, large = Use("h100", 1, 3, 2.0), Use("h100", 4, 1, 2.0)
    assert taken_by([small, large], 8)["h100"] == (7, 8, 16.0)
    assert machines([Use("x", 5, 2, 1.0), Use("x", 3, 2, 1.0), Use("x", 1, 1, 1.0)], 8) == 3


def test_six_models_and_a_whole_catalog_are_chosen_at_once() -> None:
    """Options that never fit, and those that others replace, do not multiply the work."""
    kinds = [(f"a{n}", 0.5 + n % 7) for n in range(29)]
    options = [
        [Use(name, degree, 1 + (5 * n + m) // degree, price + 0.01 * m)
         for m, (name, price) in enumerate(kinds) for degree in (1, 2, 4, 8)]
        for n in range(1, 7)
    ]  # fmt: skip
    scarce = PlanBudget({name: 16 for name, _ in kinds}, 8, None)
    found = cheapest(options, scarce)
    uses = [own[n] for own, n in zip(options, found, strict=True) if n is not None]
    assert uses
    assert fits(taken_by(uses, 8), scarce)
