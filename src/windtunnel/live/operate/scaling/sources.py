"""Reads metrics from pods, gateways and Prometheus, with limits on concurrency, time and size.

Missing data is reported as a message, never as a number. Redirects are not followed, and the token
for Prometheus is sent only to that server.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from windtunnel.core.addresses import address_fault
from windtunnel.core.errors import InputError
from windtunnel.live.wire.keys import read_token
from windtunnel.scaling.kubernetes.pages import (
    LARGEST_PAGE,
    PodReading,
    metric_names,
    page_samples,
    reading_of,
)
from windtunnel.scaling.kubernetes.plan import ScaledTarget, ScalingPlan
from windtunnel.scaling.kubernetes.prometheus import (
    LARGEST_ANSWER,
    Unavailable,
    number_of,
    pods_query,
    refusal,
    samples_by_pod,
    unread,
)
from windtunnel.scaling.kubernetes.snapshots import PodView, PoolObservation

if TYPE_CHECKING:
    import aiohttp

ASK_S: Final = 3.0
"""Time limit of one response, as in Kthena."""
PODS_AT_ONCE: Final = 64
"""For one policy."""
QUERIES_AT_ONCE: Final = 4
MOST_CONNECTIONS: Final = 512
ALL_S: Final = 10.0
"""Time limit for all pods of a policy: one that has not answered by then counts as missing."""
PARSED_AT_ONCE: Final = 256 << 10
"""In bytes; a larger response is parsed outside the event loop."""
MOST_PROBLEMS: Final = 5
PODS_PER_QUERY: Final = 500
SUBJECT: Final = "the token for Prometheus"


Parsed = TypeVar("Parsed")


class PrometheusServer(NamedTuple):
    """The operator's Prometheus server."""

    url: str
    token_file: Path | None = None

    def headers(self, url: str) -> dict[str, str]:
        """The request headers; the token is read each time, since it may be rotated."""
        if self.token_file is None or url.rstrip("/") != self.url.rstrip("/"):
            return {}
        try:
            return {"Authorization": f"Bearer {read_token(self.token_file, SUBJECT)}"}
        except InputError as error:
            raise Unavailable(error.what) from None


def prometheus_server(
    url: str, token_file: Path | None, *, autoscale: bool = True
) -> PrometheusServer | None:
    """The options of a command, checked."""
    if not url and token_file is None:
        return None
    if not autoscale:
        raise InputError("it has no effect without --autoscale", where="--prometheus")
    if not url:
        raise InputError("it has no effect without --prometheus", where="--prometheus-token-file")
    what = address_fault(url)
    if not what and set("?#") & set(url):
        what = "the address of Prometheus has no '?' and no '#'"
    if what:
        raise InputError(what, where="--prometheus", allowed="an address, as http://HOST:9090")
    if token_file is not None:
        read_token(token_file, SUBJECT)
    return PrometheusServer(url, token_file)


class Answers(NamedTuple):
    """The responses for one tick, and the problems with the others."""

    readings: dict[str, PodReading]
    external: dict[str, dict[str, float]]
    """By pool and metric, for pools with queries."""
    queued: int | None
    """None if the gateway does not report it."""
    problems: list[str]


class PodsQuery(NamedTuple):
    """One Prometheus query for some pods of a policy."""

    plan: ScalingPlan
    url: str
    pod_label: str
    namespace: str
    pods: Sequence[PodView]
    now_s: float


async def _parsed(answer: bytes, parse: Callable[[], Parsed]) -> Parsed:
    return parse() if len(answer) <= PARSED_AT_ONCE else await asyncio.to_thread(parse)


