"""Starts a gateway, reloads its configuration, and stops it without losing requests."""

import asyncio
import contextlib
import logging
import os
import signal
import ssl
from collections.abc import Callable, Mapping
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast
from urllib.parse import urlsplit

from windtunnel.core.clock import unix_s
from windtunnel.core.errors import InputError, OutputError
from windtunnel.core.random import fresh_seed
from windtunnel.core.system.extras import need
from windtunnel.core.system.files import read_bounded
from windtunnel.core.telemetry import Record
from windtunnel.live.admin import admin_app, json_page, serve_admin
from windtunnel.live.event_log import EventLogFile
from windtunnel.live.gateway.access_log import AccessLog
from windtunnel.live.gateway.data_path.client_side import ClientConnection
from windtunnel.live.gateway.data_path.prompts import PromptReader
from windtunnel.live.gateway.data_path.proxy import SWEEP_S, KeyHolder, Proxy
from windtunnel.live.gateway.decisions import GatewayCore
from windtunnel.live.gateway.discovery import Discovery
from windtunnel.live.gateway.kv.blocks import CacheChange, MergedRanks, ServerBlocks
from windtunnel.live.gateway.kv.events import KvEventReader
from windtunnel.live.gateway.kv.tokens import ModelTokenizer
from windtunnel.live.gateway.metrics import gateway_families
from windtunnel.live.gateway.probes import ServerProbe
from windtunnel.live.gateway.request_trace import RequestTrace
from windtunnel.live.gateway.settings import (
    Configuration,
    HostPort,
    LiveSettings,
    ServerEntry,
    server_base,
    split_address,
)
from windtunnel.live.metrics import registry_of
from windtunnel.live.rotation import LogLimits
from windtunnel.live.serving import listen, url_of
from windtunnel.live.system import connections_allowed, run_until_stopped, settle_memory
from windtunnel.live.wire.connections import ServerAddress, ServerPool
from windtunnel.live.wire.keys import Keys, read_keys

if TYPE_CHECKING:
    from windtunnel.live.gateway.picker.service import PickerService

gateway_log: Final = logging.getLogger("windtunnel.gateway")
LARGEST_PEM: Final = 4 << 20


class WatchedServer(NamedTuple):
    """A server in the list, or one that has left it; it has no tasks once it is gone."""

    number: int
    entry: ServerEntry
    probe: ServerProbe
    tasks: list[asyncio.Task[None]]


