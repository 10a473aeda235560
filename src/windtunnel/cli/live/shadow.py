"""`windtunnel shadow`: forecasts for a running gateway, what-if questions, and accuracy."""

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from windtunnel.cli.options import (
    FILE,
    TIME,
    FiniteRange,
    json_option,
    option,
    set_option,
    time_option,
    together,
)
from windtunnel.cli.places import Output, note
from windtunnel.core.errors import InputError

if TYPE_CHECKING:
    from windtunnel.analysis.shadow.window import TrafficWindow
    from windtunnel.live.shadow.cluster import ClusterSource
    from windtunnel.live.shadow.following import TrafficSource
    from windtunnel.search.forecast import Forecaster, WhatIf

STRETCHES = (60.0, 300.0, 600.0)
"""Forecast spans: the next one, five and ten minutes, in addition to the horizon."""
DEFAULT_PORT = 8090


@click.group(short_help="Forecast the next minutes of a running gateway, with a twin.")
def shadow() -> None:
    """Forecast the next minutes of a running gateway, with a twin.

    The scenario names the servers and the policies; traffic comes from the gateway's files, or from
    Prometheus, and the state of the cluster from an operator or the Kubernetes API.
    """


_twin_options = together(
    time_option("--past", "5m", "How much recent traffic the twin serves to reach the present."),
    time_option("--horizon", "10m", "How far to look ahead."),
)  # fmt: skip
_sources_options = together(
    option("--trace", FILE, "Folder of the gateway's trace, or one file of it.", metavar="PATH"),
    option("--log", FILE, "The gateway's event log; adds requests in flight and healthy "
           "servers.", metavar="FILE"),
    option("--prometheus", None, "Instead of a trace: a Prometheus server with vLLM's metrics.",
           metavar="URL"),
    option("--prometheus-token-file", FILE, "Bearer token for Prometheus.", metavar="FILE"),
    option("--prometheus-selector selector", None, "Series to read, as in "
           "'namespace=\"chat\",model_name=\"m\"'.", default="", metavar="LABELS"),
    option("--operator-log", FILE, "Event log of an operator; adds replicas, pods, gangs and "
           "machines.", metavar="FILE"),
    click.option("--kubernetes", is_flag=True, help="Instead of --operator-log: read pods, gangs "
                 "and nodes from the API server."),
    option("--kubeconfig", FILE, "For --kubernetes. [default: KUBECONFIG, ~/.kube/config or the "
           "service account]", metavar="FILE"),
    option("--context", None, "Context of the kubeconfig.", default="", metavar="NAME"),
    option("--namespace", None, "Only pods of this namespace. [default: all]", default="",
           metavar="NAME"),
)  # fmt: skip


@shadow.command("run", short_help="Follow a gateway and publish forecasts.")
@click.argument("scenario", type=FILE)
@_sources_options
@_twin_options
@time_option("--tick", "30s", "Time between forecasts.")
@option("--other", None, "Also forecast with another setting, as in "
        "'p2c: serving.router.policy=power-of-two'; repeat a name to change several.",
        multiple=True, metavar="NAME:PATH=VALUE")  # fmt: skip
@option("--regret", TIME, "Also compute regret (against known future traffic) over this much"
                          " recent traffic, as in 1h; updated every quarter of it.",
        metavar="TIME")  # fmt: skip
@option("--host", None, "Address to listen on.", default="127.0.0.1")
@option("--port", click.IntRange(0, 65535), "Port to listen on; 0 takes a free port.",
        default=DEFAULT_PORT)  # fmt: skip
