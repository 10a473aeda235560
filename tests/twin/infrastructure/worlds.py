"""Small scenarios whose servers stand on gangs and machines."""

from typing import Any

from tests.core.sinks import MemorySink
from windtunnel.core.telemetry import Event
from windtunnel.twin.compose import compose
from windtunnel.twin.infrastructure.infrastructure import Infrastructure
from windtunnel.twin.run import run
from windtunnel.twin.scenario.load import load_text
from windtunnel.twin.scenario.plan import ScenarioPlan
from windtunnel.twin.simulation import Simulation

PLAIN = """
name: plain
{duration}
workload:
  - {{name: chat, count: {count}, arrivals: {{process: constant, rate: 1/s}},
     prompt_tokens: {{distribution: constant, value: 100}},
     output_tokens: {{distribution: constant, value: 200}}}}
serving:
  pools:
    - {{name: main, accelerator: h200, replicas: {replicas}, tensor_parallel: {tp},
       engine: {{kv_blocks: 500, max_num_seqs: 4}},
       step_time: {{model: linear, fixed: 20ms, per_prefill_token: 10us, per_decode: 1ms}}}}
  startup: {{load: {{mean: 30s}}}}
  router: {{policy: least-loaded}}
{more}
"""
FLEET = """
fleet:
  pools:
    - {{name: big, accelerator: h200, accelerators: 8, machines: {machines}, price_per_hour: 36,
       provisioning: {{mean: 60s}}, machines_per_rack: 2}}
"""
SCALING = """
scaling: {{policy: saturation, pools: {{main: {{min: 1, max: {most}}}}}}}
"""


def scenario(
    *,
    replicas: int = 2,
    tp: int = 8,
    count: int = 60,
    duration: str = "",
    machines: str = "{max: 4}",
    more: str = "",
    fleet: bool = True,
) -> ScenarioPlan:
    text = more + (FLEET.format(machines=machines) if fleet else "")
    return load_text(
        PLAIN.format(replicas=replicas, tp=tp, count=count, duration=duration, more=text)
    )


def composed(plan: ScenarioPlan) -> tuple[Simulation, Infrastructure]:
    simulation = compose(plan)
    infrastructure = simulation.lifecycle.infrastructure
    assert isinstance(infrastructure, Infrastructure)
    return simulation, infrastructure


def told(plan: ScenarioPlan) -> tuple[dict[str, Any], list[Event]]:
    """The result, under every invariant, and what was told."""
    events = MemorySink()
    return run(plan, events=events, check=True).result, events.events
