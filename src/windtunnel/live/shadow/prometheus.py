"""Traffic reconstructed from vLLM's counters and histograms in Prometheus, not from requests.

For every half minute, as many requests are generated as have ended in it. Their lengths and times
are drawn from the histograms of that time and scaled to their means, so that the figures of an
interval, step times and the twin's load are about right. Correlations within one request are
unknown.
"""

import asyncio
import math
from collections.abc import Sequence
from typing import Final, NamedTuple

from windtunnel.analysis.shadow.window import TrafficWindow
from windtunnel.core.clock import unix_s
from windtunnel.core.random import Stream
from windtunnel.live.operate.scaling.sources import MetricSources, PrometheusServer, open_sources
from windtunnel.scaling.kubernetes.prometheus import Unavailable, matrix_of
from windtunnel.workload.traces.record import TraceRequest

STEP_S: Final = 30.0
RATE_S: Final = 60.0
"""Window of rates: servers must be scraped at least twice in it."""
DELAY_S: Final = 15.0
"""The latest scrapes may not be available yet."""
ASK_S: Final = 10.0
ALL_S: Final = 30.0
MOST_PER_STEP: Final = 100_000
MOST_IN_FLIGHT: Final = 100_000
LEAST_SCALE, MOST_SCALE = 0.5, 2.0
PROMPT, OUTPUT, TTFT, TPOT = "prompt tokens", "output tokens", "TTFT", "TPOT"
HISTOGRAMS: Final = {
    PROMPT: "vllm:request_prompt_tokens",
    OUTPUT: "vllm:request_generation_tokens",
    TTFT: "vllm:time_to_first_token_seconds",
    TPOT: "vllm:request_time_per_output_token_seconds",
}
RUNNING, WAITING = "vllm:num_requests_running", "vllm:num_requests_waiting"
UNKNOWN: Final = (
    "single requests: they are made up from counters and histograms of vLLM, in steps of 30 s",
    "prompts that share a prefix: caches are empty in the twin",
    "classes of service, tenants and sessions: all requests are of the class `standard`",
    "requests that no server has got: queued at a gateway, rejected or given up",
    "latencies that a client sees: times are those of the servers",
)


class _Histogram(NamedTuple):
    """The observations of one step."""

    observed: float
    total: float
    bounds: list[float]
    """Upper bounds: finite and increasing."""
    below: list[float]
    """Observations up to each bound."""

    def drawn(self, count: int, stream: Stream) -> list[float]:
        """Draws `count` values, one from each equal part of the distribution, in random order."""
        values = [self._at((number + 0.5) / count) for number in range(count)]
        mean = math.fsum(values) / count
        if mean > 0.0 and self.observed > 0.0 and self.total > 0.0:
            scale = min(max(self.total / self.observed / mean, LEAST_SCALE), MOST_SCALE)
            values = [value * scale for value in values]
        return [value for _, value in sorted((stream.uniform(), value) for value in values)]

    def _at(self, share: float) -> float:
        """The value below which this share lies, spread evenly within a bucket."""
        wanted = share * self.observed
        low, under = 0.0, 0.0
        for bound, below in zip(self.bounds, self.below, strict=True):
            if below >= wanted and below > under:
                return low + (bound - low) * (wanted - under) / (below - under)
            low, under = bound, max(under, below)
        return low


