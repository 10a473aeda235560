"""CPU time per simulated request: compiled, interpreted, with long outputs, against stepping."""

import math
import os
import subprocess
import sys

from tests.engine.reference.engine import ReferenceServer

from benchmarks.claim import Claim, insist_on_compiled, least_cpu_s, report
from benchmarks.serving import chat
from windtunnel.core.clock import cpu_s
from windtunnel.core.random import Streams
from windtunnel.engine.limits import EngineLimits
from windtunnel.engine.server import Server
from windtunnel.engine.settings import EngineSettings
from windtunnel.models.catalog.accelerators import resolve_accelerator
from windtunnel.models.catalog.models import resolve_model
from windtunnel.models.step_time.profile import physics_model
from windtunnel.twin.run import simulate
from windtunnel.workload.traffic import Traffic

REQUESTS = 100_000
COMPILED_US = 4.0
INTERPRETED_US = 35.0
LONG_OUTPUT_RATIO = 1.3
STEPPED_REQUESTS = 300


def us_per_request(requests: int, output: int, repeats: int) -> float:
    plan = chat(requests, output)
    return least_cpu_s(lambda: simulate(plan), repeats) / requests * 1e6


def interpreted_us() -> float:
    """Measured in a separate process, since a process has only one form."""
    measure = f"us_per_request({REQUESTS // 5}, 256, 3)"
    code = f"from benchmarks.engine_speed import us_per_request; print({measure})"
    environment = os.environ | {"WINDTUNNEL_FORM": "interpreted"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return float(done.stdout)


def drive(server: Server | ReferenceServer) -> float:
    """CPU seconds for one server to serve the same few hundred requests."""
    plan = chat(STEPPED_REQUESTS)
    traffic = Traffic(plan.sources, Streams(plan.seed), math.inf)
    start = cpu_s()
    while traffic.next_s < math.inf or server.wake_s < math.inf:
        if traffic.next_s <= server.wake_s:
            arrival_s = traffic.next_s
            server.submit(traffic.take(), arrival_s)
        else:
            server.advance(server.wake_s)
    assert len(server.finished) == STEPPED_REQUESTS
    return cpu_s() - start


def main() -> None:
    insist_on_compiled()
    compiled = us_per_request(REQUESTS, 256, 5)
    name = f"{REQUESTS:,} requests on 16 servers, CPU per request"
    report(
        Claim(
            f"{name}, compiled",
            ours=compiled,
            baseline=COMPILED_US,
            most=1.0,
            unit="us",
            against="the target",
        )
    )
    report(
        Claim(
            f"{name}, interpreted",
            ours=interpreted_us(),
            baseline=INTERPRETED_US,
            most=1.0,
            unit="us",
            against="the target",
        )
    )
    report(
        Claim(
            "ten times longer outputs, CPU per request",
            ours=us_per_request(REQUESTS, 2560, 3),
            baseline=compiled,
            most=LONG_OUTPUT_RATIO,
            unit="us",
            against="the same with 256 tokens",
        )
    )
    limits = EngineLimits(EngineSettings(), kv_blocks=50_000)
    model = physics_model(resolve_model("llama-3.1-8b"), resolve_accelerator("h200"))
    report(
        Claim(
            "the fast engine against the reference engine, one server",
            ours=drive(Server(0, limits, model)),
            baseline=drive(ReferenceServer(0, limits, model)),
            most=0.01,
            unit="CPU s",
            against="reference.py, one step at a time, interpreted",
        )
    )


if __name__ == "__main__":
    main()
