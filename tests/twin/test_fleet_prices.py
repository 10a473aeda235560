"""What an autoscaler is told of prices: those of the machines that the next replica would get."""

import pytest

from windtunnel.twin.run import simulate
from windtunnel.twin.scenario.load import load_text
from windtunnel.twin.servers.observation import marginal_price, price_tiers

SCENARIO = """\
name: tiers
duration: 90s
workload:
  - {name: chat, arrivals: {process: poisson, rate: 4/s}, prompt_tokens: 99, output_tokens: 200}
model: llama-3.1-8b
serving:
  pools:
    - {name: fast, replicas: 1, accelerator: h100-sxm}
    - {name: small, replicas: 1, accelerator: l40s}
fleet:
  pools:
    - {name: od, accelerator: h100-sxm, accelerators: 4, price_per_hour: 12, machines: {max: 3}}
    - {name: spot, accelerator: h100-sxm, accelerators: 2, price_per_hour: 2, machines: {max: 1}}
    - {name: l40s, accelerator: l40s, accelerators: 8, price_per_hour: 6, machines: {max: 1}}
"""


def test_the_cheapest_machines_are_taken_first() -> None:
    tiers = price_tiers(load_text(SCENARIO, "tiers.yaml"))
    assert tiers == {"h100-sxm": [(1.0, 2), (3.0, 12)], "l40s": [(0.75, 8)]}
    prices = [marginal_price(tiers["h100-sxm"], used) for used in (0, 1, 2, 13, 14, 99)]
    assert prices == [1.0, 1.0, 3.0, 3.0, 3.0, 3.0]


def test_without_a_fleet_pools_have_their_own_price() -> None:
    head, _, _ = SCENARIO.partition("fleet:")
    assert price_tiers(load_text(head, "tiers.yaml")) == {}


@pytest.mark.parametrize(("spot", "grows_first"), [(0.5, "fast"), (20.0, "small")])
def test_the_pool_whose_next_machine_is_cheapest_grows(spot: float, grows_first: str) -> None:
    sets = [
        "serving.startup={load: {mean: 5s}}",
        f"fleet.pools.1.price_per_hour={spot}",
        "fleet.pools.0.price_per_hour=200",
        "fleet.pools.1.machines={initial: 2, max: 8}",
        "fleet.pools.2.machines={initial: 1, max: 1}",
        "scaling={policy: saturation, interval: 5s, up: 0.01, down: 0.0001,"
        " optimizer: {order: price}, pools: {fast: {max: 4}, small: {max: 4}}}",
    ]
    result = simulate(load_text(SCENARIO, "tiers.yaml", sets))
    most = {name: pool["replicas"]["most"] for name, pool in result["pools"].items()}
    assert [name for name, size in most.items() if size > 1] == [grows_first]