class MetricSources:
    """Reads metrics for all autoscalers of one operator."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        prometheus: PrometheusServer | None = None,
        ask_s: float = ASK_S,
        all_s: float = ALL_S,
    ) -> None:
        self._session: Final = session
        self._ask_s: Final = ask_s
        self._all_s: Final = all_s
        self._prometheus: Final = prometheus

    async def ask(
        self, plan: ScalingPlan, pools: Mapping[str, PoolObservation], now_s: float
    ) -> Answers:
        """Reads all metrics that a plan needs."""
        problems: list[str] = []
        asked = self._pods(plan, pools, now_s, problems)
        readings, external, queued = await asyncio.gather(
            asked, self._external(plan, now_s, problems), self._queued(plan, problems)
        )
        if len(problems) > MOST_PROBLEMS:
            more = f"and {len(problems) - MOST_PROBLEMS} more problems"
            problems = [*problems[:MOST_PROBLEMS], more]
        return Answers(readings, external, queued, problems)

    async def _pods(
        self,
        plan: ScalingPlan,
        pools: Mapping[str, PoolObservation],
        now_s: float,
        problems: list[str],
    ) -> dict[str, PodReading]:
        if not plan.asks_pods:
            return {}
        asked = [
            (target, [pod for pod in pools[target.pool].pods
                      if pod.ready and not pod.terminating and not pod.ended])
            for target in plan.targets
        ]  # fmt: skip
        count = sum(len(pods) for _, pods in asked)
        found: dict[str, PodReading] = {}
        silent: list[str] = []
        source, server = plan.prometheus, self._prometheus
        if source is None:
            most = PODS_AT_ONCE
            asks = (
                self._from_pod(target, pod, found, problems)
                for target, pods in asked
                for pod in pods
            )
        elif server is None:
            problems.append("the operator has no Prometheus: start it with --prometheus URL")
            return {}
        else:
            most = QUERIES_AT_ONCE
            asks = (
                self._from_prometheus(
                    PodsQuery(
                        plan,
                        server.url,
                        source.pod_label,
                        target.named.namespace,
                        pods[start : start + PODS_PER_QUERY],
                        now_s,
                    ),
                    found,
                    silent,
                    problems,
                )
                for target, pods in asked
                for start in range(0, len(pods), PODS_PER_QUERY)
            )

        async def ask_some() -> None:
            for ask in asks:
                await ask

        try:
            async with asyncio.timeout(self._all_s):
                await asyncio.gather(*(ask_some() for _ in range(min(most, count))))
        except TimeoutError:
            what = f"{len(found)} of {count} pods have answered in {self._all_s:g} s"
            problems.insert(0, what)
        if silent:
            problems.append(f"Prometheus has {unread(silent)} of the last {plan.oldest_s:g} s")
        return found

    async def _from_pod(
        self,
        target: ScaledTarget,
        pod: PodView,
        found: dict[str, PodReading],
        problems: list[str],
    ) -> None:
        if not pod.address:
            problems.append(f"{pod.name} has no address")
            return
        host = f"[{pod.address}]" if ":" in pod.address else pod.address
        try:
            status, page = await self._fetch(f"http://{host}:{target.port}{target.path}")
        except Unavailable as error:
            problems.append(f"{pod.name} {error}")
            return
        if status != 200:
            problems.append(f"{pod.name} answers {status}")
            return
        reading = await _parsed(page, lambda: reading_of(page_samples(page)))
        if not reading.says_load:
            problems.append(f"{pod.name} does not report its load")
        found[pod.uid] = reading

    async def _from_prometheus(
        self,
        asked: PodsQuery,
        found: dict[str, PodReading],
        silent: list[str],
        problems: list[str],
    ) -> None:
        oldest_s, label = asked.plan.oldest_s, asked.pod_label
        names = [pod.name for pod in asked.pods]
        query = pods_query(metric_names(), asked.namespace, names, oldest_s, pod_label=label)
        try:
            answer = await self.query(asked.url, query, asked.now_s)
            samples = await _parsed(
                answer, partial(samples_by_pod, answer, asked.now_s, oldest_s, pod_label=label)
            )
        except Unavailable as error:
            problems.append(str(error))
            return
        for pod in asked.pods:
            if pod.name in samples:
                found[pod.uid] = reading_of(samples[pod.name])
            else:
                silent.append(pod.name)

    async def _external(
        self, plan: ScalingPlan, now_s: float, problems: list[str]
    ) -> dict[str, dict[str, float]]:
        found: dict[str, dict[str, float]] = {one.pool: {} for one in plan.queries}

        async def ask(pool: str, metric: str, url: str, query: str) -> None:
            try:
                found[pool][metric] = number_of(await self.query(url, query, now_s))
            except Unavailable as error:
                problems.append(f"{metric}: {error}")

        await asyncio.gather(*(ask(*one) for one in plan.queries))
        return found

    async def _queued(self, plan: ScalingPlan, problems: list[str]) -> int | None:
        if plan.queue is None:
            return 0
        try:
            status, page = await self._fetch(plan.queue.url)
        except Unavailable as error:
            problems.append(f"the gateway {error}")
            return None
        if status != 200:
            problems.append(f"the gateway answers {status}")
            return None
        values = [
            one.value
            for one in page_samples(page, plan.queue.metric)
            if one.labels.get("model", plan.model) == plan.model
        ]
        if not values:
            problems.append(f"the gateway does not report {plan.queue.metric}")
            return None
        return int(sum(values))

    async def query(self, url: str, query: str, now_s: float) -> bytes:
        """The response of a Prometheus server; raises `Unavailable` if there is none."""
        form = {"query": query, "time": f"{now_s:.3f}", "timeout": f"{self._ask_s:g}s"}
        headers = {} if self._prometheus is None else self._prometheus.headers(url)
        try:
            status, body = await self._fetch(
                f"{url.rstrip('/')}/api/v1/query", LARGEST_ANSWER, form=form, headers=headers
            )
        except Unavailable as error:
            raise Unavailable(f"Prometheus {error}") from None
        if status != 200:
            raise refusal(status, body)
        return body

    async def _fetch(
        self,
        url: str,
        largest: int = LARGEST_PAGE,
        *,
        form: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, bytes]:
        import aiohttp

        method = "GET" if form is None else "POST"
        try:
            async with (
                asyncio.timeout(self._ask_s),
                self._session.request(
                    method, url, data=form, headers=headers, allow_redirects=False
                ) as answer,
            ):
                parts: list[bytes] = []
                size = 0
                async for part in answer.content.iter_any():
                    parts.append(part)
                    size += len(part)
                    if size > largest:
                        answer.close()
                        raise Unavailable(f"sends more than {largest >> 20} MiB")
                return answer.status, b"".join(parts)
        except TimeoutError:
            raise Unavailable(f"does not answer within {self._ask_s:g} s") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or type(error).__name__
            raise Unavailable(f"does not answer: {why}") from None


@asynccontextmanager
async def open_sources(
    prometheus: PrometheusServer | None, ask_s: float = ASK_S, all_s: float = ALL_S
) -> AsyncIterator[MetricSources]:
    """Metric sources with their own connections, closed at the end."""
    import aiohttp

    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=MOST_CONNECTIONS, keepalive_timeout=60.0),
        cookie_jar=aiohttp.DummyCookieJar(),
        trust_env=False,
        headers={"User-Agent": "windtunnel-operator", "Accept-Encoding": "identity"},
        auto_decompress=False,
    ) as session:
        yield MetricSources(session, prometheus, ask_s, all_s)
