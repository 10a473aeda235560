"""Metrics that inference servers publish under `/metrics`: load, and totals since their start.

A scraped page and a Prometheus response are both parsed into samples, and samples into one
`PodReading`. The metric names of vLLM, SGLang, TensorRT-LLM and TGI are declared here, once: a
server's metric is the first name of a tuple that it publishes. Several engines of a server are
combined.
"""

import math
import os.path
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from msgspec import Struct, field

LARGEST_PAGE: Final = 8 << 20
MOST_SAMPLES: Final = 100_000
LARGEST_VALUE: Final = 1e15

WAITING: Final = (
    "vllm:num_requests_waiting",
    "sglang:num_queue_reqs",
    "trtllm_num_requests_waiting",
    'nv_trt_llm_request_metrics{request_type="waiting"',
    "tgi_queue_size",
)
RUNNING: Final = (
    "vllm:num_requests_running",
    "sglang:num_running_reqs",
    "trtllm_num_requests_running",
    'nv_trt_llm_request_metrics{request_type="scheduled"',
    "tgi_batch_current_size",
)
KV_USED: Final = (
    "vllm:kv_cache_usage_perc",
    "sglang:token_usage",
    "trtllm_kv_cache_utilization",
    'nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="fraction"',
)
CACHE_INFO: Final = ("vllm:cache_config_info", "sglang:cache_config_info")

COMPLETED: Final = "completed"
PROMPT_TOKENS: Final = "prompt_tokens"
OUTPUT_TOKENS: Final = "output_tokens"
CACHE_HITS: Final = "cache_hits"
CACHE_LOOKUPS: Final = "cache_lookups"
COUNTERS: Final[Mapping[str, tuple[str, ...]]] = {
    COMPLETED: (
        "vllm:request_success_total",
        "sglang:num_requests_total",
        "trtllm_request_success_total",
        "tgi_request_success",
    ),
    PROMPT_TOKENS: ("vllm:prompt_tokens_total", "sglang:prompt_tokens_total"),
    OUTPUT_TOKENS: ("vllm:generation_tokens_total", "sglang:generation_tokens_total"),
    CACHE_HITS: ("vllm:prefix_cache_hits_total",),
    CACHE_LOOKUPS: ("vllm:prefix_cache_queries_total",),
}
TTFT: Final = "ttft"
TPOT: Final = "tpot"
E2E: Final = "e2e"
HISTOGRAMS: Final[Mapping[str, tuple[str, ...]]] = {
    TTFT: (
        "vllm:time_to_first_token_seconds",
        "sglang:time_to_first_token_seconds",
        "trtllm_time_to_first_token_seconds",
    ),
    TPOT: (
        "vllm:request_time_per_output_token_seconds",
        "vllm:inter_token_latency_seconds",
        "vllm:time_per_output_token_seconds",
        "sglang:inter_token_latency_seconds",
        "trtllm_time_per_output_token_seconds",
    ),
    E2E: (
        "vllm:e2e_request_latency_seconds",
        "sglang:e2e_request_latency_seconds",
        "trtllm_e2e_request_latency_seconds",
    ),
}


class MetricSample(NamedTuple):
    """One line of a scraped page, or the newest value of a series."""

    name: str
    labels: Mapping[str, str]
    value: float


class HistogramSums(Struct, frozen=True):
    """A histogram since the server started: cumulative counts by bound, and the sum of values."""

    buckets: dict[float, float] = field(default_factory=dict)
    total: float = 0.0
    count: float = 0.0


class PodReading(Struct, frozen=True):
    """The metrics read from one server; None: not published."""

    waiting: int | None = None
    running: int | None = None
    kv_used: float | None = None
    """The share of its KV cache in use."""
    kv_tokens: int | None = None
    counters: dict[str, float] = field(default_factory=dict)
    histograms: dict[str, HistogramSums] = field(default_factory=dict)

    @property
    def says_load(self) -> bool:
        return not (self.waiting is None and self.running is None and self.kv_used is None)


def _plain(name: str) -> str:
    return name.partition("{")[0]


def metric_names() -> list[str]:
    """The names of all metrics that are read, including each series of a histogram."""
    names = {
        _plain(one): None for table in (WAITING, RUNNING, KV_USED, CACHE_INFO) for one in table
    }
    names |= {one: None for table in COUNTERS.values() for one in table}
    for table in HISTOGRAMS.values():
        for one in table:
            names |= {f"{one}{suffix}": None for suffix in ("_bucket", "_sum", "_count")}
    return list(names)


