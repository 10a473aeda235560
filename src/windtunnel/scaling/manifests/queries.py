"""Reads the one metric that a Prometheus query of an autoscaler asks for.

Not a query language: a metric that is known here, or the rate of a counter of requests, summed,
averaged or the largest over the replicas of the target. Label matchers choose the target's own
replicas in a cluster, and a window only smooths, so that both are passed over; so is
`or vector(0)`, since a metric that is simulated always has a value. `> bool 0`, or another number,
compares the one number of the query, or one that has no parts: what a gateway counts. `* 100` makes
a share of the KV cache a percentage.

Of a histogram the mean is known, and of times to the first token some percentiles: another
quantile, or its sum over its count, is read as the mean. Any query can be read where the scenario
says which metric a name in it is.
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
"""What the workload variant autoscaler publishes for an HPA, or for KEDA; and once did."""
GATEWAY_COUNTERS: Final = (
    "vllm:num_incoming_requests_total",
    "vllm_num_incoming_requests_total",
    "kthena_router_requests_total",
    "dynamo_frontend_requests_total",
)
"""Of requests that arrive, as one number: not of every replica."""
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


class Asked(NamedTuple):
    """A metric by its name, and how the values of replicas become one."""

    name: str
    aggregate: str
    note: str = ""
    """What is measured otherwise than it is asked for."""
    mapped: tuple[str, ...] = ()
    """The names in it that the scenario explains."""
    above: float | None = None
    """It asks for 1 while the metric is above this, and for 0 while it is not."""


def asked(query: str, mapping: Mapping[str, str], called: str | None = None) -> Asked:
    """What a query asks for; an InputError says what can be read.

    `mapping` explains names in the query, or the name that it is called by.
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


def _explained(text: str, mapping: Mapping[str, str], called: str | None) -> Asked | None:
    """What the scenario says of the query as a whole, or of a name in it."""
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
    return Asked(name, aggregate, mapped=tuple(filter(None, found)))


def _plain(words: list[str], mapping: Mapping[str, str]) -> Iterator[str]:
    """The names that are explained; a histogram may be meant by the name of one of its series."""
    for word in words:
        for name in (word, *(word.removesuffix(suffix) for suffix in SERIES)):
            if name in mapping:
                yield name
                break


def _compared(text: str) -> Asked:
    """What is asked for, and what it is compared with."""
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
    """Whether what is compared is a part of what a function is given; the largest is no other."""
    functions: list[str] = []
    for bracket in _BRACKET.finditer(before):
        if bracket[0] != ")":
            functions.append(bracket[1] or LARGEST)
        elif functions:
            functions.pop()
    return any(name != LARGEST for name in functions)


def _understood(text: str) -> Asked:
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
            return Asked(percentile, MEAN)
        return found
    if len(halves) == 2:
        above, below = (_words(half) for half in halves)
        if above[-1] == below[-1].removesuffix("_count") + "_sum":
            return _of_histogram(above, "_sum", "a mean over a window")
    if len(halves) > 1:
        raise InputError("the query does more than is simulated: '/'", allowed=ALLOWED)
    *functions, name = _words(text)
    return _asked(functions, name)


def _of_histogram(words: list[str], suffix: str, asked_for: str) -> Asked:
    *functions, name = words
    strange = [one for one in functions if one not in (SUM, *RATES)]
    if strange or not name.endswith(suffix):
        what = f"the query does more than is simulated: {(strange or [name])[0]!r}"
        raise InputError(what, allowed=ALLOWED)
    name = name.removesuffix(suffix)
    metric(name, "query")
    return Asked(name, MEAN, f"{asked_for} of {name} is read as the mean since the last look")


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


def _asked(functions: list[str], name: str) -> Asked:
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
        return Asked("request_rate", SUM)
    if name not in DESIRED:
        metric(name, "query")
    return Asked(name, aggregate)
