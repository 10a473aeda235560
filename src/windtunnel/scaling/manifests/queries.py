"""Reads the one metric that a Prometheus query of an autoscaler asks for.

Not a query language: a metric that is known here, or the rate of a counter of requests, summed,
averaged or the largest over the replicas of the target. Label matchers choose the target's own
replicas in a cluster, and a window only smooths, so that both are passed over.
"""

import re
from typing import Final, NamedTuple

from windtunnel.core.errors import InputError
from windtunnel.scaling.metrics import metric

SUM: Final = "sum"
MEAN: Final = "avg"
LARGEST: Final = "max"
COUNTERS: Final = (
    "vllm:request_success_total",
    "vllm_request_success_total",
    "http_requests_total",
    "kthena_router_requests_total",
)
RATES: Final = ("rate", "irate")
SMOOTHED: Final = ("avg_over_time", "max_over_time", "min_over_time", "last_over_time")
ALLOWED: Final = (
    "sum(...), avg(...) or max(...) of a metric that is known, "
    "such as sum(vllm:num_requests_waiting), or sum(rate(COUNTER[1m]))"
)

_LEFT_OUT = re.compile(r"\{[^{}]*\}|\[[^\[\]]*\]|\b(?:by|without|on)\s*\([^()]*\)")
_TOKEN = re.compile(r"\s*(?:([A-Za-z_:][A-Za-z0-9_:]*)|([()])|(\S))")
LONGEST_QUERY: Final = 4096


class Asked(NamedTuple):
    """A metric by its name, and how the values of replicas become one."""

    name: str
    aggregate: str


def asked(query: str, only: str = "") -> Asked:
    """What a query asks for, or `only` an aggregate of it; an InputError says what can be read."""
    if len(query) > LONGEST_QUERY:
        raise InputError("the query is too long", allowed=f"{LONGEST_QUERY} characters")
    text = _LEFT_OUT.sub(" ", query)
    words: list[str] = []
    for name, _, other in _TOKEN.findall(text):
        if other:
            what = f"the query does more than is simulated: {other!r}"
            raise InputError(what, allowed=ALLOWED)
        if name:
            words.append(name)
    if not words:
        raise InputError("the query asks for nothing", allowed=ALLOWED)
    *functions, name = words
    found = _asked(functions, name)
    if only and found.aggregate != only:
        what = f"KEDA takes the answer for a total, and this is {found.aggregate}"
        raise InputError(what, allowed=f"{only}(...)")
    return found


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
    metric(name, "query")
    return Asked(name, aggregate)
