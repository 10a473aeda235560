"""Emulated servers for tests: steps of round lengths, reached without a socket."""

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

from tests.live.inside import Inside
from tests.live.virtual import run
from windtunnel.cli.live.emulate import EmulateOptions, build_intake
from windtunnel.live.emulate.app import RequestIntake, build_app
from windtunnel.twin.scenario.load import load_text
from windtunnel.twin.scenario.plan import ScenarioPlan

Result = TypeVar("Result")

FALLS_SILENT_S = 60.0
"""Far longer than any of it takes, so that a hang is a failure."""

STEADY = """\
name: steady
workload:
  - {name: chat, count: 1, arrivals: {process: constant, rate: 1/s},
     prompt_tokens: 1, output_tokens: 1}
serving:
  pools:
    - name: main
      engine: {kv_blocks: 1000, max_model_len: 4096, max_num_seqs: 8, async_scheduling: false}
      step_time: {model: linear, fixed: 100ms, per_prefill_token: 1ms, per_decode: 0s,
                  per_context_token: 0s}
"""
"""A step takes 100 ms, and a millisecond for every token of a prompt."""


def plan(*sets: str) -> ScenarioPlan:
    return load_text(STEADY, sets=sets)


class Emulated:
    """A server and a client of it, on a loop of their own."""

    def __init__(self, intake: RequestIntake) -> None:
        self.desk = intake
        self.client = Inside(build_app(intake))

    def now_s(self) -> float:
        return asyncio.get_running_loop().time()


def with_server(
    use: Callable[[Emulated], Awaitable[Result]],
    *sets: str,
    settings: EmulateOptions = EmulateOptions(),  # noqa: B008 - nobody changes it
) -> Result:
    """What `use` returns, of a server in virtual time."""

    async def main() -> Result:
        intake = build_intake(plan(*sets), settings, asyncio.get_running_loop())
        return await use(Emulated(intake))

    return run(main())


def chat(text: str = "hello", **fields: Any) -> dict[str, Any]:
    """The body of a chat request."""
    messages = [{"role": "user", "content": text}]
    return {"model": "steady", "messages": messages, **fields}


@contextlib.contextmanager
def command(*options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`windtunnel emulate` on a free port, once it listens."""
    arguments = [sys.executable, "-m", "windtunnel", "emulate", "--port", "0", *options]
    process = subprocess.Popen(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ
    )
    try:
        assert process.stdout is not None
        yield process, process.stdout.readline()
    finally:
        process.kill()
        process.communicate()
