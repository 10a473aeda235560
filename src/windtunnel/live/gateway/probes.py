"""Probes of servers for health, models and load; the probes of one kind never overlap."""

import asyncio
import logging
import re
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from windtunnel.live.gateway.facts import ModelCard
from windtunnel.scaling.kubernetes.pages import KV_USED, RUNNING, WAITING

if TYPE_CHECKING:
    import aiohttp

    from windtunnel.live.gateway.data_path.proxy import Proxy
    from windtunnel.live.gateway.settings import HealthSettings, ScrapeSettings
    from windtunnel.live.wire.connections import ServerAddress

_log = logging.getLogger("windtunnel.gateway")

MOST_PAGE_BYTES: Final = 16 << 20
MOST_MODELS: Final = 4096
MODELS_EVERY: Final = 15
"""Health checks between two reads of a server's models."""

CACHE_INFO: Final = re.compile(
    rb"^(?:vllm|sglang):cache_config_info\{([^}\n]{0,4000})\}", re.MULTILINE
)
CACHE_SIZES: Final = (
    ("trtllm_kv_cache_tokens_per_block", "trtllm_kv_cache_max_blocks"),
    (
        'nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="tokens_per"',
        'nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="max"',
    ),
)
"""Metrics for the tokens per KV block and the number of blocks, on servers that have them."""
LORA_INFO: Final = re.compile(
    rb'^vllm:lora_requests_info\{[^}\n]{0,4000}?running_lora_adapters="([^"\n]*)"[^}\n]*\} (\S+)',
    re.MULTILINE,
)
SLEEPING: Final = re.compile(
    rb'^vllm:engine_sleep_state\{[^}\n]*sleep_state="(?!awake)[^"\n]*"[^}\n]*\} 1(?:\.0)?\s*$',
    re.MULTILINE,
)


class ServerLoad(NamedTuple):
    """The load in a metrics page; None for figures that are missing."""

    waiting: int | None
    running: int | None
    kv_used: float | None
    cache_tokens: int | None
    adapters: tuple[str, ...]
    asleep: bool


def _values(page: bytes, names: tuple[str, ...]) -> list[float]:
    """The values of the first of these metrics that the page has, one per engine."""
    for name in names:
        metric, _, label = name.partition("{")
        if metric.encode() not in page:
            continue
        labels = rb"(?:\{[^}\n]*\})?"
        if label:
            labels = rb"\{(?:[^}\n]*,)?" + re.escape(label.encode()) + rb"[^}\n]*\}"
        start = re.escape(metric.encode())
        found = re.findall(rb"^" + start + labels + rb"\s+(\S+)", page, re.MULTILINE)
        values = []
        for text in found[:1024]:
            try:
                values.append(float(text))
            except ValueError:
                continue
        values = [value for value in values if 0.0 <= value < 1e12]
        if values:
            return values
    return []


def read_load(page: bytes) -> ServerLoad:
    """The load in a page of Prometheus metrics, summed over the engines of a server."""
    waiting, running = _values(page, WAITING), _values(page, RUNNING)
    used = _values(page, KV_USED)
    adapters: list[str] = []
    latest = -1.0
    for names, stamp in LORA_INFO.findall(page):
        try:
            when = float(stamp)
        except ValueError:
            continue
        if when >= latest:
            latest = when
            adapters = [name for name in names.decode("utf-8", "replace").split(",") if name]
    return ServerLoad(
        int(sum(waiting)) if waiting else None,
        int(sum(running)) if running else None,
        min(1.0, sum(used) / len(used)) if used else None,
        _cache_tokens(page),
        tuple(adapters[:MOST_MODELS]),
        SLEEPING.search(page) is not None,
    )


def _cache_tokens(page: bytes) -> int | None:
    total = 0
    for labels in CACHE_INFO.findall(page):
        values = dict(re.findall(rb'(\w+)="(\d{1,12})"', labels))
        size = values.get(b"block_size") or values.get(b"page_size")
        blocks = values.get(b"num_gpu_blocks") or values.get(b"num_pages")
        if size and blocks:
            total += int(size) * int(blocks)
    for sizes, most in CACHE_SIZES:
        if not total:
            total = int(sum(_values(page, (most,))) * max(_values(page, (sizes,)), default=0.0))
    return total or None


def read_models(body: bytes) -> list[ModelCard]:
    """The models in a response to /v1/models; empty if it is invalid."""
    try:
        data = msgspec.json.decode(body)
        cards = data["data"]
        return [
            ModelCard(str(card["id"]), str(card.get("parent") or ""))
            for card in cards[:MOST_MODELS]
        ]
    except (msgspec.DecodeError, UnicodeDecodeError, LookupError, TypeError, AttributeError):
        return []