@click.option("--once", is_flag=True, help="Print one forecast and exit.")
def run(
    *,
    scenario: Path,
    past: float,
    horizon: float,
    tick: float,
    other: tuple[str, ...],
    regret: float | None,
    host: str,
    port: int,
    once: bool,
    **given: Any,
) -> None:
    """Follow a gateway and publish forecasts.

    Every tick forecasts TTFT, TPOT, queued requests and arrivals, with intervals once enough
    forecasts have been compared with what happened. See them on a web page, at /metrics and at
    /forecast.
    """
    from windtunnel.analysis.shadow.shadow import ShadowTick
    from windtunnel.live.serving import listen
    from windtunnel.live.shadow.program import ShadowProgram
    from windtunnel.report.page.shadow import shadow_page
    from windtunnel.report.terminal.layout import screen
    from windtunnel.report.terminal.shadow import counts_of, show_present, show_tick
    from windtunnel.search.forecast import shadow_of

    forecaster, others = _forecaster(scenario, past, horizon), _others(other)
    forecaster.check(others)
    found = shadow_of(forecaster, others, regret)
    traffic, cluster = _sources(found.window, given)
    regret_every_s = None if regret is None else regret / 4
    program = ShadowProgram(found, traffic, tick, regret_every_s, shadow_page, cluster)
    if once:
        last = program.tick()
        data = program.data()
        for text in (*counts_of(data), *(one for one in program.problems() if one != last.says)):
            note(text)
        if last.forecast is None:
            raise InputError(last.says, where="no forecast")
        found.measure_regret()
        show_tick(last, screen(), found.regrets)
        show_present(data, screen())
        if found.regret_says:
            note(f"no regret: {found.regret_says}")
        return

    said: list[str] = []

    def on_tick(one: "ShadowTick") -> None:
        nonlocal said
        says = [*program.problems(), *counts_of(program.data())]
        for text in says:
            if text not in said:
                note(f"{one.now_s:.0f} s: {text}")
        said = says

    for text in program.unknown():
        note(f"not known: {text}")

    bound = listen(host, port)
    program.run(
        bound, lambda url: click.echo(f"forecasts on {url}, /forecast and /metrics"), on_tick
    )


@shadow.command(short_help="Ask what would happen now if something were different.")
@click.argument("scenario", type=FILE)
@_sources_options
@_twin_options
@set_option("Change a setting, as in serving.pools.0.replicas=2.")
@option("--fault faults", None, "Add a fault, as in '{kind: engine-crash, at: 30s}'.",
        multiple=True, metavar="YAML")  # fmt: skip
@option("--traffic", FiniteRange(0.01, 100.0), "Factor on the traffic.", default=1.0)
@json_option("both forecasts as JSON")
def ask(
    *,
    scenario: Path,
    past: float,
    horizon: float,
    sets: tuple[str, ...],
    faults: tuple[str, ...],
    traffic: float,
    json_to: str | None,
    **given: Any,
) -> None:
    """Ask what would happen now if something were different.

    Prints two forecasts: without the change, and with it.
    """
    from windtunnel.analysis.shadow.window import TrafficWindow
    from windtunnel.report.terminal.layout import screen
    from windtunnel.report.terminal.shadow import show_question
    from windtunnel.search.forecast import WhatIf

    if not sets and not faults and traffic == 1.0:
        hint = "give --set, --fault or --traffic"
        raise InputError("nothing is different", hint=hint)
    forecaster = _forecaster(scenario, past, horizon)
    window = TrafficWindow(past)
    source, cluster = _sources(window, given)
    source.look()
    if cluster is not None:
        window.cluster = cluster.look()
    for problem in filter(None, (source.says, "" if cluster is None else cluster.says)):
        note(problem)
    present = window.present()
    scale = forecaster.forecast(present).step_ratio or 1.0
    asked = forecaster.forecast(present, scale, WhatIf(sets, faults, traffic))
    now = forecaster.forecast(present, scale)
    with Output(json_to) as out:
        out.json({"now": now._asdict(), "asked": asked._asdict(), "step_scale": scale})
    if not out.alone:
        show_question(now, asked, screen())


@shadow.command(short_help="Measure the accuracy of forecasts on a recorded trace.")
@click.argument("scenario", type=FILE)
@option("--trace", FILE, "A trace with the times of answers: any format, or a gateway's folder.",
        required=True, metavar="FILE")  # fmt: skip
