"""Metrics that a running program publishes at /metrics: gauges as they are, counters as rates."""

import asyncio
import math
from collections.abc import AsyncIterator
from typing import Any

import aiohttp

from windtunnel.core.clock import monotonic_s, unix_s

EVERY_S = 2.0
TIMEOUT_S = 5.0
MOST_BYTES = 16 << 20
MOST_SERIES = 80


async def follow(url: str) -> AsyncIterator[dict[str, Any]]:
    """A reading every two seconds; an error is yielded if the program does not answer."""
    before: dict[str, float] = {}
    before_s = 0.0
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
    async with aiohttp.ClientSession(timeout=timeout, trust_env=False) as session:
        while True:
            try:
                kinds, values = parse(await _read(session, f"{url.rstrip('/')}/metrics"))
            except (aiohttp.ClientError, TimeoutError, ValueError, UnicodeError) as error:
                yield {"time": unix_s(), "error": f"{url} does not answer: {_sentence(error)}"}
            else:
                now_s = monotonic_s()
                yield {
                    "time": unix_s(),
                    "series": rated(kinds, values, before, now_s - before_s),
                }
                before, before_s = values, now_s
            await asyncio.sleep(EVERY_S)


def _sentence(error: Exception) -> str:
    return str(error) or type(error).__name__


async def _read(session: aiohttp.ClientSession, url: str) -> str:
    async with session.get(url, allow_redirects=False) as reply:
        if reply.status != 200:
            raise ValueError(f"status {reply.status}")
        body = await reply.content.read(MOST_BYTES)
        while not reply.content.at_eof() and len(body) < MOST_BYTES:
            body += await reply.content.read(MOST_BYTES - len(body))
        return body.decode()


def parse(text: str) -> tuple[dict[str, str], dict[str, float]]:
    """The kind and value of each series, summed over labels; for histograms, count and sum."""
    from prometheus_client.parser import text_string_to_metric_families

    kinds: dict[str, str] = {}
    values: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            kind = family.type
            if kind in ("histogram", "summary"):
                if not sample.name.endswith(("_count", "_sum")):
                    continue
                kind = "counter"
            if sample.name.endswith("_created") or not math.isfinite(sample.value):
                continue
            if kind in ("counter", "gauge"):
                kinds[sample.name] = kind
                values[sample.name] = values.get(sample.name, 0.0) + sample.value
    return kinds, values


def rated(
    kinds: dict[str, str], values: dict[str, float], before: dict[str, float], passed_s: float
) -> dict[str, float]:
    """The series to draw: gauges, and counters per second if there was an earlier reading."""
    shown: dict[str, float] = {}
    for name, value in values.items():
        if len(shown) == MOST_SERIES:
            break
        if kinds[name] == "gauge":
            shown[name] = value
        elif name in before:
            # A counter that went down has begun anew, and its value is the increase.
            increase = value - before[name] if value >= before[name] else value
            shown[f"{name} per second"] = increase / max(passed_s, 1e-9)
    return shown
