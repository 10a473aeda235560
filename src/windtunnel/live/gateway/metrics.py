"""The counters of a gateway, and their Prometheus metrics: our names, and OpenTelemetry's."""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from windtunnel.live.gateway.decisions import GatewayCore


DURATIONS: Final = tuple(0.01 * 2**power for power in range(14))
"""The bounds that OpenTelemetry recommends for durations."""
FIRST_TOKEN: Final[tuple[float, ...]] = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
)  # fmt: skip
PER_TOKEN: Final[tuple[float, ...]] = (
    0.01,
    0.025,
    0.05,
    0.075,
    0.1,
    0.15,
    0.2,
    0.3,
    0.4,
    0.5,
    0.75,
    1.0,
    2.5,
)
MOST_SERIES: Final = 10_000
HISTOGRAMS: Final = (
    ("gen_ai_server_request_duration_seconds", "duration", "Completed requests, from arrival."),
    ("gen_ai_server_time_to_first_token_seconds", "first_token", "Of streams, from arrival."),
    ("gen_ai_server_time_per_output_token_seconds", "per_token", "Of streams, after the first."),
    ("windtunnel_queue_seconds", "queued", "From arrival until a server was asked."),
)


class BucketCounts:
    """A histogram: counts by bucket, and their sum."""

    __slots__ = ("_bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds: Final = list(bounds)
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        place = 0
        for bound in self._bounds:
            if value <= bound:
                break
            place += 1
        self.counts[place] += 1
        self.total += value

    def buckets(self) -> list[tuple[str, float]]:
        """Cumulative buckets, as Prometheus expects them."""
        found, sum_ = [], 0
        for bound, count in zip((*self._bounds, float("inf")), self.counts, strict=True):
            sum_ += count
            found.append(("+Inf" if bound == float("inf") else repr(bound), float(sum_)))
        return found


class ModelMetrics:
    """The metrics of one model."""

    __slots__ = ("duration", "first_token", "output_tokens", "per_token", "prompt_tokens", "queued")

    def __init__(self) -> None:
        self.duration: Final = BucketCounts(DURATIONS)
        self.first_token: Final = BucketCounts(FIRST_TOKEN)
        self.per_token: Final = BucketCounts(PER_TOKEN)
        self.queued: Final = BucketCounts(DURATIONS)
        self.prompt_tokens = 0
        self.output_tokens = 0


class GatewayMetrics:
    """All counters outside the decisions themselves."""

    def __init__(self) -> None:
        self.outcomes: Final[dict[tuple[str, str, str], int]] = {}
        """Requests that ended, by model, outcome and reason."""
        self.models: Final[dict[str, ModelMetrics]] = {}
        self.early: Final[dict[int, int]] = {}
        self.attempts_failed: Final[dict[int, int]] = {}
        self.unrequested: Final[dict[int, int]] = {}
        """Connections dropped because a server sent more than its response, by server."""
        self.bugs = 0
        self.lost: Final[dict[str, int]] = {}
        """Lines that could not be written, by file."""
        self.stranded = 0
        """Prompts whose KV was never fetched: it stays on the prefill server for its lease."""
        self.connections = 0
        self.overflowed_tenants = 0
        """Requests whose tenant has no number of its own."""

    def refused_early(self, status: int) -> None:
        """Counts a request that was refused before its content was known."""
        self.early[status] = self.early.get(status, 0) + 1

    @property
    def answered(self) -> int:
        """Requests that got a response or a refusal, however early."""
        return sum(self.outcomes.values()) + sum(self.early.values())

    def attempt_failed(self, server: int) -> None:
        self.attempts_failed[server] = self.attempts_failed.get(server, 0) + 1

    def sent_unrequested(self, server: int) -> None:
        self.unrequested[server] = self.unrequested.get(server, 0) + 1

    def of(self, model: str) -> ModelMetrics:
        found = self.models.get(model)
        if found is None:
            found = self.models[model] = ModelMetrics()
        return found

    def ended(self, model: str, outcome: str, reason: str) -> None:
        key = (model, outcome, reason)
        count = self.outcomes.get(key, 0)
        if count or len(self.outcomes) < MOST_SERIES:
            self.outcomes[key] = count + 1


class GatewayCollector:
    """Provides the counts to prometheus_client at each scrape."""

    def __init__(
        self, metrics: GatewayMetrics, core: "GatewayCore", now_s: Callable[[], float]
    ) -> None:
        self._now_s: Final = now_s
        self._metrics: Final = metrics
        self._core: Final = core

    def collect(self) -> Iterable[object]:
        from prometheus_client.core import (
            CounterMetricFamily,
            GaugeMetricFamily,
            HistogramMetricFamily,
        )

        metrics, core = self._metrics, self._core
        ended = CounterMetricFamily(
            "windtunnel_requests", "Requests that ended.", labels=["model", "outcome", "reason"]
        )
        for key, count in metrics.outcomes.items():
            ended.add_metric(list(key), count)
        yield ended
        early = CounterMetricFamily(
            "windtunnel_requests_refused_early",
            "Requests refused before admission: invalid, or no server ready (503).",
            labels=["status"],
        )
        for status, count in metrics.early.items():
            early.add_metric([str(status)], count)
        yield early
        yield CounterMetricFamily(
            "windtunnel_retries", "Requests sent to another server.", value=core.retries
        )
        yield GaugeMetricFamily(
            "windtunnel_client_connections", "Connections of clients.", value=metrics.connections
        )
        yield CounterMetricFamily(
            "windtunnel_failures", "Requests that the gateway itself failed on.", value=metrics.bugs
        )
        yield CounterMetricFamily(
            "windtunnel_overflowed_tenants",
            "Requests of fairness ids beyond the limit, which share a tenant.",
            value=metrics.overflowed_tenants,
        )
        lost = CounterMetricFamily(
            "windtunnel_lines_lost", "Lines that could not be written.", labels=["file"]
        )
        for file, count in metrics.lost.items():
            lost.add_metric([file], count)
        yield lost
        queued = GaugeMetricFamily("windtunnel_queued", "Queued requests.", labels=["model"])
        flying = GaugeMetricFamily("windtunnel_in_flight", "Sent, not ended.", labels=["server"])
        up = GaugeMetricFamily("windtunnel_server_up", "1: may get requests.", labels=["server"])
        failed = CounterMetricFamily(
            "windtunnel_attempts_failed", "Requests a server did not answer.", labels=["server"]
        )
        unrequested = CounterMetricFamily(
            "windtunnel_unrequested_answers",
            "Connections dropped after more than one answer.",
            labels=["server"],
        )
        ages = GaugeMetricFamily(
            "windtunnel_scrape_age_seconds", "Since its load was last read.", labels=["server"]
        )
        now_s = self._now_s()
        for plane in core.planes.values():
            queued.add_metric([plane.name], plane.driver.gateway.queued + len(plane.unplaced))
        for number, server in enumerate(core.servers):
            if server.gone:
                continue
            flying.add_metric([server.name], server.in_flight)
            state = server.availability
            up.add_metric(
                [server.name],
                float(state.healthy and not state.draining and state.breaker.state == 0),
            )
            failed.add_metric([server.name], metrics.attempts_failed.get(number, 0))
            unrequested.add_metric([server.name], metrics.unrequested.get(number, 0))
            ages.add_metric([server.name], now_s - server.observed_s)
        yield from (queued, flying, up, failed, unrequested, ages)
        yield CounterMetricFamily(
            "windtunnel_kv_transfers_stranded",
            "Prompts computed for a server that never fetched them.",
            value=metrics.stranded,
        )
        for name, field, meaning in HISTOGRAMS:
            family = HistogramMetricFamily(name, meaning, labels=["gen_ai_request_model"])
            for model, one in metrics.models.items():
                histogram: BucketCounts = getattr(one, field)
                family.add_metric([model], histogram.buckets(), histogram.total)
            yield family
        tokens = CounterMetricFamily(
            "windtunnel_tokens", "Tokens of completed requests.", labels=["model", "kind"]
        )
        for model, one in metrics.models.items():
            tokens.add_metric([model, "prompt"], one.prompt_tokens)
            tokens.add_metric([model, "output"], one.output_tokens)
        yield tokens


def registry_of(
    metrics: GatewayMetrics, core: "GatewayCore", now_s: Callable[[], float]
) -> "CollectorRegistry":
    from prometheus_client import CollectorRegistry

    registry = CollectorRegistry(auto_describe=False)
    registry.register(GatewayCollector(metrics, core, now_s))  # type: ignore[arg-type]
    return registry
