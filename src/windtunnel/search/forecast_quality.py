"""Forecast accuracy on a recorded trace: each forecast uses only what was known at its time."""

import heapq
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import msgspec

from windtunnel.analysis.shadow.shadow import SATURATED, Shadow
from windtunnel.analysis.shadow.window import TrafficWindow
from windtunnel.core.errors import InputError
from windtunnel.search.forecast import Forecaster, WhatIf
from windtunnel.workload.traces.record import TraceRequest


def replayed(
    requests: Iterable[TraceRequest],
    shadow: Shadow,
    tick_s: float,
    done: Callable[[int], None] = lambda _: None,
) -> dict[str, Any]:
    """Runs a shadow over a trace in the trace's own time; returns the shadow's accuracy figures."""
    window = shadow.window
    ending: list[tuple[float, int, TraceRequest]] = []
    next_s = tick_s
    saturated = unable = 0

    def advance(until_s: float) -> None:
        nonlocal next_s, saturated, unable
        while next_s <= until_s:
            while ending and ending[0][0] <= next_s:
                window.end(heapq.heappop(ending)[2])
            window.see(next_s)
            tick = shadow.tick()
            saturated += tick.says == SATURATED
            unable += tick.forecast is None
            done(shadow.ticks)
            next_s += tick_s

    for number, one in enumerate(requests):
        if one.e2e_s is None:
            continue
        advance(one.arrived_s)
        named = msgspec.structs.replace(one, id=str(number))
        window.arrive(msgspec.structs.replace(named, output_tokens=0, ttft_s=None, e2e_s=None))
        heapq.heappush(ending, (one.arrived_s + one.e2e_s, number, named))
    if ending:
        advance(max(end_s for end_s, _, _ in ending))
    if not shadow.ticks:
        what = "no request of the trace has the times of its answer"
        raise InputError(what, allowed="a trace with ttft and e2e, longer than a tick")
    return {**shadow.data(), "saturated_ticks": saturated, "ticks_without_forecast": unable}


def shadow_of(
    forecaster: Forecaster,
    others: Mapping[str, WhatIf] | None = None,
    regret_s: float | None = None,
) -> Shadow:
    """A shadow that forecasts with the twin, and with other settings of it.

    With `regret_s`, it can also compare them with foresight on that much recent traffic.
    """
    window = TrafficWindow(max(forecaster.past_s + 2.0 * forecaster.horizon_s, regret_s or 0.0))
    forecast = partial(forecaster.forecasts, others=others or {})
    regret = None
    if regret_s is not None:
        regret = partial(forecaster.regrets, others=others or {}, span_s=regret_s)
    return Shadow(window, forecast, forecaster.spans_s, regret, regret_s or 0.0)
