"""The `/metrics` page of an emulated server, with vLLM's names and buckets.

Times are wall-clock times as a client sees them. Each replica is one `engine`.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

from windtunnel.core.statistics.histogram import GROWTH, Histogram
from windtunnel.engine.server import Server
from windtunnel.live.admin import metrics_page
from windtunnel.workload.request import Request

STOP, LENGTH, ABORT = "stop", "length", "abort"

FIRST_TOKEN_S = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75,
    1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
)  # fmt: skip
TOKEN_S = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75,
    1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
)  # fmt: skip
REQUEST_S = (
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0,
    120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0,
)  # fmt: skip
TOKENS = tuple(float(one * 10**power) for power in range(7) for one in (1, 2, 5))


class Buckets:
    """A histogram: counts of values up to each bound, and their sum."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float, times: int = 1) -> None:
        self._counts[bisect_left(self._bounds, value)] += times
        self.total += value * times

    def cumulative(self) -> list[tuple[str, float]]:
        labels = [*(repr(bound) for bound in self._bounds), "+Inf"]
        return list(zip(labels, map(float, accumulate(self._counts)), strict=True))


HISTOGRAMS: dict[str, tuple[str, Sequence[float]]] = {
    "vllm:time_to_first_token_seconds": ("Time to first token.", FIRST_TOKEN_S),
    "vllm:request_time_per_output_token_seconds": (
        "Time per output token after the first, of each request.",
        TOKEN_S,
    ),
    "vllm:e2e_request_latency_seconds": ("From arrival to the last token.", REQUEST_S),
    "vllm:request_queue_time_seconds": ("Time before the first step.", REQUEST_S),
    "vllm:request_prefill_time_seconds": ("From the first step to the first token.", REQUEST_S),
    "vllm:request_decode_time_seconds": ("From the first to the last token.", REQUEST_S),
    "vllm:request_inference_time_seconds": ("From the first step to the last token.", REQUEST_S),
    "vllm:request_prompt_tokens": ("Prompt tokens of each request.", TOKENS),
    "vllm:request_generation_tokens": ("Output tokens of each request.", TOKENS),
}
"""Observed per request."""

COUNTERS: dict[str, str] = {
    "vllm:prompt_tokens": "Prompt tokens of requests with a first token.",
    "vllm:prefix_cache_queries": "Prompt tokens that were looked up in the prefix cache.",
    "vllm:prefix_cache_hits": "Prompt tokens that were found there.",
}


class EngineCounts:
    """The counts of one replica's requests."""

    def __init__(self) -> None:
        self.histograms = {name: Buckets(bounds) for name, (_, bounds) in HISTOGRAMS.items()}
        self.counters = dict.fromkeys(COUNTERS, 0)
        self.ended = {STOP: 0, LENGTH: 0, ABORT: 0}
        self.first_tokens = 0
        self.generated = 0  # as last reported: a counter never decreases


