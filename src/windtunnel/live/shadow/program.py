"""`windtunnel shadow run`: ticks on a wall clock, and pages with their results."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Final

from windtunnel.analysis.shadow.shadow import OF_THE_RUN, Shadow, ShadowTick
from windtunnel.core.clock import cpu_s
from windtunnel.live.admin import admin_app, json_page
from windtunnel.live.metrics import gauge, registry_of
from windtunnel.live.serving import serve
from windtunnel.live.shadow.cluster import ClusterSource
from windtunnel.live.shadow.following import TrafficSource
from windtunnel.live.system import run_until_stopped

NO_CLUSTER: Final = (
    "replicas that start or end, gangs and machines: they are as the scenario has them; add "
    "--operator-log or --kubernetes"
)


class ShadowProgram:
    """Follows traffic, and a cluster if there is one, until stopped."""

    def __init__(
        self,
        shadow: Shadow,
        follower: TrafficSource,
        tick_s: float,
        regret_s: float | None = None,
        page: Callable[[dict[str, Any]], str] | None = None,
        cluster: ClusterSource | None = None,
    ) -> None:
        self.shadow: Final = shadow
        self.follower: Final = follower
        self.cluster: Final = cluster
        self.tick_cpu_s = 0.0
        self._tick_s: Final = tick_s
        self._regret_s: Final = regret_s
        """How often settings are compared with perfect foresight; None for never."""
        self._page: Final = page
        """Renders the page `/` from `data`."""

    def run(
        self, bound: Any, ready: Callable[[str], None], on_tick: Callable[[ShadowTick], None]
    ) -> None:
        """Runs until Ctrl-C or SIGTERM; `on_tick` receives every tick."""
        run_until_stopped(lambda stop: self._run(bound, ready, on_tick, stop))

    async def _run(
        self,
        bound: Any,
        ready: Callable[[str], None],
        on_tick: Callable[[ShadowTick], None],
        stop: asyncio.Event,
    ) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(serve(lambda _: self._pages(), bound, ready, stop))
            if self._regret_s is not None:
                tasks.create_task(self._measure_regret(self._regret_s, stop))
            while not stop.is_set():
                on_tick(await asyncio.to_thread(self.tick))
                await _pause(self._tick_s, stop)

    async def _measure_regret(self, every_s: float, stop: asyncio.Event) -> None:
        """Measures regret beside the ticks, which it must not delay."""
        await _pause(self._tick_s, stop)
        while not stop.is_set():
            await asyncio.to_thread(self.shadow.measure_regret)
            await _pause(every_s, stop)

    def tick(self) -> ShadowTick:
        """Reads everything new, and makes a forecast."""
        started_s = cpu_s()
        self.follower.look()
        if self.cluster is not None:
            self.shadow.window.cluster = self.cluster.look()
        tick = self.shadow.tick()
        self.tick_cpu_s = cpu_s() - started_s
        return tick

    def problems(self) -> list[str]:
        """Current problems of the sources and the forecast."""
        last = self.shadow.last
        says = [self.follower.says, "" if self.cluster is None else self.cluster.says]
        regret = self.shadow.regret_says and f"no regret: {self.shadow.regret_says}"
        return [one for one in (*says, "" if last is None else last.says, regret) if one]

    def unknown(self) -> list[str]:
        """What the sources cannot know."""
        return [*self.follower.unknown(), *([] if self.cluster is not None else [NO_CLUSTER])]

    def data(self) -> dict[str, Any]:
        """The content of the page `/forecast`."""
        return {
            "source": str(self.follower.source),
            **self.shadow.data(),
            "problems": self.problems(),
            "unknown": self.unknown(),
            "bad_lines": self.follower.bad_lines
            + (0 if self.cluster is None else self.cluster.bad_lines),
            "tick_cpu_s": self.tick_cpu_s,
        }

    def _pages(self) -> Any:
        from starlette.requests import Request as WebRequest
        from starlette.responses import HTMLResponse, Response
        from starlette.routing import Route

        def why_not_ready() -> str:
            last = self.shadow.last
            return "no forecast yet" if last is None or last.forecast is None else ""

        async def forecast(_: WebRequest) -> Response:
            return Response(json_page(self.data()), media_type="application/json")

        async def home(_: WebRequest) -> Response:
            assert self._page is not None
            return HTMLResponse(await asyncio.to_thread(self._page, self.data()))

        pages = [Route("/forecast", forecast)]
        if self._page is not None:
            pages.append(Route("/", home))
        registry = registry_of(lambda: shadow_families(self.data()))
        return admin_app(registry, why_not_ready, pages)


async def _pause(time_s: float, stop: asyncio.Event) -> None:
    """Waits for this long, or until asked to stop."""
    with suppress(TimeoutError):
        async with asyncio.timeout(time_s):
            await stop.wait()


FORECAST: Final = "windtunnel_shadow_forecast"
ENDS: Final = {"value": "", "low": "_low", "high": "_high"}
ACCURACY: Final = {
    "median_error": "windtunnel_shadow_error_ratio",
    "covered": "windtunnel_shadow_coverage_ratio",
    "measured": "windtunnel_shadow_measured_forecasts",
}
TOTALS: Final = {
    "step_scale": "Measured step time relative to the scenario's.",
    "tick_cpu_s": "CPU time of the last tick.",
    "restarts": "Restarts of the gateway that were noticed.",
    "bad_lines": "Lines that could not be read.",
    "late_records": "Records that arrived too late to count.",
    "gaps": "Gaps in the records much longer than the usual time between them.",
    "lost_requests": "Requests whose end is missing in the records.",
    "saturated": "1 if the twin is saturated, so that only arrivals can be forecast.",
    "in_flight": "Requests in flight.",
    "replicas": "Most replicas that the twin's autoscaler requests.",
    "replicas_now": "Replicas that it requests at present.",
    "machines": "Most machines of the twin's fleet.",
    "attained": "Forecast SLO attainment.",
    "attained_lately": "SLO attainment of the recent traffic, as the twin serves it.",
    "cost": "Dollars up to the horizon.",
    "cost_lately": "Dollars of the recent traffic, as the twin serves it.",
}


def shadow_families(data: dict[str, Any]) -> Iterator[Any]:
    """The figures of a shadow for Prometheus, from the content of `/forecast`."""
    stretches = ("stretch", "figure")
    for end, suffix in ENDS.items():
        says = "Forecast for the requests that arrive within the stretch."
        yield gauge(FORECAST + suffix, says, _by_stretch(data["forecast"], end), *stretches)
    for key, name in ACCURACY.items():
        says = "Accuracy of earlier forecasts."
        yield gauge(name, says, _by_stretch(data["accuracy"], key), *stretches)
    for key, says in TOTALS.items():
        if data[key] is not None:
            yield gauge(f"windtunnel_shadow_{key.removesuffix('_s')}", says, data[key])
    says = "1 if the twin is saturated, drifts, or has too little traffic."
    yield gauge("windtunnel_shadow_says", says, float(bool(data["says"])))
    others = data["others"].items()
    for key in OF_THE_RUN:
        found = [(name, one[key]) for name, one in others if one[key] is not None]
        says = "The same with other settings."
        yield gauge(f"windtunnel_shadow_other_{key}", says, found, "name")
    yield from _present(data["cluster"])
    says = "Cost over that of foresight at equal SLO attainment, of the recent traffic."
    regrets = [(name, one["ratio"]) for name, one in data["regret"].items()]
    yield gauge("windtunnel_shadow_regret_ratio", says, regrets, "name")
    says = "Share of decisions that would have been different."
    differ = [
        ((name, kind), count["share"])
        for name, one in others
        for kind, count in one["decisions"].items()
    ]
    yield gauge("windtunnel_shadow_other_decisions", says, differ, "name", "kind")


def _present(cluster: dict[str, Any] | None) -> Iterator[Any]:
    """The current state of the cluster, as far as it is known."""
    if cluster is None:
        return
    found = {"replicas": cluster["replicas"], "machines": cluster["machines"] or {}}
    found |= {kind: {"": cluster[kind] or {}} for kind in ("pods", "gangs")}
    for kind, by_name in found.items():
        says = "State of the cluster: how many exist or should exist, and how many are ready."
        rows = [
            ((name, state), count)
            for name, counts in by_name.items()
            for state, count in counts.items()
        ]
        yield gauge(f"windtunnel_shadow_present_{kind}", says, rows, "name", "state")


def _by_stretch(
    figures: dict[str, dict[str, Any]], key: str
) -> Iterator[tuple[tuple[str, str], float]]:
    for stretch, by_name in figures.items():
        for name, one in by_name.items():
            if one[key] is not None:
                yield (stretch, name), one[key]
