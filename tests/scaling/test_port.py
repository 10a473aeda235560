"""The scaler and its loop are driven through their port alone: no twin, no engine."""

import os
import subprocess
import sys

DRIVER = """
import sys
from windtunnel.scaling.actuation import ScalingLoop
from windtunnel.scaling.build import PolicySection, build_scaler, setup_of
from windtunnel.scaling.snapshot import (
    Flow, Model, ReplicaCounts, ReplicaSpec, ReplicaView, Snapshot, Variant,
)
from pathlib import Path
from pydantic import TypeAdapter
from types import SimpleNamespace

pool = SimpleNamespace(
    name="main", role="both", replicas=2, accelerator=None, gpus=1, model=None
)
section = TypeAdapter(PolicySection).validate_python(
    {"policy": "saturation", "interval": "5s", "scrape_delay": "1s", "pools": {"main": {"max": 6}}}
)
setup = setup_of(section, [pool], Path())
loop = ScalingLoop(lambda: build_scaler(setup, ["m"]), setup.timing)
size, now_s = 2, loop.next_tick_s
for _ in range(3):
    replicas = [
        ReplicaView(f"main-{n}", waiting=4, kv_tokens_used=9e4, kv_tokens=1e5) for n in range(size)
    ]
    bounds = setup.bounds["main"]
    seen = Variant(
        "main", minimum=bounds.min, maximum=bounds.max, replicas=replicas,
        counts=ReplicaCounts(size), spec=ReplicaSpec(kv_tokens=1e5),
    )
    snapshot = Snapshot(now_s, [Model("m", [seen], flow=Flow(5.0))])
    next_s = loop.tick(now_s)
    issued = loop.decide(snapshot, loop.arrival_s(now_s))
    if issued.order is not None:
        for outcome in loop.arrived(issued.order, {"main": size}):
            size += outcome.change
            print(outcome.issued.id, outcome.issued.decision.reason)
    now_s = next_s
print("size", size)
foreign = [n for n in sys.modules if n.startswith(("windtunnel.twin", "windtunnel.engine"))]
print("foreign", foreign)
"""


def test_the_loop_of_a_scaler_runs_with_neither_twin_nor_engine() -> None:
    done = subprocess.run(
        [sys.executable, "-c", DRIVER],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env=dict(os.environ),
    )
    *_, size, foreign = done.stdout.splitlines()
    assert size == "size 6"
    assert foreign == "foreign []"
    assert done.stdout.startswith("scaling-1 ")