class Metrics:
    """Counts requests as they progress, and reads the servers at each scrape."""

    def __init__(self, servers: list[Server], model: str, speedup: float) -> None:
        self._servers = servers
        self._model = model
        self._speedup = speedup
        self._counts = [EngineCounts() for _ in servers]
        self._drawn: dict[int, str] = {}  # finish reasons of requests without max_tokens
        self.completed_requests = 0

    # Called by the engine

    def ends_by_itself(self, request: Request) -> None:
        """Notes that this request had no max_tokens, so its answer ends with `stop`."""
        self._drawn[request.id] = STOP

    def began(self, request: Request) -> None:
        counts = self._counts[request.server]
        counts.first_tokens += 1
        prompt, hits = int(request.prompt_tokens), int(request.prefix_hit_tokens)
        counts.counters["vllm:prompt_tokens"] += prompt
        counts.counters["vllm:prefix_cache_queries"] += prompt
        counts.counters["vllm:prefix_cache_hits"] += hits
        spans = {
            "vllm:time_to_first_token_seconds": request.first_token_s - request.arrived_s,
            "vllm:request_queue_time_seconds": request.scheduled_s - request.arrived_s,
            "vllm:request_prefill_time_seconds": request.first_token_s - request.scheduled_s,
        }
        for name, span_s in spans.items():
            counts.histograms[name].add(span_s / self._speedup)

    def completed(self, request: Request) -> None:
        self.completed_requests += 1
        counts = self._counts[request.server]
        counts.ended[self._drawn.pop(request.id, LENGTH)] += 1
        tokens = int(request.output_tokens)
        decode_s = request.finished_s - request.first_token_s
        spans = {
            "vllm:e2e_request_latency_seconds": request.finished_s - request.arrived_s,
            "vllm:request_decode_time_seconds": decode_s,
            "vllm:request_inference_time_seconds": request.finished_s - request.scheduled_s,
        }
        if tokens > 1:
            spans["vllm:request_time_per_output_token_seconds"] = decode_s / (tokens - 1)
        for name, span_s in spans.items():
            counts.histograms[name].add(span_s / self._speedup)
        counts.histograms["vllm:request_prompt_tokens"].add(int(request.prompt_tokens))
        counts.histograms["vllm:request_generation_tokens"].add(tokens)

    def aborted(self, request: Request) -> None:
        self._drawn.pop(request.id, None)
        if request.server >= 0:
            self._counts[request.server].ended[ABORT] += 1

    # Scrapes

    def page(self, now_s: float, lag_s: float) -> bytes:
        """All metrics in Prometheus' text format; `now_s` is emulated time, `lag_s` is not."""
        from prometheus_client import CollectorRegistry
        from prometheus_client.registry import Collector

        families = list(self._families(now_s, lag_s))

        class Look(Collector):
            def collect(self) -> list[Any]:
                return families

        registry = CollectorRegistry(auto_describe=False)
        registry.register(Look())
        return metrics_page(registry)

    def _families(self, now_s: float, lag_s: float) -> Iterator[Any]:
        from prometheus_client.core import (
            CounterMetricFamily,
            GaugeMetricFamily,
            HistogramMetricFamily,
        )

        labels = ["engine", "model_name"]
        for name, (says, values) in self._gauges(now_s).items():
            gauge = GaugeMetricFamily(name, says, labels=labels)
            for number, value in enumerate(values):
                gauge.add_metric(self._labels(number), value)
            yield gauge
        for name, (says, values) in self._totals(now_s).items():
            counter = CounterMetricFamily(name, says, labels=labels)
            for number, value in enumerate(values):
                counter.add_metric(self._labels(number), value)
            yield counter
        ended = CounterMetricFamily(
            "vllm:request_success",
            "Requests by how they ended.",
            labels=[*labels, "finished_reason"],
        )
        for number, counts in enumerate(self._counts):
            for reason, times in counts.ended.items():
                ended.add_metric([*self._labels(number), reason], times)
        yield ended
        for name, (says, _) in HISTOGRAMS.items():
            family = HistogramMetricFamily(name, says, labels=labels)
            for number, counts in enumerate(self._counts):
                buckets = counts.histograms[name]
                family.add_metric(self._labels(number), buckets.cumulative(), buckets.total)
            yield family
        yield from self._token_gaps(labels)
        yield self._cache_config()
        says = "The emulator's worst lag behind the wall clock since the last scrape."
        yield GaugeMetricFamily("windtunnel:emulator_lag_seconds", says, value=lag_s)

    def _labels(self, number: int) -> list[str]:
        return [str(number), self._model]

    def _gauges(self, now_s: float) -> dict[str, tuple[str, list[float]]]:
        servers = self._servers
        used = [server.kv_used(now_s) for server in servers]
        says = "The share of KV cache blocks in use, from 0 to 1"
        return {
            "vllm:num_requests_running": (
                "Requests in the batch.",
                [float(server.load - server.queued) for server in servers],
            ),
            "vllm:num_requests_waiting": (
                "Requests queued for the batch.",
                [float(server.queued) for server in servers],
            ),
            "vllm:kv_cache_usage_perc": (f"{says}.", used),
            "vllm:gpu_cache_usage_perc": (f"{says}; the older name.", used),
        }

    def _totals(self, now_s: float) -> dict[str, tuple[str, list[float]]]:
        totals = {
            name: (says, [float(counts.counters[name]) for counts in self._counts])
            for name, says in COUNTERS.items()
        }
        totals["vllm:generation_tokens"] = ("Output tokens.", self._generated(now_s))
        preemptions = [float(server.preemptions) for server in self._servers]
        totals["vllm:num_preemptions"] = ("Preemptions.", preemptions)
        drafts = [server.drafts for server in self._servers if server.drafts is not None]
        if len(drafts) == len(self._servers):
            for name, says, counts in (
                ("drafts", "Drafts.", [one.steps for one in drafts]),
                ("draft_tokens", "Drafted tokens.", [one.drafted for one in drafts]),
                ("accepted_tokens", "Accepted tokens.", [one.accepted for one in drafts]),
            ):
                totals[f"vllm:spec_decode_num_{name}"] = (says, [float(one) for one in counts])
        return totals

    def _generated(self, now_s: float) -> list[float]:
        """Generated tokens: first tokens, later ones, and those of the current run of steps."""
        for server, counts in zip(self._servers, self._counts, strict=True):
            under_way = server.running.count * (server.steps_until(now_s) - server.steps)
            generated = counts.first_tokens + server.token_gaps.count + int(under_way)
            if server.drafts is not None:
                generated += int(server.drafts.gained)
            counts.generated = max(counts.generated, generated)
        return [float(counts.generated) for counts in self._counts]

    def _token_gaps(self, labels: list[str]) -> Iterator[Any]:
        from prometheus_client.core import HistogramMetricFamily

        gaps = [_rebucketed(server.token_gaps, self._speedup) for server in self._servers]
        for name, says in (
            ("vllm:inter_token_latency_seconds", "Gaps between tokens."),
            ("vllm:time_per_output_token_seconds", "Gaps between tokens; the older name."),
        ):
            family = HistogramMetricFamily(name, says, labels=labels)
            for number, buckets in enumerate(gaps):
                family.add_metric(self._labels(number), buckets.cumulative(), buckets.total)
            yield family

    def _cache_config(self) -> Any:
        from prometheus_client.core import GaugeMetricFamily

        names = ["block_size", "enable_prefix_caching", "num_gpu_blocks"]
        family = GaugeMetricFamily(
            "vllm:cache_config_info", "The KV cache.", labels=["engine", *names]
        )
        for number, server in enumerate(self._servers):
            limits = server.limits
            settings = [limits.block_size, limits.prefix_caching, limits.kv_blocks]
            family.add_metric([str(number), *map(str, settings)], 1.0)
        return family


def _rebucketed(gaps: Histogram, speedup: float) -> Buckets:
    """Token gaps in vLLM's buckets; ours are one percent wide and count by their midpoint."""
    buckets = Buckets(TOKEN_S)
    if gaps.zeros:
        buckets.add(0.0, gaps.zeros)
    for bucket, times in gaps.buckets.items():
        buckets.add(GROWTH ** (bucket + 0.5) / speedup, times)
    buckets.total = gaps.total / speedup
    return buckets
