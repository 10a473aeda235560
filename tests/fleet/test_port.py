"""Demand, shard and execution work through their ports, with neither twin nor engine imported."""

import json
import subprocess
import sys
from pathlib import Path

DRIVER = Path(__file__).parent / "port_driver.py"


def test_a_fleet_is_driven_without_the_twin_and_without_engines() -> None:
    done = subprocess.run([sys.executable, DRIVER], capture_output=True, text=True, check=True)
    said = json.loads(done.stdout)
    assert said["joined"] == {"m0": "configured", "m1": "configured", "m2": "speculative"}
    assert said["kept"] == 2
    assert said["left"] == {"m0": "configured", "m1": "idle", "m2": "speculative"}
    assert said["actions"] == ["bootstrap", "provision", "reclaim"]
    assert sorted(said["orders"]) == ["configure m0", "configure m1", "create m1", "drain m1"]
    foreign = ("windtunnel.twin", "windtunnel.engine", "windtunnel.gangs", "windtunnel.models")
    assert [name for name in said["modules"] if name.startswith(foreign)] == []