class PrometheusTraffic:
    """Keeps a window of traffic in step with a Prometheus server's metrics of vLLM servers."""

    def __init__(self, window: TrafficWindow, server: PrometheusServer, selector: str = "") -> None:
        self.window: Final = window
        self.source: Final = server.url
        self.bad_lines = 0
        self.says = ""
        self._server: Final = server
        self._selector: Final = selector
        self._until_s: float | None = None
        self._made = 0
        self._carry = 0.0
        self._mean_e2e_s = 1.0
        self._mean_prompt = 1
        self._stream: Final = Stream(1, "shadow.prometheus")

    def unknown(self) -> list[str]:
        return list(UNKNOWN)

    def look(self) -> None:
        """Queries the steps since the last call."""
        self.look_at(unix_s())

    def look_at(self, now_s: float) -> None:
        """The same, at a given time; if Prometheus does not answer, `says` holds the reason."""
        end_s = (now_s - DELAY_S) // STEP_S * STEP_S
        if self._until_s is not None and end_s < self._until_s - RATE_S:
            self.window.restart()  # the clock was set back
            self._until_s = None
        begin_s = end_s - self.window.keep_s // STEP_S * STEP_S
        if self._until_s is not None:
            begin_s = max(begin_s, self._until_s)
        steps = round((end_s - begin_s) / STEP_S)
        if steps <= 0:
            return
        try:
            asyncio.run(self._look(steps, end_s))
        except (Unavailable, TimeoutError) as error:
            self.says = str(error) or "Prometheus does not answer in time"
            return
        self._until_s = end_s
        self.window.see(end_s)

    async def _look(self, steps: int, end_s: float) -> None:
        async with open_sources(self._server, ASK_S, ALL_S) as sources, asyncio.timeout(ALL_S):
            found = {}
            for name, metric in HISTOGRAMS.items():
                found[name] = await self._histograms(sources, metric, steps, end_s)
            gauges = [
                await self._last(sources, f"{how}({metric}{{{self._selector}}})", end_s)
                for how, metric in (("sum", RUNNING), ("sum", WAITING), ("count", RUNNING))
            ]
        running, waiting, servers = gauges
        if servers is None and not any(found[PROMPT].values()):
            raise Unavailable(f"Prometheus has no {RUNNING}{{{self._selector}}}: nothing is known")
        self.says = ""
        self.window.servers = None if servers is None else int(servers)
        for number in range(steps):
            at_s = end_s - (steps - 1 - number) * STEP_S
            self._make({name: by_time.get(at_s) for name, by_time in found.items()}, at_s)
        self._put_in_flight(int(min((running or 0.0) + (waiting or 0.0), MOST_IN_FLIGHT)), end_s)

    async def _histograms(
        self, sources: MetricSources, metric: str, steps: int, end_s: float
    ) -> dict[float, _Histogram]:
        """The observations of each step, by the step's end."""
        answers = {}
        for part, by in (("bucket", " by (le)"), ("sum", ""), ("count", "")):
            counted = f"rate({metric}_{part}{{{self._selector}}}[{RATE_S:g}s])"
            query = f"(sum{by} ({counted}) * {STEP_S:g})[{steps * STEP_S - 1:g}s:{STEP_S:g}s]"
            answers[part] = matrix_of(await sources.query(self.source, query, end_s))
        totals, counts = (
            {at_s: value for series in answers[part] for at_s, value in series.values}
            for part in ("sum", "count")
        )
        buckets: dict[float, list[tuple[float, float]]] = {}
        for series in answers["bucket"]:
            bound = _bound(series.labels.get("le", ""))
            if bound is not None:
                for at_s, value in series.values:
                    buckets.setdefault(at_s, []).append((bound, value))
        return {
            at_s: _Histogram(
                count, totals.get(at_s, 0.0), *map(list, zip(*sorted(buckets[at_s]), strict=True))
            )
            for at_s, count in counts.items()
            if buckets.get(at_s)
        }

    async def _last(self, sources: MetricSources, query: str, end_s: float) -> float | None:
        found = matrix_of(await sources.query(self.source, f"({query})[1s:1s]", end_s))
        values = [series.values[-1][1] for series in found if series.values]
        return values[0] if values else None

    def _make(self, seen: dict[str, _Histogram | None], end_s: float) -> None:
        """Generates the requests that ended in a step."""
        counted = seen[OUTPUT]
        if counted is None:
            return
        self._carry += counted.observed
        count = min(int(self._carry), MOST_PER_STEP)
        self._carry -= int(self._carry)
        if not count:
            return
        drawn: dict[str, Sequence[float]] = {}
        for name, histogram in seen.items():
            has = histogram is not None and histogram.observed > 0.0
            drawn[name] = (
                histogram.drawn(count, self._stream) if has and histogram else [0.0] * count
            )
        for number in range(count):
            output = max(1, round(drawn[OUTPUT][number]))
            ttft_s, tpot_s = max(1e-3, drawn[TTFT][number]), max(0.0, drawn[TPOT][number])
            e2e_s = ttft_s + tpot_s * (output - 1)
            ended_s = end_s - STEP_S + STEP_S * (number + 0.5) / count
            self._made += 1
            request = TraceRequest(
                arrived_s=ended_s - e2e_s,
                prompt_tokens=max(1, round(drawn[PROMPT][number])),
                output_tokens=output,
                id=f"made-{self._made}",
                ttft_s=ttft_s,
                e2e_s=e2e_s,
            )
            self.window.end(request)
            self._mean_e2e_s += 0.01 * (e2e_s - self._mean_e2e_s)
        self._mean_prompt = max(1, round(math.fsum(drawn[PROMPT]) / count))

    def _put_in_flight(self, count: int, now_s: float) -> None:
        """Generates the requests in flight that servers report, spread over the mean duration."""
        self.window.replace_in_flight(
            TraceRequest(
                arrived_s=now_s - self._mean_e2e_s * (number + 0.5) / count,
                prompt_tokens=self._mean_prompt,
                output_tokens=0,
                id=f"in-flight-{number}",
            )
            for number in range(count)
        )


def _bound(text: str) -> float | None:
    """The upper bound of a bucket; None for the last one, which has none."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