class ServerProbe:
    """Probes one server: one task for its health, another for its load."""

    def __init__(
        self,
        proxy: "Proxy",
        number: int,
        address: "ServerAddress",
        session: "aiohttp.ClientSession",
        health: "HealthSettings",
        scrape: "ScrapeSettings",
    ) -> None:
        self.said = ""  # the last failure
        self._proxy: Final = proxy
        self._number: Final = number
        self._address: Final = address
        self._session: Final = session
        self._health: Final = health
        self._scrape: Final = scrape
        self._asleep = False
        self._models: tuple[ModelCard, ...] = ()
        self._cache_tokens = 0

    async def watch_health(self) -> None:
        """Checks health until cancelled."""
        failures, checks, logged = 0, 0, ""
        while True:
            what = await self._check(models=checks % MODELS_EVERY == 0)
            core, now_s = self._proxy.core, self._proxy.now_s()
            healthy = core.servers[self._number].availability.healthy
            if what:
                failures += 1
                self.said = what
                checks = 0
                if healthy and (failures >= self._health.failures or self._asleep):
                    healthy, logged = False, what
                    why = what if self._asleep else f"{failures} failed health checks, {what}"
                    _log.warning("%s is unhealthy: %s", self._address.url, why)
                    core.unhealthy(self._number, what, now_s)
                if not healthy and what != logged:
                    logged = what
                    _log.warning("%s is not ready: %s", self._address.url, what)
            else:
                failures, self.said, logged = 0, "", ""
                checks += 1
                if not healthy:
                    _log.info("%s is ready", self._address.url)
                if not healthy or core.servers[self._number].models != self._models:
                    core.healthy(self._number, self._models, now_s)
            self._proxy.pump()
            await asyncio.sleep(self._health.interval_s)

    async def watch_load(self) -> None:
        """Scrapes the load until cancelled; a slow scrape is followed by the usual pause."""
        seen_s = self._proxy.now_s()
        while True:
            try:
                status, page = await self._get(self._scrape.path, self._scrape.timeout_s)
            except (OSError, TimeoutError, ValueError):
                status, page = 0, b""
            now_s = self._proxy.now_s()
            if status == 200 and self._observe(read_load(page)):
                seen_s = now_s
            elif now_s - seen_s >= self._scrape.stale_s:
                self._proxy.core.unobserved(self._number, now_s)
                self._proxy.pump()
            await asyncio.sleep(self._scrape.interval_s)

    def _observe(self, load: ServerLoad) -> bool:
        """Applies a scrape; returns whether the page had any load figures."""
        core, now_s, number = self._proxy.core, self._proxy.now_s(), self._number
        self._asleep = load.asleep
        if load.asleep and core.servers[number].availability.healthy:
            core.unhealthy(number, "asleep", now_s)
        if load.cache_tokens is not None and load.cache_tokens != self._cache_tokens:
            self._cache_tokens = load.cache_tokens
            core.cache_size(number, load.cache_tokens, now_s)
        says = not (load.waiting is None and load.running is None and load.kv_used is None)
        if says:
            seen = (load.waiting or 0, load.running or 0, load.kv_used or 0.0)
            core.observe(number, seen, load.adapters, now_s)
        self._proxy.pump()
        return says

    async def _check(self, *, models: bool) -> str:
        """What is wrong with the server; empty if nothing."""
        timeout_s = self._health.timeout_s
        if self._asleep:
            return "asleep"
        try:
            status, _ = await self._get(self._health.path, timeout_s)
            if status != 200:
                return f"{self._health.path} answers {status}"
            if models or not self._models:
                status, body = await self._get("/v1/models", timeout_s)
                found = read_models(body) if status == 200 else []
                if not found:
                    return f"/v1/models answers {status} and lists no model"
                self._models = tuple(found)
        except TimeoutError:
            return "no answer in time"
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or type(error).__name__
            return f"no answer: {why}"
        return ""

    async def _get(self, path: str, timeout_s: float) -> tuple[int, bytes]:
        headers = {}
        if self._address.auth:
            name, _, value = self._address.auth.decode().strip().partition(": ")
            headers[name] = value
        async with (
            asyncio.timeout(timeout_s),
            self._session.get(
                self._address.url + path,
                headers=headers,
                allow_redirects=False,
                ssl=self._address.tls if self._address.tls is not None else True,
            ) as answer,
        ):
            body = await answer.content.read(MOST_PAGE_BYTES)
            while len(body) < MOST_PAGE_BYTES:
                more = await answer.content.read(MOST_PAGE_BYTES - len(body))
                if not more:
                    break
                body += more
            return answer.status, body
