"""The counters of a gateway, and their Prometheus metrics: our names, and OpenTelemetry's."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from windtunnel.live.metrics import BucketCounts, counter, gauge, histogram

if TYPE_CHECKING:
    from windtunnel.live.gateway.decisions import GatewayCore
    from windtunnel.routing.availability import Availability


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


def gateway_families(metrics: GatewayMetrics, core: "GatewayCore", now_s: float) -> Iterator[Any]:
    """All metrics with their current values."""
    yield counter(
        "windtunnel_requests",
        "Requests that ended.",
        metrics.outcomes.items(),
        *("model", "outcome", "reason"),
    )
    yield counter(
        "windtunnel_requests_refused_early",
        "Requests refused before admission: invalid, or no server ready (503).",
        metrics.early.items(),
        "status",
    )
    yield counter("windtunnel_retries", "Requests sent to another server.", core.retries)
    yield gauge("windtunnel_client_connections", "Connections of clients.", metrics.connections)
    yield counter(
        "windtunnel_failures", "Requests that the gateway itself failed on.", metrics.bugs
    )
    yield counter(
        "windtunnel_overflowed_tenants",
        "Requests of fairness ids beyond the limit, which share a tenant.",
        metrics.overflowed_tenants,
    )
    yield counter(
        "windtunnel_lines_lost", "Lines that could not be written.", metrics.lost.items(), "file"
    )
    queued = [
        (plane.name, plane.driver.gateway.queued + len(plane.unplaced))
        for plane in core.planes.values()
    ]
    yield gauge("windtunnel_queued", "Queued requests.", queued, "model")
    yield from _server_families(metrics, core, now_s)
    yield counter(
        "windtunnel_kv_transfers_stranded",
        "Prompts computed for a server that never fetched them.",
        metrics.stranded,
    )
    models = metrics.models.items()
    for name, field, meaning in HISTOGRAMS:
        counts = [(model, getattr(one, field)) for model, one in models]
        yield histogram(name, meaning, counts, "gen_ai_request_model")
    tokens = [
        row
        for model, one in models
        for row in (((model, "prompt"), one.prompt_tokens), ((model, "output"), one.output_tokens))
    ]
    yield counter("windtunnel_tokens", "Tokens of completed requests.", tokens, "model", "kind")


def _server_families(metrics: GatewayMetrics, core: "GatewayCore", now_s: float) -> Iterator[Any]:
    servers = [(number, one) for number, one in enumerate(core.servers) if not one.gone]
    in_flight = [(one.name, one.in_flight) for _, one in servers]
    yield gauge("windtunnel_in_flight", "Sent, not ended.", in_flight, "server")
    up = [(one.name, float(_is_up(one.availability))) for _, one in servers]
    yield gauge("windtunnel_server_up", "1: may get requests.", up, "server")
    failed = [(one.name, metrics.attempts_failed.get(number, 0)) for number, one in servers]
    yield counter(
        "windtunnel_attempts_failed", "Requests a server did not answer.", failed, "server"
    )
    unrequested = [(one.name, metrics.unrequested.get(number, 0)) for number, one in servers]
    yield counter(
        "windtunnel_unrequested_answers",
        "Connections dropped after more than one answer.",
        unrequested,
        "server",
    )
    ages = [(one.name, now_s - one.observed_s) for _, one in servers]
    yield gauge("windtunnel_scrape_age_seconds", "Since its load was last read.", ages, "server")


def _is_up(state: "Availability") -> bool:
    return state.healthy and not state.draining and state.breaker.state == 0
