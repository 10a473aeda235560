"""`windtunnel observe`: sends a scenario's traffic to a real server and records measurements."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from windtunnel.cli.options import (
    FILE,
    concurrency_option,
    json_option,
    key_option,
    seed_option,
    set_option,
    time_option,
)
from windtunnel.cli.places import Output, keep_apart, note, traces_of
from windtunnel.core.errors import InputError, one_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from windtunnel.live.observe.observer import Observer, SendOptions
    from windtunnel.live.observe.prompts import PromptWriter
    from windtunnel.live.observe.tally import ClassTargets, ObservationTally
    from windtunnel.live.wire.client import Endpoint
    from windtunnel.twin.scenario.plan import ScenarioPlan
    from windtunnel.workload.traces.measured import Measured, MeasuredTrace
    from windtunnel.workload.traffic import Traffic

EXIT_INTERRUPTED = 130
EXIT_NOTHING = 4
"""No request was completed."""
KEPT_EVERY_S = 1.0
"""Interval at which measurements are written; a crash loses no more than this."""


@click.command(short_help="Send a scenario's traffic to a real server, and measure it.")
@click.argument("scenario", type=FILE)
@click.option("--endpoint", required=True, metavar="URL",
              help="URL of the server; /v1 is added if it has no path.")  # fmt: skip
@click.option("-o", "--output", default="trace.parquet", show_default=True, metavar="FILE",
              type=FILE, help="Where to write the trace.")  # fmt: skip
@click.option("--model", metavar="NAME",
              help="Model name on the server. [default: the server's only model]")  # fmt: skip
@click.option("--api", type=click.Choice(["completions", "tokens", "chat"]), default="completions",
              show_default=True,
              help="Send prompts as text, as token ids, or as messages.")  # fmt: skip
@click.option("--pin-length/--no-pin-length", default=True, show_default=True,
              help="Request answers of exactly the scenario's length (ignore_eos).")  # fmt: skip
@click.option("--speedup", type=float, default=1.0, show_default=True, metavar="X",
              help="Send X times as fast, to a server that is X times as fast.")  # fmt: skip
@concurrency_option(1024, "Maximum requests in flight.")
@time_option("--timeout", "10m", "Timeout of requests that have none in the scenario.")
@time_option("--wait", "10s", "How long to wait for the server at the start.")
@key_option()
@set_option()
@seed_option("Override the scenario's seed.")
@json_option("the figures as JSON")
@click.option("--force", is_flag=True, help="Replace a trace that already exists.")
def observe(
    *,
    scenario: Path,
    endpoint: str,
    output: Path,
    model: str | None,
    api: str,
    pin_length: bool,
    speedup: float,
    concurrency: int,
    timeout: float,
    wait: float,
    key_env: str | None,
    sets: tuple[str, ...],
    seed: int | None,
    json_to: str | None,
    force: bool,
) -> None:
    """Send a scenario's traffic to a real server, and measure it.

    The server must have an OpenAI-compatible API with streaming. The output is a trace: replay it
    in a simulation, or compare a scenario with it, by `windtunnel compare --real`. Ctrl-C ends the
    measurement early and keeps the results. Exit codes: 0 measured, 4 no request completed, 2 bad
    input or no server, 130 interrupted.
    """
    from windtunnel.core.clock import unix_s
    from windtunnel.live.observe.observer import SendOptions
    from windtunnel.live.observe.prompts import PromptWriter
    from windtunnel.live.observe.tally import ObservationTally
    from windtunnel.live.wire.addresses import checked_url
    from windtunnel.live.wire.client import Endpoint, open_session
    from windtunnel.live.wire.keys import named_key, read_keys
    from windtunnel.report.terminal.measurements import show_observation
    from windtunnel.twin.scenario.load import load
    from windtunnel.workload.traces.measured import MeasuredTrace

    url = checked_url(endpoint, "--endpoint")
    variable = named_key(key_env, os.environ)
    keys = read_keys([variable] if variable else [], os.environ)
    _allow(concurrency, speedup)
    plan = load(scenario, sets, seed)
    keep_apart({"the scenario": scenario, **traces_of(plan)}, {"-o": output, "--json": json_to})
    refuse_media(plan)
    tally = ObservationTally(targets_of(plan))
    writer = PromptWriter(api, salt=f"{unix_s():.6f}")
    with Output(json_to) as out:
        trace = out.enter_context(MeasuredTrace(output, replace=force))
        watch = ObserverRun(plan, trace, tally, writer)

        async def main() -> bool:
            async with open_session(name="observe") as session:
                server = Endpoint(session, url, keys, variable)
                name = await model_of(server, wait, model, plan)
                options = SendOptions(name, speedup, concurrency, timeout, pin_length)
                return await watch.run(server, options)

        done = asyncio.run(main())
        figures = tally.figures(watch.seconds)
        out.json(figures)
    if not out.alone:
        path = str(output) if trace.rows else None
        show_observation(figures, path, goodput=tally.has_targets)
    _leave(done=done, requests=figures["requests"])


def _leave(*, done: bool, requests: dict[str, int]) -> None:
    """Exits with a status of its own if the run was interrupted or completed no request."""
    if not done:
        note("interrupted; the measurements so far are kept")
        sys.exit(EXIT_INTERRUPTED)
    if requests["sent"] and not requests["completed"]:
        note("no request was completed")
        sys.exit(EXIT_NOTHING)


class ObserverRun:
    """One run of an observer: its signals, its progress and the sink of its rows."""

    def __init__(
        self,
        plan: ScenarioPlan,
        trace: MeasuredTrace,
        tally: ObservationTally,
        writer: PromptWriter,
    ) -> None:
        self._plan = plan
        self._trace = trace
        self._tally = tally
        self._writer = writer
        self._kept_s = 0.0
        self.seconds = 0.0

    async def run(self, server: Endpoint, options: SendOptions) -> bool:
        """Runs to the end of the traffic; False if it was interrupted."""
        from windtunnel.live.observe.observer import Observer
        from windtunnel.live.system import stop_signals
        from windtunnel.report.terminal.progress import status_line

        observer = Observer(traffic_of(self._plan), server, self._writer, options, self._record)
        interrupted: list[bool] = []

        def stop(_: object) -> None:
            interrupted.append(True)
            observer.stop()

        try:
            with (
                stop_signals(stop),
                status_line(sys.stderr, patience_s=0.0, anywhere=True) as line,
            ):
                await observer.run(None if line is None else lambda o: line.show(self._said(o)))
        finally:
            self.seconds = observer.now_s
        return not interrupted

    def _said(self, observer: Observer) -> Callable[[float], str]:
        """The progress line."""
        from windtunnel.core.units import format_duration

        outcomes, lag = self._tally.outcomes, self._tally.lag
        failed = sum(outcomes.values()) - outcomes["completed"]
        late = format_duration(lag.mean()) if lag.count else "-"
        return lambda _: (
            f"{format_duration(observer.now_s)}   {observer.sent} sent   "
            f"{observer.in_flight} in flight   {outcomes['completed']} completed   "
            f"{failed} not   sent {late} late on average"
        )

    def _record(self, measured: Measured) -> None:
        from windtunnel.core.clock import monotonic_s

        self._trace.add(measured)
        self._tally.add(measured)
        now_s = monotonic_s()
        if now_s - self._kept_s >= KEPT_EVERY_S:
            self._kept_s = now_s
            self._trace.flush()


def traffic_of(plan: ScenarioPlan) -> Traffic:
    """The same traffic as in a simulation of the plan."""
    import math

    from windtunnel.core.random import Streams
    from windtunnel.workload.traffic import Traffic

    end_s = math.inf if plan.duration_s is None else plan.duration_s
    priorities = plan.priorities
    return Traffic(
        plan.workload, Streams(plan.seed), end_s, priorities, plan.models, plan.adapter_slots
    )


def targets_of(plan: ScenarioPlan) -> dict[str, ClassTargets]:
    """The latency targets of each class; infinite where none is set."""
    import math

    from windtunnel.live.observe.tally import ClassTargets

    return {
        name: ClassTargets(
            *(math.inf if time is None else time for time in (slo.ttft_s, slo.tpot_s, slo.e2e_s))
        )
        for name, slo in plan.slos.items()
    }


def _allow(connections: int, speedup: float) -> None:
    from windtunnel.live.system import connections_allowed

    if not 0.0 < speedup < float("inf"):
        raise InputError(f"a speedup of {speedup:g}", where="--speedup", allowed="above 0")
    allowed = connections_allowed(connections)
    if allowed < connections:
        what = f"the system lets this process have {allowed} connections"
        raise InputError(what, where=f"--concurrency {connections}", hint="`ulimit -n` allows more")


def refuse_media(plan: ScenarioPlan) -> None:
    for source in plan.sources:
        if source.media is not None:
            raise InputError(
                "its prompts have media, and only text can be sent",
                where=f"the source {source.name!r}",
                hint="leave `media` out, or add its tokens to `prompt_tokens`",
            )


async def model_of(server: Endpoint, wait_s: float, wanted: str | None, plan: ScenarioPlan) -> str:
    """The server's name for the model; an InputError if the server does not answer."""
    from windtunnel.live.wire.greeting import models_of
    from windtunnel.workload.settings.sources import models_of as asked_models
    from windtunnel.workload.traces.record import LONGEST_NAME

    if wanted is not None and not 0 < len(wanted) <= LONGEST_NAME:
        allowed = f"1 to {LONGEST_NAME} characters"
        raise InputError(f"the name has {len(wanted)} characters", where="--model", allowed=allowed)
    asked = {model for entry in plan.workload for model in asked_models(entry)}
    if len(asked) > 1:
        what = f"its requests are for {len(asked)} models, and one server is asked"
        raise InputError(what, where="workload", hint="observe a scenario for each model")
    models = await models_of(server, wait_s)
    if wanted is not None:
        return wanted
    if models is not None and len(models) == 1 and 0 < len(models[0]) <= LONGEST_NAME:
        return models[0]
    own = plan.model_names[0]
    if models is not None and own in models:
        return own
    said = f"it has {one_line(', '.join(models))}" if models else "it does not say which it has"
    what = f"the name of the model is not clear: {said}"
    raise InputError(what, where=server.url, hint="give it with --model NAME")
