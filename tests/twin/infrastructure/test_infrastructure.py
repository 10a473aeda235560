"""Gangs and machines under the servers of a run."""

import pytest

from tests.twin.infrastructure.worlds import FLEET, PLAIN, SCALING, composed, scenario, told
from windtunnel.core.errors import InputError
from windtunnel.core.invariants import InvariantChecker
from windtunnel.twin.checks import INVARIANTS
from windtunnel.twin.fleet.pools import initial_machines
from windtunnel.twin.infrastructure.checks import InfrastructureChecker
from windtunnel.twin.results.chance import draws
from windtunnel.twin.run import simulate
from windtunnel.twin.scenario.load import load_text
from windtunnel.twin.servers.observation import startup_s_of
from windtunnel.twin.servers.replicas import PENDING, READY


def nothing(_: object) -> None:
    pass


def test_a_run_begins_with_what_fits_on_its_machines() -> None:
    simulation, infrastructure = composed(
        scenario(replicas=3, machines="{initial: 2, max: 4}", count=200)
    )
    pool = simulation.cluster.pools[0]
    assert pool.counts[READY] == 2
    assert pool.coming_or_ready == 3
    assert infrastructure.machines is not None
    assert infrastructure.machines.meter.accounts["big"].here == 2
    simulation.run(nothing)
    third = pool.replicas[2]
    # A cycle of the fleet, 60 s for a machine, 5 s to join, a pass of the scheduler, 30 s to load.
    assert 95.0 <= third.ready_s <= 107.0


def test_initial_machines_are_those_that_replicas_need() -> None:
    plan = scenario(replicas=3, tp=4)
    assert plan.sections.fleet is not None
    assert initial_machines(plan.sections.fleet, plan.pools) == [2]
    simulation, _ = composed(plan)
    assert simulation.cluster.pools[0].counts[READY] == 3


def test_the_whole_loop() -> None:
    """Traffic, autoscaler, pods, machines, and back again."""
    plan = scenario(replicas=1, count=400, more=SCALING.format(most=4))
    result, events = told(plan)
    kinds = [event.kind for event in events]
    at = kinds.index("scaling.decided")
    for kind in ("fleet.provision", "machine.creating", "machine.configured", "replica.starting"):
        at = kinds.index(kind, at)
    assert "replica.ready" in kinds[at:]
    assert result["fleet"]["pools"]["big"]["created"] >= 1
    assert result["requests"]["completed"] == 400
    assert result["cost"]["total"] == pytest.approx(result["fleet"]["cost"])
    assert result["decisions"]["fleet_actions"] == sum(result["fleet"]["actions"].values())


def test_machines_cost_while_they_are_there() -> None:
    plan = scenario(replicas=1, count=30, duration="duration: 10m", machines="{min: 2, max: 4}")
    result = simulate(plan, check=True)
    big = result["fleet"]["pools"]["big"]
    assert big["machine_seconds"] == pytest.approx(2 * 600.0)
    assert big["cost"] == pytest.approx(2 * 36.0 / 6)


def test_the_requests_of_a_lost_machine_begin_anew() -> None:
    simulation, infrastructure = composed(scenario(replicas=2, count=60))
    machines = infrastructure.machines
    assert machines is not None
    lost = False

    def look(_: object) -> None:
        nonlocal lost
        if simulation.now_s > 30.0 and not lost:
            lost = True
            machines.lose("big-0", "it burnt", simulation.now_s)
            infrastructure.wake(simulation.now_s)
            simulation.control.settle(simulation.now_s)

    simulation.run(nothing, look)
    assert lost
    assert simulation.cluster.pools[0].lost == 1
    assert simulation.recorder.outcomes["completed"] == 60
    assert machines.meter.accounts["big"].lost == 1


def test_a_run_without_a_duration_ends_when_machines_never_come() -> None:
    more = SCALING.format(most=8).replace("policy:", "accelerators: {h200: 64}, policy:")
    plan = scenario(replicas=1, count=150, machines="{initial: 1, max: 1}", more=more)
    result = simulate(plan, check=True)
    assert result["requests"]["completed"] == 150
    assert result["fleet"]["pools"]["big"]["most"] == 1
    assert "QUOTA_EXHAUSTED: short of " in next(iter(result["fleet"]["short"].values()))


def test_an_autoscaler_knows_how_long_a_machine_takes() -> None:
    """The model loads for 30 s; before that there is a cycle of 10 s, and 60 s for a machine."""
    for fleet, startup_s in ((False, 30.0), (True, 100.0)):
        plan = scenario(fleet=fleet, more=SCALING.format(most=4))
        assert startup_s_of(plan, plan.pools[0]) == startup_s


def test_an_autoscaler_knows_the_quota() -> None:
    more = SCALING.format(most=8)
    plan = scenario(replicas=1, count=150, machines="{initial: 1, max: 2}", more=more)
    result = simulate(plan, check=True)
    sizes = [size[1] for size in result["scaling"]["pools"]["main"]["sizes"]]
    assert max(sizes) == 2
    assert result["fleet"]["short"] == {}