class GatewayProgram:
    """A running gateway."""

    def __init__(
        self,
        configuration: Configuration,
        environment: Mapping[str, str],
        reload: Callable[[], Configuration],
    ) -> None:
        settings, written, folder, objectives, _ = configuration
        self.settings = settings
        self._started: Final = configuration
        self._environment: Final = environment
        self._reload: Final = reload
        live = settings.live
        self._discovery: Final = Discovery(
            live, environment, configuration.fault_of, self._found_servers
        )
        seed = fresh_seed()
        self._log_file: EventLogFile | None = None
        record: Record | None = None
        if live.log is not None:
            head: dict[str, Any] = {"settings": written, "seed": seed, "folder": str(folder)}
            head["started"] = unix_s()
            if objectives:
                head["objectives"] = objectives
            self._log_file = EventLogFile(
                Path(live.log), head, limits=LogLimits(live.log_rotate_bytes, live.log_keep)
            )
            record = self._log_file.record
        core = GatewayCore(settings.policies(folder, seed, objectives), record)
        secret = os.urandom(32)
        prompts = PromptReader(secret)
        self.proxy: Final = Proxy(core, live, prompts)
        self._secret: Final = secret
        self._watched: Final[dict[str, WatchedServer]] = {}
        self._server_keys: Final[dict[str, str]] = {}
        self._prompts: Final = prompts
        self.picker: PickerService | None = None
        self.proxy.tokenizers = _tokenizers(live)
        self._use_keys(live)

    async def run(self, bound: Any, ready: Callable[[str], None], stop: asyncio.Event) -> None:
        """Serves until `stop` is set, then drains."""
        import aiohttp

        loop = asyncio.get_running_loop()
        live = self.settings.live
        tls = _server_tls(live)
        tasks: list[asyncio.Task[None]] = []
        server: asyncio.Server | None = None
        timeout = aiohttp.ClientTimeout(total=None)
        connector = aiohttp.TCPConnector(limit=0, ttl_dns_cache=10)
        async with aiohttp.ClientSession(
            timeout=timeout, connector=connector, trust_env=False
        ) as session:
            self._session = session
            try:
                async with self._admin(), self._picker():
                    self._take_servers(live)
                    self._open_files()  # last, as a start that fails must leave files as they are
                    server = await loop.create_server(
                        lambda: cast("asyncio.Protocol", ClientConnection(self.proxy)),
                        sock=bound,
                        ssl=tls,
                        backlog=4096,
                    )
                    for watch in (self._sweep(), *self._discovery.watches()):
                        tasks.append(loop.create_task(watch))
                        tasks[-1].add_done_callback(self._watch_ended)
                    loop.add_signal_handler(signal.SIGHUP, self._on_hangup)
                    scheme = "https" if tls is not None else "http"
                    ready(url_of(bound).replace("http://", f"{scheme}://"))
                    await stop.wait()
                    await self._drain(server)
            finally:
                loop.remove_signal_handler(signal.SIGHUP)
                for watched in self._watched.values():
                    tasks += watched.tasks
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                (bound if server is None else server).close()
                self._close_files()

    def _open_files(self) -> None:
        live = self.settings.live
        if live.access_log is not None:
            self.proxy.access_log = AccessLog(Path(live.access_log))
        if live.trace is not None:
            size, keep = int(live.trace.rotate_bytes), live.trace.keep
            self.proxy.trace = RequestTrace(Path(live.trace.folder), size, keep, self._secret)
        if self._log_file is not None:
            self._log_file.open()

    def _close_files(self) -> None:
        for file in (self.proxy.trace, self.proxy.access_log, self._log_file):
            if file is not None:
                file.close()

    # Servers.

    def _found_servers(self) -> None:
        self._take_servers(self.settings.live)

    def _take_servers(self, live: LiveSettings) -> None:
        """Adds new servers, drains those no longer listed, and restores those that returned."""
        wanted = {server_base(entry.url): entry for entry in live.servers}
        for url, found in self._discovery.servers().items():
            wanted.setdefault(server_base(url), found)
        core, now_s = self.proxy.core, self.proxy.now_s()
        for url, entry in wanted.items():
            known = self._watched.get(url)
            if known is None or (known.entry != entry and not known.tasks):
                self._add(url, entry)
            elif core.servers[known.number].availability.draining:
                core.undrain(known.number, now_s)
                if not known.tasks:
                    self._watch(url, entry, known.number)
        for url, one in self._watched.items():
            if url not in wanted and not core.servers[one.number].availability.draining:
                core.drain(one.number, now_s)
        self.proxy.pump()

    def _add(self, url: str, entry: ServerEntry) -> None:
        proxy = self.proxy
        address = _address(entry, self._environment)
        if entry.key_env is not None:
            self._server_keys[entry.key_env] = address.key
            proxy.redact = Keys(self._server_keys).redact_text
        number = proxy.core.join(url, entry.slots, proxy.now_s(), entry.role)
        unrequested = partial(proxy.metrics.sent_unrequested, number)
        proxy.pools.append(ServerPool(address, proxy.limits.connect_s, unrequested))
        self._watch(url, entry, number)

    def _watch(self, url: str, entry: ServerEntry, number: int) -> None:
        proxy, live = self.proxy, self.settings.live
        address = proxy.pools[number].address
        probe = ServerProbe(proxy, number, address, self._session, live.health, live.scrape)
        loop = asyncio.get_running_loop()
        tasks = [loop.create_task(probe.watch_health()), loop.create_task(probe.watch_load())]
        if live.kv_events is not None:
            tasks.append(loop.create_task(self._follow_cache(number, address.host, entry)))
        for task in tasks:
            task.add_done_callback(self._watch_ended)
        self._watched[url] = WatchedServer(number, entry, probe, tasks)

    def _leave_gone(self) -> None:
        """Forgets servers that have left the list and have no more requests."""
        core = self.proxy.core
        for one in self._watched.values():
            server = core.servers[one.number]
            state = server.availability
            if one.tasks and state.draining and not server.in_flight:
                if state.healthy:  # should it come back, it is checked first
                    core.unhealthy(one.number, "it left the list", self.proxy.now_s())
                for task in one.tasks:
                    task.cancel()
                one.tasks.clear()
                self.proxy.pools[one.number].close()

    def _watch_ended(self, task: asyncio.Task[None]) -> None:
        """Counts a watch that ended with an error as a bug; otherwise watches end by
        cancellation."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self.proxy.bug(error)

    async def _follow_cache(self, number: int, host: str, entry: ServerEntry) -> None:
        """Follows a server's KV-cache events, once its model is known."""
        settings, core = self.settings.live.kv_events, self.proxy.core
        assert settings is not None
        if entry.kv_events_port is not None:
            settings = settings.model_copy(update={"port": entry.kv_events_port})
        while not core.servers[number].models:
            await asyncio.sleep(self.settings.live.health.interval_s)
        card = core.servers[number].models[0]

        merged = MergedRanks(settings.ranks)

        def changed(rank: int, change: CacheChange) -> None:
            cleared, stored, removed = merged.merge(rank, change)
            core.cache_told(number, stored, removed, self.proxy.now_s(), cleared=cleared)

        async with asyncio.TaskGroup() as readers:
            for rank in range(settings.ranks):
                blocks = ServerBlocks(card.parent or card.name, self._prompts.key)
                reader = KvEventReader(host, settings, rank, blocks, partial(changed, rank))
                readers.create_task(reader.watch())

    def _on_hangup(self) -> None:
        """On SIGHUP: reloads servers and keys; requests in flight continue."""
        try:
            reloaded = self._reload()
            settings = reloaded.settings
            self._use_keys(settings.live)
            self._take_servers(settings.live)
            if self.proxy.access_log is not None:
                self.proxy.access_log.reopen()
        except (InputError, OutputError) as error:
            gateway_log.error("the configuration was not reloaded: %s", error)
            return
        waiting = _not_reloaded(self._started, reloaded) + self._changed_servers(settings.live)
        self.settings = settings
        if waiting:
            gateway_log.warning(
                "servers and keys were reloaded; a restart is needed for %s", ", ".join(waiting)
            )
        else:
            gateway_log.info("the configuration was reloaded")

    def _changed_servers(self, live: LiveSettings) -> list[str]:
        """Servers that remain listed, but with settings other than those they joined with."""
        known = {url: one.entry for url, one in self._watched.items() if one.tasks}
        return [
            f"live.servers[{number}]"
            for number, entry in enumerate(live.servers)
            if known.get(server_base(entry.url), entry) != entry
        ]

    def _use_keys(self, live: LiveSettings) -> None:
        _check_keys(live, self._environment)
        core = self.proxy.core
        tenants = core.policies.tenants
        classes = [one.name for one in core.policies.classes]
        keys = {}
        for entry in live.clients:
            if entry.tenant not in tenants:
                core.add_tenant(entry.tenant, self.proxy.now_s())
            holder = KeyHolder(
                tenants.index(entry.tenant), tuple(classes.index(name) for name in entry.classes)
            )
            key = self._environment[entry.key_env].strip()
            keys[sha256(key.encode()).digest()] = holder
        self.proxy.use_keys(keys)

    # Time.

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            try:
                self.proxy.sweep()
                self._leave_gone()
                if self.picker is not None:
                    self.picker.sweep()
                if self._log_file is not None:
                    self._log_file.flush()
                    self.proxy.metrics.lost["log"] = self._log_file.lost
            except Exception as error:  # noqa: BLE001 - deadlines must be enforced in any case
                self.proxy.bug(error)

    async def _drain(self, server: asyncio.Server) -> None:
        """Drains: accepts no connections, refuses queued requests, lets responses finish."""
        proxy = self.proxy
        proxy.stopping = True
        server.close()
        proxy.refuse_queued()
        for connection in list(proxy.connections):
            connection.close_when_idle()
        until_s = proxy.now_s() + self.settings.live.drain_s
        while proxy.under_way and proxy.now_s() < until_s:
            await asyncio.sleep(0.02)
        proxy.give_up()
        await asyncio.sleep(0)
        for connection in list(proxy.connections):
            connection.abort()
        for pool in proxy.pools:
            pool.close()

    # Other ports.

    @contextlib.asynccontextmanager
    async def _picker(self) -> Any:
        """The Endpoint Picker, if configured."""
        live = self.settings.live
        if live.picker is None:
            yield
            return
        from windtunnel.live.gateway.picker.grpc_server import GrpcConnection
        from windtunnel.live.gateway.picker.service import PickerService

        address = split_address(live.picker.listen)
        assert address is not None
        try:
            bound = listen(address.host, address.port)
        except InputError:
            raise InputError(
                f"cannot listen at {live.picker.listen}: it is in use, or not a local address",
                where="live.picker.listen",
            ) from None
        self.picker_port = int(bound.getsockname()[1])
        picker = self.picker = PickerService(self.proxy)
        server = await asyncio.get_running_loop().create_server(
            lambda: cast("asyncio.Protocol", GrpcConnection(picker.grpc)),
            sock=bound,
            ssl=_server_tls(live, "h2"),
        )
        try:
            yield
        finally:
            server.close()
            picker.grpc.close()

    @contextlib.asynccontextmanager
    async def _admin(self) -> Any:
        address = admin_address(self.settings.live)
        bound = listen(address.host, address.port)
        self.admin_url = url_of(bound)
        async with serve_admin(self._admin_app(), bound):
            yield

    def _admin_app(self) -> Any:
        from starlette.requests import Request as WebRequest
        from starlette.responses import Response
        from starlette.routing import Route

        async def servers(_: WebRequest) -> Response:
            return Response(json_page(self.servers()), media_type="application/json")

        proxy = self.proxy
        registry = registry_of(lambda: gateway_families(proxy.metrics, proxy.core, proxy.now_s()))
        return admin_app(registry, self._why_not_ready, [Route("/servers", servers)])

    def _why_not_ready(self) -> str:
        if self.proxy.stopping:
            return "stopping"
        return "" if self.proxy.core.models() else "no server is ready"

    def servers(self) -> list[dict[str, Any]]:
        """The state of each server, for the `/servers` endpoint."""
        core, now_s = self.proxy.core, self.proxy.now_s()
        found = []
        for url, watched in self._watched.items():
            one, probe = core.servers[watched.number], watched.probe
            if one.gone:
                continue
            able = one.availability.allows(one.in_flight, now_s)
            found.append(
                {
                    "server": url,
                    "available": able,
                    "why": "" if able else probe.said or one.availability.why_not(),
                    "in_flight": one.in_flight,
                    "models": [card.name for card in one.models],
                }
            )
        return found


