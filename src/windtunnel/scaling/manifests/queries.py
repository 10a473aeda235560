"""Finds the one metric that a Prometheus query of an autoscaler asks for.

Not a query language: a metric that is known here, or the rate of a counter of requests, as sum,
average or maximum over the replicas of the target. Label matchers, which select the target's own
replicas in a cluster, and windows, which only smooth, are ignored; so is `or vector(0)`, since a
simulated metric always has a value. `> bool 0`, or another number, compares the query's single
number, or one that has no parts: a count of a gateway. `* 100` turns a share of the KV cache into a
percentage.

For histograms the mean is known, and for TTFT some percentiles: any other quantile, or the sum over
the count, is read as the mean. Any query can be read if the scenario maps a name in it to a metric.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from windtunnel.core.errors import InputError
from windtunnel.scaling.metrics import (
    KV_PERCENT,
    KV_USED,
    LARGEST,
    MEAN,
    SUM,
    TTFT,
    TTFT_P90,
    TTFT_P95,
    TTFT_P99,
    metric,
)

DESIRED: Final = ("wva_desired_replicas", "inferno_desired_replicas")
"""The metric that WVA publishes for an HPA or KEDA: its current and its former name."""
GATEWAY_COUNTERS: Final = (
    "vllm:num_incoming_requests_total",
    "vllm_num_incoming_requests_total",
    "kthena_router_requests_total",
    "dynamo_frontend_requests_total",
)
"""Counters of arriving requests, with one value for the fleet rather than one per replica."""
COUNTERS: Final = (
    "vllm:request_success_total",
    "vllm_request_success_total",
    "http_requests_total",
    *GATEWAY_COUNTERS,
)
RATES: Final = ("rate", "irate")
SERIES: Final = ("_bucket", "_sum", "_count")
SMOOTHED: Final = ("avg_over_time", "max_over_time", "min_over_time", "last_over_time")
ALLOWED: Final = (
    "sum(...), avg(...) or max(...) of a metric that is known, "
    "such as sum(vllm:num_requests_waiting), sum(rate(COUNTER[1m])), "
    "or histogram_quantile(0.95, sum(rate(HISTOGRAM_bucket[5m])) by (le))"
)

_LEFT_OUT = re.compile(
    r"\bor\s+(?:on\s*\(\s*\)\s*)?vector\s*\(\s*0\s*\)"
    r"|\{[^{}]*\}|\[[^\[\]]*\]|\b(?:by|without|on)\s*\([^()]*\)"
)
_COMPARED = re.compile(
    r">\s*bool\s+(-?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:e[+-]?[0-9]{1,2})?)\s*(?=\)|$)"
)
_PERCENT = re.compile(r"\*\s*100\s*(?=\)|$)|^\s*100\s*\*")
_BRACKET = re.compile(r"([A-Za-z_:][A-Za-z0-9_:]*)?\s*\(|\)")
_QUANTILE = re.compile(r"\s*histogram_quantile\s*\(\s*(0?\.[0-9]+)\s*,(.*)\)\s*", re.DOTALL)
_NAME = re.compile(r"[A-Za-z_:][A-Za-z0-9_:]*")
_TOKEN = re.compile(r"\s*(?:([A-Za-z_:][A-Za-z0-9_:]*)|([()])|(\S))")
PERCENTILES: Final = {0.9: TTFT_P90, 0.95: TTFT_P95, 0.99: TTFT_P99}
LONGEST_QUERY: Final = 4096


class QueriedMetric(NamedTuple):
    """A metric by name, and the aggregate over replicas."""

    name: str
    aggregate: str
    note: str = ""
    """How the measured value differs from the one asked for."""
    mapped: tuple[str, ...] = ()
    """The names in it that the scenario maps."""
    above: float | None = None
    """The value is 1 while the metric is above this number, else 0."""


def queried(query: str, mapping: Mapping[str, str], called: str | None = None) -> QueriedMetric:
    """The metric that a query asks for; an InputError says which queries can be read.

    `mapping` maps names in the query, or its own name `called`, to metrics.
    """
    if len(query) > LONGEST_QUERY:
        raise InputError("the query is too long", allowed=f"{LONGEST_QUERY} characters")
    text = _LEFT_OUT.sub(" ", query)
    explained = _explained(text, mapping, called)
    if explained is not None:
        return explained
    try:
        return _compared(text)
    except InputError as error:
        hint = "or write scaling.metrics: {NAME: METRIC} for a name in it"
        raise InputError(error.what, allowed=error.allowed, hint=hint) from None


def _explained(text: str, mapping: Mapping[str, str], called: str | None) -> QueriedMetric | None:
    """The metric that the scenario maps the whole query to, or a name in it."""
    words = _NAME.findall(text)
    found = [called] if called in mapping else list(dict.fromkeys(_plain(words, mapping)))
    if not found:
        return None
    ours = {mapping[name] for name in found if name is not None}
    if len(ours) > 1:
        what = f"scaling.metrics explains several names in the query: {', '.join(map(str, found))}"
        raise InputError(what, hint="explain one of them")
    (name,) = ours
    aggregates = [word for word in words if word in (SUM, MEAN, LARGEST)]
    aggregate = aggregates[0] if aggregates else metric(name).natural
    return QueriedMetric(name, aggregate, mapped=tuple(filter(None, found)))


def _plain(words: list[str], mapping: Mapping[str, str]) -> Iterator[str]:
    """The mapped names; a histogram may be meant by the name of one of its series."""
    for word in words:
        for name in (word, *(word.removesuffix(suffix) for suffix in SERIES)):
            if name in mapping:
                yield name
                break


def _compared(text: str) -> QueriedMetric:
    """The metric asked for, and the number that it is compared with."""
    found = _COMPARED.search(text)
    if found is None:
        return _understood(text)
    before = text[: found.start()]
    counts_parts = _counts_parts(before)
    if counts_parts and not any(name in GATEWAY_COUNTERS for name in _NAME.findall(before)):
        what = "the query compares each replica separately, which is not simulated"
        raise InputError(what, allowed="sum(...) > bool NUMBER")
    understood = _understood(before + text[found.end() :])
    if understood.name in DESIRED:
        what = f"{understood.name!r} is a number of replicas, and is not compared"
        raise InputError(what, allowed=f"max({DESIRED[0]})")
    return understood._replace(above=float(found[1]))


def _counts_parts(before: str) -> bool:
    """Whether the comparison is within a function and so per series; `max` makes no difference."""
    functions: list[str] = []
    for bracket in _BRACKET.finditer(before):
        if bracket[0] != ")":
            functions.append(bracket[1] or LARGEST)
        elif functions:
            functions.pop()
    return any(name != LARGEST for name in functions)


def _understood(text: str) -> QueriedMetric:
    share, times = _PERCENT.subn(" ", text)
    if times == 1:
        found = _understood(share)
        if found.name not in DESIRED and metric(found.name).quantity == KV_USED:
            return found._replace(name=KV_PERCENT)
    quantile = _QUANTILE.fullmatch(text)
    halves = text.split("/")
    if quantile:
        found = _of_histogram(_words(quantile[2]), "_bucket", "a quantile")
        percentile = PERCENTILES.get(float(quantile[1]))
        if percentile and metric(found.name).quantity == TTFT:
            return QueriedMetric(percentile, MEAN)
        return found
    if len(halves) == 2:
        above, below = (_words(half) for half in halves)
        if above[-1] == below[-1].removesuffix("_count") + "_sum":
            return _of_histogram(above, "_sum", "a mean over a window")
    if len(halves) > 1:
        raise InputError("the query does more than is simulated: '/'", allowed=ALLOWED)
    *functions, name = _words(text)
    return _queried(functions, name)


def _of_histogram(words: list[str], suffix: str, asked_for: str) -> QueriedMetric:
    *functions, name = words
    strange = [one for one in functions if one not in (SUM, *RATES)]
    if strange or not name.endswith(suffix):
        what = f"the query does more than is simulated: {(strange or [name])[0]!r}"
        raise InputError(what, allowed=ALLOWED)
    name = name.removesuffix(suffix)
    metric(name, "query")
    return QueriedMetric(
        name, MEAN, f"{asked_for} of {name} is read as the mean since the last look"
    )


def _words(text: str) -> list[str]:
    """The names in a query, which must be functions around one metric."""
    words: list[str] = []
    for name, _, other in _TOKEN.findall(text):
        if other:
            what = f"the query does more than is simulated: {other!r}"
            raise InputError(what, allowed=ALLOWED)
        if name:
            words.append(name)
    if not words:
        raise InputError("the query asks for nothing", allowed=ALLOWED)
    return words


def _queried(functions: list[str], name: str) -> QueriedMetric:
    aggregate = SUM
    rated = False
    for function in functions:
        if function in (SUM, MEAN, LARGEST):
            aggregate = function
        elif function in RATES:
            rated = True
        elif function not in SMOOTHED:
            what = f"the query does more than is simulated: {function!r}"
            raise InputError(what, allowed=ALLOWED)
    if rated:
        if name not in COUNTERS:
            what = f"{name!r} is not a counter of requests that is known here"
            raise InputError(what, allowed=", ".join(COUNTERS))
        return QueriedMetric("request_rate", SUM)
    if name not in DESIRED:
        metric(name, "query")
    return QueriedMetric(name, aggregate)