def test_the_same_run_twice_is_the_same() -> None:
    plan = scenario(replicas=1, count=150, more=SCALING.format(most=4))
    assert simulate(plan) == simulate(plan)


@pytest.mark.parametrize(
    ("machines", "what"),
    [
        ("{min: 3, max: 2}", "3 is more than max"),
        ("{initial: 5, max: 4}", "5 is not between min and max"),
        ("{min: -1, max: 4}", "-1 is too small"),
        ("{max: .nan}", "not a whole number"),
        ("{max: .inf}", "not a whole number"),
        ("{initial: 0, max: 0}", "can hold 0"),
        ("{initial: 1, max: 1}", "can hold 1"),
    ],
)
def test_counts_of_machines_are_held_to_each_other(machines: str, what: str) -> None:
    with pytest.raises(InputError, match=what):
        scenario(machines=machines)


PRIORITIES = """
name: two
workload:
  - {name: chat, count: 100, arrivals: {process: constant, rate: 2/s},
     prompt_tokens: {distribution: constant, value: 100},
     output_tokens: {distribution: constant, value: 200}}
serving:
  pools:
    - name: low
      accelerator: h200
      replicas: 2
      tensor_parallel: 8
      engine: {kv_blocks: 500, max_num_seqs: 4}
      step_time: {model: linear, fixed: 20ms, per_prefill_token: 10us, per_decode: 1ms}
    - {name: high, priority: 100, replicas: 0, accelerator: h200, tensor_parallel: 8,
       engine: {kv_blocks: 500, max_num_seqs: 4},
       step_time: {model: linear, fixed: 20ms, per_prefill_token: 10us, per_decode: 1ms}}
  drain: {policy: POLICY}
fleet:
  pools: [{name: big, accelerator: h200, machines: {max: 2}, price_per_hour: 36}]
scaling: {policy: saturation, interval: 1h, pools: {low: {min: 1, max: 2}, high: {min: 0, max: 1}}}
"""


@pytest.mark.parametrize("policy", ["wait", "redirect", "immediate"])
def test_a_pool_of_higher_priority_takes_a_machine(policy: str) -> None:
    simulation, infrastructure = composed(load_text(PRIORITIES.replace("POLICY", policy)))
    low, high = simulation.cluster.pools
    checker, below = InvariantChecker(INVARIANTS), InfrastructureChecker(infrastructure)
    asked = False

    def look(_: object) -> None:
        nonlocal asked
        checker.run(simulation, "test")
        below.check("test")
        if simulation.now_s > 10.0 and not asked:
            asked = True
            simulation.lifecycle.set_target(high, 1, simulation.now_s, "test")
            simulation.control.settle(simulation.now_s)

    simulation.run(nothing, look)
    assert infrastructure.machines is not None
    assert "main/" in next(iter(infrastructure.machines.verdicts)), "who made room asks for another"
    assert (high.counts[READY], low.counts[READY], low.counts[PENDING]) == (1, 1, 1)
    assert low.lost == 0
    assert (low.redirected > 0) == (policy != "wait")
    assert simulation.recorder.outcomes["completed"] == 100


def test_a_machine_moves_to_the_cluster_of_higher_priority() -> None:
    """The fleet drains it, its requests end, and it joins the other cluster."""
    text = PRIORITIES.replace("POLICY", "wait").replace("name: high,", "name: high, cluster: west,")
    text = text.replace("replicas: 2", "replicas: 1").replace("replicas: 0", "replicas: 1")
    text = text.replace("high: {min: 0, max: 1}", "high: {min: 0, max: 2}")
    simulation, infrastructure = composed(load_text(text))
    low, high = simulation.cluster.pools
    checker, below = InvariantChecker(INVARIANTS), InfrastructureChecker(infrastructure)
    asked = False

    def look(_: object) -> None:
        nonlocal asked
        checker.run(simulation, "test")
        below.check("test")
        if simulation.now_s > 10.0 and not asked:
            asked = True
            simulation.lifecycle.set_target(high, 2, simulation.now_s, "test")
            simulation.control.settle(simulation.now_s)

    simulation.run(nothing, look)
    assert infrastructure.machines is not None
    assert infrastructure.machines.actions == {"preempt": 1, "bootstrap": 1}
    assert (high.counts[READY], low.counts[READY], low.counts[PENDING]) == (2, 0, 1)
    assert (low.lost, low.drained) == (0, 1)
    assert simulation.recorder.outcomes["completed"] == 100


def test_machines_that_always_take_the_same_time_are_the_same_with_any_seed() -> None:
    text = PLAIN.format(
        replicas=2, tp=8, count=20, duration="", more=FLEET.format(machines="{max: 4}")
    )
    assert not draws(load_text(text))
    one, other = (simulate(load_text(text, seed=seed)) for seed in (1, 2))
    assert one["latency"] == other["latency"]
    assert draws(load_text(text.replace("{mean: 60s}", "{mean: 60s, stddev: 60s}")))
