"""`windtunnel emulate`: an OpenAI-compatible server with the timing of the engine model."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from windtunnel.cli.options import FILE, seed_option, set_option
from windtunnel.core.errors import InputError
from windtunnel.core.units import counted

if TYPE_CHECKING:
    from windtunnel.live.emulate.app import RequestIntake
    from windtunnel.live.emulate.faults import RequestRateLimit, ResponseFault
    from windtunnel.twin.scenario.plan import ScenarioPlan

DEFAULT_ACCELERATOR = "h200"
MOST_REPLICAS = 256
"""Each wake-up checks all of them."""
ANSWER_MEAN, ANSWER_CV = 200, 0.8
"""Length of answers to requests that set none: about that of a chat."""
LONGEST_ANSWER = 4096

NO_TRAFFIC = """\
name: emulate
workload:
  - {name: clients, count: 1, arrivals: {process: constant, rate: 1/s},
     prompt_tokens: 1, output_tokens: 1}
serving: {pools: [{name: main}]}
"""
"""A scenario to which the options are applied; its traffic comes from outside."""


class EmulateOptions(NamedTuple):
    """Options of an emulated server beside the scenario."""

    served_name: str | None = None
    speedup: float = 1.0
    rate_limit: RequestRateLimit | None = None
    faults: tuple[ResponseFault, ...] = ()
    answer_tokens: int = ANSWER_MEAN


@click.command(short_help="Serve OpenAI's interface with the timing of a simulated server.")
@click.argument("scenario", required=False, type=FILE)
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True,
              help="Port to listen on; 0 takes a free port and prints it.")  # fmt: skip
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--model", metavar="NAME", help="Catalog name, or path of a config.json.")
@click.option("--accelerator", metavar="NAME", help="Accelerator of the servers. [default: h200]")
@click.option("--replicas", type=click.IntRange(1, MOST_REPLICAS), metavar="N",
              help="Number of servers. [default: 1]")  # fmt: skip
@click.option("--tensor-parallel", type=click.IntRange(min=1), metavar="N",
              help="Accelerators per server. [default: 1]")  # fmt: skip
@set_option("Set any other scenario field, as in serving.pools.0.engine.max_num_seqs=64.")
@click.option("--speedup", type=float, default=1.0, show_default=True, metavar="X",
              help="Speed-up factor; inf answers at once.")  # fmt: skip
@click.option("--rate-limit", metavar="RATE",
              help="Answer 429 above this rate, as in 400/s.")  # fmt: skip
@click.option("--fault", "faults", multiple=True, metavar="KIND=SHARE,...",
              help="Random faults: 500=1%,429=5%,latency=10%:2s,break=1%.")  # fmt: skip
@click.option("--answer-tokens", type=click.IntRange(1, LONGEST_ANSWER), default=ANSWER_MEAN,
              show_default=True, metavar="MEAN",
              help="Mean length of answers to requests without max_tokens.")  # fmt: skip
@click.option("--served-model-name", metavar="NAME",
              help="Name of the model in the API. [default: that of --model]")  # fmt: skip
@seed_option("Random seed of faults and lengths. [default: 0]")
def emulate(
    *,
    scenario: Path | None,
    port: int,
    host: str,
    model: str | None,
    accelerator: str | None,
    replicas: int | None,
    tensor_parallel: int | None,
    sets: tuple[str, ...],
    speedup: float,
    rate_limit: str | None,
    faults: tuple[str, ...],
    answer_tokens: int,
    served_model_name: str | None,
    seed: int | None,
) -> None:
    """Serve OpenAI's interface with the timing of a simulated server.

    Answers are filler text. The engine model times each token, for the servers of SCENARIO or for
    one server of --model. Metrics have vLLM's names. Ctrl-C stops it.
    """
    from windtunnel.live.emulate.app import build_app
    from windtunnel.live.emulate.faults import parse_faults, parse_rate_limit
    from windtunnel.live.serving import MOST_CONNECTIONS, listen, run
    from windtunnel.live.system import connections_allowed

    if not speedup > 0.0:
        allowed = "above 0, or inf to answer at once"
        raise InputError(f"a speedup of {speedup:g}", where="--speedup", allowed=allowed)
    given = {
        "model": model,
        "serving.pools.0.accelerator": accelerator,
        "serving.pools.0.replicas": replicas,
        "serving.pools.0.tensor_parallel": tensor_parallel,
    }
    written = [f"{path}={value}" for path, value in given.items() if value is not None]
    plan = served_plan(scenario, [*written, *sets], seed)
    settings = EmulateOptions(
        served_model_name,
        speedup,
        parse_rate_limit(rate_limit) if rate_limit is not None else None,
        parse_faults(",".join(faults)) if faults else (),
        answer_tokens,
    )
    intakes: list[RequestIntake] = []

    def build(loop: asyncio.AbstractEventLoop) -> Any:
        intakes.append(build_intake(plan, settings, loop))
        return build_app(intakes[0])

    def ready(url: str) -> None:
        click.echo(f"listening on {url} as {intakes[0].served.model}: {described(plan, speedup)}")

    connections = connections_allowed(MOST_CONNECTIONS)
    with listen(host, port) as bound:
        run(build, bound, ready, connections)
    click.echo(f"stopped; {intakes[0].metrics.completed_requests} requests were answered")


def served_plan(scenario: Path | None, sets: Sequence[str], seed: int | None) -> ScenarioPlan:
    """The plan of the emulated servers; an InputError if it has unsupported features."""
    from windtunnel.twin.scenario.load import load, load_text

    if scenario is not None:
        plan = load(scenario, sets, seed)
    else:
        if not any(text.startswith("model=") for text in sets):
            raise InputError(
                "nothing says what to serve",
                allowed="--model NAME, or a scenario",
                hint="as in `windtunnel emulate --model llama-3.1-8b`",
            )
        accelerator = f"serving.pools.0.accelerator={DEFAULT_ACCELERATOR}"
        plan = load_text(NO_TRAFFIC, "emulate", [accelerator, *sets], seed)
    if not plan.gateway.admits_all:
        what = "an emulated server admits every request"
        raise InputError(what, where="serving.admission", hint="leave it out")
    if plan.scaling is not None:
        what = "an emulated server keeps the servers that it begins with"
        raise InputError(what, where="scaling", hint="leave it out, and give each pool `replicas`")
    refuse_unemulated(plan)
    servers = sum(pool.replicas for pool in plan.pools)
    if servers > MOST_REPLICAS:
        raise InputError(f"there are {servers} servers", allowed=f"up to {MOST_REPLICAS}")
    return plan


def refuse_unemulated(plan: ScenarioPlan, *, by_pool: bool = False) -> None:
    """Raises an InputError for features that an emulated server lacks.

    With `by_pool`, each pool is emulated by servers of its own, so that pools may serve different
    models.
    """
    for path, found in (
        ("serving.disaggregation", plan.serving.split is not None),
        ("serving.encode", plan.serving.encode is not None),
    ):
        if found:
            raise InputError(
                "an emulated server does all the work of a request itself",
                where=path,
                hint="leave it out, or simulate it with `windtunnel simulate`",
            )
    if len(plan.models) > 1 and not by_pool:
        what = f"the pools serve {len(plan.models)} models, and one server is emulated"
        hint = "give all of them one model, or emulate a scenario for each"
        raise InputError(what, where="serving.pools", hint=hint)
    for number, pool in enumerate(plan.pools):
        if plan.serving.network_s(pool):
            what = "requests to an emulated server are on a network already"
            raise InputError(what, where=f"serving.clusters.{pool.cluster}", hint="leave it out")
        if pool.engine.offload is not None:
            raise InputError(
                "an emulated server keeps KV on its accelerator alone",
                where=f"serving.pools[{number}].engine.offload",
                hint="leave it out, or simulate it with `windtunnel simulate`",
            )
        engine = pool.engine
        at_once = engine.last_step_blocks and engine.compute_whole_hits
        if engine.preemption == "restart" or not at_once:
            raise InputError(
                "an emulated server streams tokens step by step and cannot take one back",
                where=f"serving.pools[{number}].engine",
                allowed="preemption: recompute, last_step_blocks: true, compute_whole_hits: true",
                hint="write these three with `blis-trained-physics`, whose defaults are others",
            )


def build_intake(
    plan: ScenarioPlan, settings: EmulateOptions, loop: asyncio.AbstractEventLoop
) -> RequestIntake:
    """Builds an emulated server for the event loop that will run it."""
    from windtunnel.core.clock import unix_s
    from windtunnel.core.random import Streams
    from windtunnel.core.signals import Signals
    from windtunnel.engine.overheads import Overheads
    from windtunnel.engine.server import Server
    from windtunnel.engine.views import ServerCaches
    from windtunnel.live.emulate.app import Backend, RequestIntake, Served
    from windtunnel.live.emulate.backends import InstantBackend, PacedBackend
    from windtunnel.live.emulate.engine import Engine
    from windtunnel.live.emulate.faults import FaultDraw
    from windtunnel.live.emulate.metrics import Metrics
    from windtunnel.live.emulate.prompts import PrefixSharing
    from windtunnel.models.catalog.models import served_name
    from windtunnel.routing.build import RouterInputs, build_router
    from windtunnel.routing.custom import RequestLabels
    from windtunnel.routing.prefixes import CacheJournal
    from windtunnel.twin.servers.pools import limits_of, overheads_of, shape_of, step_time_of
    from windtunnel.workload.distributions import Lengths
    from windtunnel.workload.lengths import LengthDraw

    servers: list[Server] = []
    overheads: list[Overheads] = []
    pools: list[str] = []
    for pool in plan.pools:
        shape = shape_of(pool)
        limits, step_time, own = (
            limits_of(pool, shape, plan.seed),
            step_time_of(pool, shape),
            overheads_of(pool, plan.serving.network_s(pool)),
        )
        for _ in range(pool.replicas):
            server = Server(len(servers), limits, step_time)
            server.token_overhead_s = own.accumulating_s
            servers.append(server)
            overheads.append(own)
            pools.append(pool.name)
    caches = settings.speedup < math.inf and any(s.limits.prefix_caching for s in servers)
    streams = Streams(plan.seed)
    model = plan.models[0]
    served = Served(
        model=settings.served_name or (served_name(model) if model else plan.name),
        adapters={name: number for number, name in enumerate(adapters_of(plan))},
        max_model_len=min(int(server.limits.max_model_len) for server in servers),
        sharing=PrefixSharing(int(servers[0].limits.block_size)) if caches else None,
        lengths=LengthDraw(
            Lengths("lognormal", settings.answer_tokens, ANSWER_CV, 1, LONGEST_ANSWER)
        ),
        draws=streams["emulate.answers"],
        faults=FaultDraw(settings.faults, streams["emulate.faults"]),
        rate_limit=settings.rate_limit,
    )
    metrics = Metrics(servers, served.model, settings.speedup)
    backend: Backend
    if settings.speedup == math.inf:
        backend = InstantBackend(metrics, loop)
    else:
        signals = Signals(
            [int(server.limits.max_num_seqs) for server in servers], plan.router.staleness_s
        )
        candidates = list(range(len(servers)))
        stream = streams["router"]
        labels = RequestLabels(adapters=adapters_of(plan))
        journal = CacheJournal(ServerCaches(servers))
        inputs = RouterInputs(signals, journal, pools, labels, plan.folder)
        router = build_router(plan.router, candidates, inputs, stream)
        engine = Engine(servers, overheads, router, signals, metrics)
        backend = PacedBackend(engine, settings.speedup, loop)
    return RequestIntake(served, backend, metrics, loop.time, unix_s)


def adapters_of(plan: ScenarioPlan) -> list[str]:
    """The LoRA adapters of the scenario's traffic; clients may request them, too."""
    names = [name for source in plan.sources for name, _ in source.adapter_weights]
    return list(dict.fromkeys(names))


def described(plan: ScenarioPlan, speedup: float) -> str:
    """A short description of the emulated servers."""
    if speedup == math.inf:
        return "answers at once"
    parts = []
    for pool in plan.pools:
        width = f"{pool.gpus} x " if pool.gpus > 1 else ""
        kind = f"on {width}{pool.accelerator}" if pool.accelerator else "with"
        kind += "" if pool.accelerator else f" {pool.step_time.model} step times"
        parts.append(f"{counted(pool.replicas, 'server')} {kind}")
    fast = f", {speedup:g} times as fast" if speedup != 1.0 else ""
    return f"{', '.join(parts)}{fast}"