def admin_address(live: LiveSettings) -> HostPort:
    """The admin address: as configured, or the port after that of the clients."""
    if live.admin is not None:
        given = split_address(live.admin)
        assert given is not None
        return given
    listening = split_address(live.listen)
    assert listening is not None
    return HostPort("127.0.0.1", listening.port + 1 if listening.port else 0)


def check_start(live: LiveSettings, environment: Mapping[str, str]) -> None:
    """Checks what a start reads besides the configuration: keys, tokenizers, the certificate."""
    _check_keys(live, environment)
    _tokenizers(live)
    _server_tls(live)


def _tokenizers(live: LiveSettings) -> dict[str, ModelTokenizer]:
    if live.tokenizers:
        need("tokenizers", "live.tokenizers", "tokenizers")
    if live.kv_events is not None:
        need("zmq", "live.kv_events", "kv-events")
    return {model: ModelTokenizer(Path(path)) for model, path in live.tokenizers.items()}


def _check_keys(live: LiveSettings, environment: Mapping[str, str]) -> None:
    """Checks that every named variable holds a key; raises InputError otherwise."""
    named: dict[str, list[str | None]] = {
        "clients": [entry.key_env for entry in live.clients],
        "servers": [entry.key_env for entry in live.servers],
        "servers_kubernetes": [entry.key_env for entry in live.servers_kubernetes],
    }
    for kind, names in named.items():
        for number, name in enumerate(names):
            if name is not None:
                read_keys([name], environment, f"live.{kind}[{number}].key_env")


