"""`windtunnel shadow`: forecasts of a running gateway, questions to them, and their quality."""

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
    from windtunnel.search.forecast import Forecaster

STRETCHES = (60.0, 300.0, 600.0)
"""Forecasts are of the next one, five and ten minutes, and of the horizon."""
DEFAULT_PORT = 8090


@click.group(short_help="Forecast the next minutes of a running gateway, with a twin.")
def shadow() -> None:
    """Forecast the next minutes of a running gateway, with a twin.

    The scenario names the servers and the policies; traffic comes from the gateway's files.
    """


_twin_options = together(
    time_option("--past", "5m", "How much recent traffic the twin serves to reach the present."),
    time_option("--horizon", "10m", "How far to look ahead."),
)  # fmt: skip
_files_options = together(
    option("--trace", FILE, "The folder of the gateway's trace, or a file of it.",
           required=True, metavar="PATH"),
    option("--log", FILE, "Its event log: requests in flight and healthy servers are known with "
           "it.", metavar="FILE"),
)  # fmt: skip


@shadow.command("run", short_help="Follow a gateway and publish forecasts.")
@click.argument("scenario", type=FILE)
@_files_options
@_twin_options
@time_option("--tick", "30s", "Between two forecasts.")
@option("--other", None, "Forecast with another setting, too, as in "
        "'p2c: serving.router.policy=power-of-two'.", multiple=True,
        metavar="NAME:PATH=VALUE")  # fmt: skip
@option("--regret", TIME, "Also hold the settings against foresight of so much recent traffic, as "
        "in 1h: every quarter of it, in two processes.", metavar="TIME")  # fmt: skip
@option("--host", None, "Where to listen.", default="127.0.0.1")
@option("--port", click.IntRange(0, 65535), "Where to listen; 0 takes a free port.",
        default=DEFAULT_PORT)  # fmt: skip
@click.option("--once", is_flag=True, help="Print one forecast, and end.")
def run(
    *,
    scenario: Path,
    trace: Path,
    log: Path | None,
    past: float,
    horizon: float,
    tick: float,
    other: tuple[str, ...],
    regret: float | None,
    host: str,
    port: int,
    once: bool,
) -> None:
    """Follow a gateway and publish forecasts.

    Each tick forecasts TTFT, TPOT, requests that wait and arrivals, with intervals once enough
    forecasts have been held against what came. A page, /metrics and /forecast have them.
    """
    from windtunnel.analysis.shadow.shadow import ShadowTick
    from windtunnel.live.emulate.serving import listen
    from windtunnel.live.shadow.following import GatewayFollower
    from windtunnel.live.shadow.program import ShadowProgram
    from windtunnel.report.page.shadow import shadow_page
    from windtunnel.report.terminal.layout import screen
    from windtunnel.report.terminal.shadow import show_tick
    from windtunnel.search.forecast_quality import shadow_of

    found = shadow_of(_forecaster(scenario, past, horizon), _others(other), regret)
    follower = GatewayFollower(found.window, trace, log)
    regret_every_s = None if regret is None else regret / 4
    program = ShadowProgram(found, follower, tick, regret_every_s, shadow_page)
    if once:
        last = program.tick()
        found.measure_regret()
        show_tick(last, screen(), found.regrets)
        if found.regret_says:
            note(f"no regret: {found.regret_says}")
        return

    said: list[str] = []

    def told(one: "ShadowTick") -> None:
        nonlocal said
        says = [one.says, found.regret_says and f"no regret: {found.regret_says}"]
        for text in says:
            if text and text not in said:
                note(f"{one.now_s:.0f} s: {text}")
        said = says

    bound = listen(host, port)
    program.run(bound, lambda url: click.echo(f"forecasts on {url}, /forecast and /metrics"), told)


@shadow.command(short_help="Ask what would happen now if something were different.")
@click.argument("scenario", type=FILE)
@_files_options
@_twin_options
@set_option("A setting that is different, as in serving.pools.0.replicas=2.")
@option("--fault faults", None, "A fault from now on, as in '{kind: engine-crash, at: 30s}'.",
        multiple=True, metavar="YAML")  # fmt: skip
@option("--traffic", FiniteRange(0.01, 100.0), "So many times as many requests.", default=1.0)
@json_option("both forecasts")
def ask(
    *,
    scenario: Path,
    trace: Path,
    log: Path | None,
    past: float,
    horizon: float,
    sets: tuple[str, ...],
    faults: tuple[str, ...],
    traffic: float,
    json_to: str | None,
) -> None:
    """Ask what would happen now if something were different.

    Prints the forecast as things are, and as they would be.
    """
    from windtunnel.analysis.shadow.window import TrafficWindow
    from windtunnel.live.shadow.following import GatewayFollower
    from windtunnel.report.terminal.layout import screen
    from windtunnel.report.terminal.shadow import show_question
    from windtunnel.search.forecast import WhatIf

    if not sets and not faults and traffic == 1.0:
        hint = "give --set, --fault or --traffic"
        raise InputError("nothing is different", hint=hint)
    forecaster = _forecaster(scenario, past, horizon)
    window = TrafficWindow(past)
    GatewayFollower(window, trace, log).look()
    present = window.present()
    scale = forecaster.forecast(present).step_ratio or 1.0
    asked = forecaster.forecast(present, scale, WhatIf(sets, faults, traffic))
    now = forecaster.forecast(present, scale)
    with Output(json_to) as out:
        out.json({"now": now._asdict(), "asked": asked._asdict(), "step_scale": scale})
    if not out.alone:
        show_question(now, asked, screen())


@shadow.command(short_help="Measure how right forecasts are, on a recorded trace.")
@click.argument("scenario", type=FILE)
@option("--trace", FILE, "A trace with the times of answers, of any format.", required=True,
        metavar="FILE")  # fmt: skip
@_twin_options
@time_option("--tick", "1m", "Between two forecasts.")
@json_option("what was measured")
def test(
    *, scenario: Path, trace: Path, past: float, horizon: float, tick: float, json_to: str | None
) -> None:
    """Measure how right forecasts are, on a recorded trace.

    The shadow follows the trace in the time of the trace; each forecast is made from what was known
    at its time, and held against what came.
    """
    from windtunnel.report.terminal.layout import screen
    from windtunnel.report.terminal.shadow import show_accuracy
    from windtunnel.search.forecast_quality import replayed, shadow_of
    from windtunnel.workload.traces.reading import open_trace

    found = shadow_of(_forecaster(scenario, past, horizon))
    with Output(json_to) as out:
        measured = replayed(open_trace(trace), found, tick)
        out.json(measured)
    if not out.alone:
        show_accuracy(measured, screen())


def _forecaster(scenario: Path, past_s: float, horizon_s: float) -> "Forecaster":
    from windtunnel.search.forecast import Forecaster
    from windtunnel.settings.document import read_text

    spans = [*(one for one in STRETCHES if one < horizon_s), horizon_s]
    names = {f"{one:g}s" if one < 60.0 else f"{one / 60:g}m": one for one in spans}
    return Forecaster(read_text(scenario), str(scenario), names, past_s)


def _others(given: tuple[str, ...]) -> dict[str, Any]:
    from windtunnel.search.forecast import WhatIf

    found = {}
    for text in given:
        name, colon, override = text.partition(":")
        if not colon or not name.strip() or "=" not in override:
            allowed = "NAME:PATH=VALUE, as in p2c:serving.router.policy=power-of-two"
            raise InputError("this names no setting", where=f"--other {text}", allowed=allowed)
        found[name.strip()] = WhatIf(sets=(override.strip(),))
    return found
