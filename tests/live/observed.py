"""Observations of emulated servers, both in virtual time."""

import asyncio
from collections.abc import Callable

from tests.live.inside import Inside
from tests.live.virtual import run
from windtunnel.cli.live.emulate import EmulateOptions, build_intake
from windtunnel.cli.live.observe import traffic_of
from windtunnel.live.emulate.app import build_app
from windtunnel.live.observe.observer import Observer, SendOptions
from windtunnel.live.observe.prompts import PromptWriter
from windtunnel.twin.results.accounts import RecordNames
from windtunnel.twin.run import run as simulate
from windtunnel.twin.scenario.load import load_text
from windtunnel.twin.scenario.plan import ScenarioPlan
from windtunnel.workload.request import Request
from windtunnel.workload.traces.measured import Measured

SERVING = """
serving:
  pools:
    - name: main
      engine: {kv_blocks: 4000, max_num_seqs: 16, max_num_batched_tokens: 512}
      step_time: {model: linear, fixed: 20ms, per_prefill_token: 100us, per_decode: 500us,
                  per_context_token: 1us}
"""
OPEN = (
    """\
name: open
seed: 5
workload:
  - name: chat
    slo: critical
    tenant: acme
    count: 60
    arrivals: {process: poisson, rate: 6/s}
    prompt_tokens: {distribution: lognormal, mean: 200, cv: 0.8, min: 1, max: 900}
    output_tokens: {distribution: uniform, min: 1, max: 40}
    prefix: {tokens: 100, groups: 3}
"""
    + SERVING
)
CLOSED = (
    """\
name: closed
workload:
  - name: users
    count: 50
    arrivals: {process: closed, users: 4, think: 300ms}
    prompt_tokens: 120
    output_tokens: {distribution: uniform, min: 2, max: 30}
"""
    + SERVING
)
TALKS = (
    """\
name: talks
workload:
  - name: talk
    count: 12
    arrivals: {process: poisson, rate: 2/s}
    prompt_tokens: {distribution: uniform, min: 20, max: 120}
    output_tokens: {distribution: uniform, min: 5, max: 60}
    prefix: {tokens: 64, groups: 2}
    session: {turns: 4, think: 500ms, context: accumulate}
"""
    + SERVING
)


def observe(
    plan: ScenarioPlan,
    options: SendOptions = SendOptions("emulated"),  # noqa: B008 - nobody changes it
    settings: EmulateOptions = EmulateOptions(served_name="emulated"),  # noqa: B008
    api: str = "completions",
    during: Callable[[Observer], None] | None = None,
) -> list[Measured]:
    """What is measured of a server that emulates the plan, under the plan's traffic."""

    async def main() -> list[Measured]:
        desk = build_intake(plan, settings, asyncio.get_running_loop())
        found: list[Measured] = []
        writer = PromptWriter(api, "salt")
        client = Inside(build_app(desk), root="/v1/")
        observer = Observer(traffic_of(plan), client, writer, options, found.append)
        await observer.run(during)
        return found

    return run(main())


class Rows:
    """Keeps what a simulation says of its requests."""

    def __init__(self) -> None:
        self.requests: dict[int, Request] = {}

    def write(self, requests: list[Request], outcomes: list[str], names: RecordNames) -> None:
        assert set(outcomes) == {"completed"}
        self.requests |= {int(request.id): request for request in requests}


def simulated(plan: ScenarioPlan) -> dict[int, Request]:
    rows = Rows()
    simulate(plan, rows=rows)
    return rows.requests


def plan_of(text: str, *sets: str) -> ScenarioPlan:
    return load_text(text, sets=sets)