def run_gateway(
    configuration: Configuration,
    ready: Callable[[str, GatewayProgram], None],
    reload: Callable[[], Configuration],
) -> GatewayProgram:
    """Runs until Ctrl-C or SIGTERM; a second signal ends it at once."""
    settings = configuration.settings
    if settings.live.picker is not None:
        need("envoy.service", "live.picker", "picker", "the package xds-protos is not installed")
    address = split_address(settings.live.listen)
    assert address is not None
    connections_allowed(2 * settings.live.limits.connections)
    program = GatewayProgram(configuration, os.environ, reload)

    def started(url: str) -> None:
        settle_memory()
        ready(url, program)

    async def main(stop: asyncio.Event) -> None:
        with listen(address.host, address.port) as bound:
            await program.run(bound, started, stop)

    run_until_stopped(main)
    return program


LEFT_OUT: Final = object()
RELOADED: Final = frozenset(("live.servers", "live.clients"))


def _not_reloaded(started: Configuration, now: Configuration) -> list[str]:
    """The settings that differ from those at the gateway's start and need a restart, as far as
    possible by the names in the file: a new list of scorers also changes those left out."""

    def changed(before: object, after: object) -> list[str]:
        return [path for path in _changed(before, after, "") if path not in RELOADED]

    found = changed(started.settings.model_dump(), now.settings.model_dump())
    return (changed(started.written, now.written) or found) if found else []