def _any_of(names: Sequence[str]) -> str:
    """A regular expression for any of these words, with common prefixes factored out."""
    if len(names) == 1:
        return re.escape(names[0])
    alike = os.path.commonprefix(names)  # noqa: RUF071 - of words
    by_letter: dict[str, list[str]] = {}
    for rest in sorted(name.removeprefix(alike) for name in names):
        by_letter.setdefault(rest[:1], []).append(rest)
    return f"{re.escape(alike)}(?:{'|'.join(map(_any_of, by_letter.values()))})"


def _line_pattern(names: Sequence[str]) -> re.Pattern[bytes]:
    """A pattern for a line with the line break before it, which is faster to find than `^`."""
    words = _any_of(names).encode()
    return re.compile(rb'\n(%s)(?:\{((?:[^"}\n]|"(?:[^"\\\n]|\\.)*")*)\})?[ \t]+(\S{1,40})' % words)


_LINE: Final = _line_pattern(metric_names())
_LABEL: Final = re.compile(rb'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\.)*)"')


def page_samples(page: bytes, name: str = "") -> Iterator[MetricSample]:
    """Parses Prometheus' text format: samples of the metrics read here, or of one named metric."""
    pattern = _line_pattern([name]) if name else _LINE
    for number, found in enumerate(pattern.finditer(b"\n" + page)):
        if number >= MOST_SAMPLES:
            return
        value = sample_value(found[3])
        if value is not None:
            labels = {
                key.decode(): text.decode("utf-8", "replace")
                for key, text in _LABEL.findall(found[2] or b"")
            }
            yield MetricSample(found[1].decode(), labels, value)


def sample_value(text: bytes | str) -> float | None:
    """Parses a plausible value: at least 0, not NaN, at most `LARGEST_VALUE`; else None."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0.0 <= value <= LARGEST_VALUE else None


def reading_of(samples: Iterable[MetricSample]) -> PodReading:
    """Combines the samples of one server."""
    found: dict[str, list[MetricSample]] = {}
    for sample in samples:
        found.setdefault(sample.name, []).append(sample)
    waiting, running, used = (_first(found, table) for table in (WAITING, RUNNING, KV_USED))
    shares = [one.value for one in used]
    counters = {
        what: math.fsum(one.value for one in series)
        for what, table in COUNTERS.items()
        if (series := _first(found, table))
    }
    histograms = {what: made for what, table in HISTOGRAMS.items() if (made := _sums(found, table))}
    return PodReading(
        int(math.fsum(one.value for one in waiting)) if waiting else None,
        int(math.fsum(one.value for one in running)) if running else None,
        min(1.0, math.fsum(shares) / len(shares)) if shares else None,
        _kv_tokens(_first(found, CACHE_INFO)),
        counters,
        histograms,
    )


def _first(found: Mapping[str, list[MetricSample]], table: tuple[str, ...]) -> list[MetricSample]:
    """The series of the first of these names that is present."""
    for name in table:
        plain, _, label = name.partition("{")
        series = found.get(plain, [])
        if label:
            key, _, value = label.rstrip('"').partition('="')
            series = [one for one in series if one.labels.get(key) == value]
        if series:
            return series
    return []


def _sums(found: Mapping[str, list[MetricSample]], table: tuple[str, ...]) -> HistogramSums | None:
    for name in table:
        counts = found.get(f"{name}_count")
        if not counts:
            continue
        buckets: dict[float, float] = {}
        for one in found.get(f"{name}_bucket", ()):
            try:
                bound = float(one.labels.get("le", ""))
            except ValueError:
                continue
            if bound > 0.0:
                buckets[bound] = buckets.get(bound, 0.0) + one.value
        total = math.fsum(one.value for one in found.get(f"{name}_sum", ()))
        count = math.fsum(one.value for one in counts)
        return HistogramSums(dict(sorted(buckets.items())), total, count)
    return None


def _kv_tokens(series: Iterable[MetricSample]) -> int | None:
    total = 0
    for one in series:
        size = one.labels.get("block_size") or one.labels.get("page_size") or ""
        blocks = one.labels.get("num_gpu_blocks") or one.labels.get("num_pages") or ""
        if size.isdecimal() and blocks.isdecimal() and len(size) + len(blocks) <= 18:
            total += int(size) * int(blocks)
    return total or None
