"""Metrics that a running program publishes at /metrics, as lines of charts.

Gauges are drawn as they are, counters as rates, histograms as means and rates.
"""

import asyncio
import math
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import aiohttp

from windtunnel.core.clock import monotonic_s, unix_s

EVERY_S = 2.0
TIMEOUT_S = 5.0
MOST_BYTES = 16 << 20
MOST_CHARTS = 80
MOST_LINES = 3
"""Lines of a gauge with labels; of more, the extremes and the mean are drawn."""

Lines = dict[str, float]
"""The lines of a chart at one time; a single line has no name."""


class MetricsReading(NamedTuple):
    """All metrics at one time. Counters and histograms are summed over labels."""

    gauges: dict[str, dict[str, float]]
    """The value for each set of labels."""
    counters: dict[str, float]
    sums: dict[str, float]
    """Of histograms and summaries; `counts` has the same names."""
    counts: dict[str, float]


async def follow(url: str) -> AsyncIterator[dict[str, Any]]:
    """A reading every two seconds; an error is yielded if the program does not answer."""
    before: MetricsReading | None = None
    before_s = 0.0
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
    async with aiohttp.ClientSession(timeout=timeout, trust_env=False) as session:
        while True:
            try:
                reading = parse(await _read(session, f"{url.rstrip('/')}/metrics"))
            except (aiohttp.ClientError, TimeoutError, ValueError, UnicodeError) as error:
                why = str(error) or type(error).__name__
                yield {"time": unix_s(), "error": f"{url} does not answer: {why}"}
            else:
                now_s = monotonic_s()
                yield {
                    "time": unix_s(),
                    "charts": charts(reading, before, now_s - before_s),
                }
                before, before_s = reading, now_s
            await asyncio.sleep(EVERY_S)


async def _read(session: aiohttp.ClientSession, url: str) -> str:
    async with session.get(url, allow_redirects=False) as reply:
        if reply.status != 200:
            raise ValueError(f"status {reply.status}")
        body = await reply.content.read(MOST_BYTES)
        while not reply.content.at_eof() and len(body) < MOST_BYTES:
            body += await reply.content.read(MOST_BYTES - len(body))
        return body.decode()


def parse(text: str) -> MetricsReading:
    """Reads a page of metrics."""
    from prometheus_client.parser import text_string_to_metric_families

    found = MetricsReading({}, {}, {}, {})
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            name, value = sample.name, sample.value
            if not math.isfinite(value) or name.endswith("_created"):
                continue
            if family.type == "gauge":
                labels = ", ".join(sample.labels.values())
                found.gauges.setdefault(name, {})[labels] = value
            elif family.type == "counter":
                found.counters[name] = found.counters.get(name, 0.0) + value
            elif family.type in ("histogram", "summary"):
                for suffix, totals in (("_sum", found.sums), ("_count", found.counts)):
                    if name == family.name + suffix:
                        totals[family.name] = totals.get(family.name, 0.0) + value
    return found


def charts(now: MetricsReading, before: MetricsReading | None, passed_s: float) -> dict[str, Lines]:
    """The charts of a reading; rates and means are those since the reading before."""
    drawn = {name: _lines(values) for name, values in now.gauges.items()}
    if before is not None:
        for name, total in now.counters.items():
            if name in before.counters:
                rate = _increase(total, before.counters[name]) / max(passed_s, 1e-9)
                drawn[f"{name} per second"] = {"": rate}
        for name, count in now.counts.items():
            if name in before.counts and name in now.sums and name in before.sums:
                more = _increase(count, before.counts[name])
                drawn[f"{name} per second"] = {"": more / max(passed_s, 1e-9)}
                if more > 0.0:
                    drawn[f"{name} mean"] = {
                        "": _increase(now.sums[name], before.sums[name]) / more
                    }
    return dict(list(drawn.items())[:MOST_CHARTS])


def _lines(values: dict[str, float]) -> Lines:
    if len(values) == 1:
        return {"": next(iter(values.values()))}
    if len(values) <= MOST_LINES:
        return values
    every = values.values()
    return {"lowest": min(every), "mean": sum(every) / len(every), "highest": max(every)}


def _increase(now: float, before: float) -> float:
    """The increase of a counter. One that went down has begun anew, and grew by its value."""
    return now - before if now >= before else now