def _changed(before: object, after: object, path: str) -> list[str]:
    """The paths of settings that differ; a list counts as one setting."""
    if isinstance(before, dict) and isinstance(after, dict):
        found = []
        for key in dict.fromkeys([*before, *after]):
            place = f"{path}.{key}" if path else str(key)
            values = [one.get(key, LEFT_OUT) for one in (before, after)]
            if any(isinstance(one, dict) for one in values):
                values = [{} if one is LEFT_OUT else one for one in values]
            found += _changed(values[0], values[1], place)
        return found
    return [] if before == after else [path]


def _address(entry: ServerEntry, environment: Mapping[str, str]) -> ServerAddress:
    parts = urlsplit(entry.url)
    host = parts.hostname or ""
    port = parts.port or (443 if parts.scheme == "https" else 80)
    key = ""
    if entry.key_env is not None:
        key = environment[entry.key_env].strip()
    tls = None
    if parts.scheme == "https":
        tls = ssl.create_default_context(cafile=entry.ca)
    shown = f"[{host}]" if ":" in host else host
    return ServerAddress(f"{parts.scheme}://{shown}:{port}", host, port, key, tls)


def _server_tls(live: LiveSettings, protocol: str = "http/1.1") -> ssl.SSLContext | None:
    if live.certificate is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols([protocol])
    for file in (live.certificate, live.certificate_key):
        if file is not None:  # a pipe or a device would be read without end
            read_bounded(Path(file), LARGEST_PEM, subject="the certificate")
    try:
        context.load_cert_chain(live.certificate, live.certificate_key)
    except (OSError, ssl.SSLError) as error:
        what = f"the certificate cannot be used: {error.strerror or error}"
        raise InputError(what, where="live.certificate") from None
    return context