@_twin_options
@time_option("--tick", "1m", "Time between forecasts.")
@json_option("the measurements as JSON")
def test(
    *, scenario: Path, trace: Path, past: float, horizon: float, tick: float, json_to: str | None
) -> None:
    """Measure the accuracy of forecasts on a recorded trace.

    The trace is followed in its own time. Each forecast uses only what was known at that time, and
    is compared with what happened.
    """
    from windtunnel.report.terminal.layout import screen
    from windtunnel.report.terminal.shadow import show_accuracy
    from windtunnel.search.forecast import replayed, shadow_of
    from windtunnel.workload.traces.gateway_folder import one_trace
    from windtunnel.workload.traces.reading import open_trace

    found = shadow_of(_forecaster(scenario, past, horizon))
    with Output(json_to) as out, ExitStack() as stack:
        measured = replayed(open_trace(one_trace(trace, stack)), found, tick)
        out.json(measured)
    if not out.alone:
        show_accuracy(measured, screen())


def _sources(
    window: "TrafficWindow", given: dict[str, Any]
) -> "tuple[TrafficSource, ClusterSource | None]":
    """The sources of traffic and of the cluster's state."""
    from windtunnel.live.operate.scaling.sources import prometheus_server
    from windtunnel.live.shadow.cluster import ClusterReader, OperatorLog
    from windtunnel.live.shadow.following import GatewayFollower
    from windtunnel.live.shadow.prometheus import PrometheusTraffic

    url, trace, log = given["prometheus"], given["trace"], given["log"]
    if (trace is None) == (url is None):
        what = "there is no traffic" if url is None else "traffic can have only one source"
        hint = "give --trace with the folder of a gateway's trace, or --prometheus"
        raise InputError(what, where="--trace, --prometheus", hint=hint)
    server = prometheus_server(url or "", given["prometheus_token_file"])
    traffic: TrafficSource
    if server is None:
        traffic = GatewayFollower(window, trace, log)
    elif log is not None:
        raise InputError("a gateway's log needs its trace", where="--log")
    else:
        traffic = PrometheusTraffic(window, server, given["selector"])
    log = given["operator_log"]
    if not given["kubernetes"]:
        for name in ("kubeconfig", "context", "namespace"):
            if given[name]:
                raise InputError("it has no effect without --kubernetes", where=f"--{name}")
        return traffic, None if log is None else OperatorLog(log)
    if log is not None:
        what = "the state of the cluster can have only one source"
        raise InputError(what, where="--operator-log, --kubernetes", hint="leave one of them out")
    return traffic, ClusterReader(given["kubeconfig"], given["context"], given["namespace"])


def _forecaster(scenario: Path, past_s: float, horizon_s: float) -> "Forecaster":
    from windtunnel.search.forecast import Forecaster
    from windtunnel.settings.document import read_text

    spans = [*(one for one in STRETCHES if one < horizon_s), horizon_s]
    names = {f"{one:g}s" if one < 60.0 else f"{one / 60:g}m": one for one in spans}
    return Forecaster(read_text(scenario), str(scenario), names, past_s)


def _others(given: tuple[str, ...]) -> "dict[str, WhatIf]":
    """The settings given for each name."""
    from windtunnel.analysis.shadow.forecasts import AS_IT_IS
    from windtunnel.search.forecast import WhatIf

    found: dict[str, WhatIf] = {}
    for text in given:
        name, colon, override = text.partition(":")
        if not colon or not name.strip() or "=" not in override:
            allowed = "NAME:PATH=VALUE, as in p2c:serving.router.policy=power-of-two"
            raise InputError("this names no setting", where=f"--other {text}", allowed=allowed)
        name = name.strip()
        if name == AS_IT_IS:
            what = f"{name!r} is the name of the scenario's own settings"
            raise InputError(what, where=f"--other {text}", hint="choose another name")
        before = found.get(name, WhatIf()).sets
        found[name] = WhatIf(sets=(*before, override.strip()))
    return found
