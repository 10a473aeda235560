"""The settings of a gateway: a scenario's policies, and settings that only apply live."""

import ipaddress
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple
from urllib.parse import urlsplit

from pydantic import Field

from windtunnel.admission.gateway.settings import AlwaysSettings, GatewaySettings
from windtunnel.core.addresses import address_fault
from windtunnel.core.errors import InputError
from windtunnel.live.gateway.facts import ClassOfService, Policies
from windtunnel.live.gateway.picker.resources import read_resources
from windtunnel.live.rotation import LOG_LIMITS, KeptFiles, RotateBytes
from windtunnel.routing.availability import BreakerLimits
from windtunnel.routing.settings import RouterSettings, SplitSettings
from windtunnel.settings.checking import section_of
from windtunnel.settings.document import parse_document, read_text
from windtunnel.settings.faults import Fault
from windtunnel.settings.fields import (
    Duration,
    FilePath,
    Flag,
    Leaf,
    Name,
    Share,
    Size,
    Text,
    Whole,
    is_not,
)
from windtunnel.settings.manifests import DNS_LABEL, FreeText, Pattern
from windtunnel.settings.overrides import apply_override
from windtunnel.settings.section import Context, Section, located
from windtunnel.workload.request import DEFAULT_SLO, DEFAULT_TENANT
from windtunnel.workload.settings.sources import BUILT_IN_PRIORITIES, SloClass

NOUN = "gateway"
KEYS = "live, serving and slo"
LONGEST_S = "24h"
DEFAULT_PORT = 8080
DEFAULT_PICKER_PORT = 9002


class AddressForm(Text):
    """An address to listen on."""

    def __init__(self) -> None:
        super().__init__("HOST:PORT, such as 127.0.0.1:8080")

    def check(self, value: object) -> str:
        if not isinstance(value, str) or split_address(value) is None:
            self.fail(is_not(value, "an address"))
        return super().check(value)


Address = Annotated[str, AddressForm()]
Variable = Annotated[str, Text("the name of an environment variable")]

# Settings of servers, listed one by one or discovered together.
Role = Annotated[
    Literal["both", "prefill", "decode"],
    Field(
        description="`prefill`: it only computes prompts; their KV moves to the answering server "
        "(vLLM's NixlConnector)."
    ),
]
Slots = Annotated[
    int,
    Whole(1, 1_000_000),
    Field(description="Requests that it runs at once (vLLM's `max_num_seqs`)."),
]
ServerKey = Annotated[
    Variable | None,
    Field(description="The environment variable of its API key; default: none."),
]
LAST_PORT = 65535
KvEventsPort = Annotated[
    Annotated[int, Whole(1, 65535)] | None,
    Field(description="Port of its KV-cache events; default: `live.kv_events.port`."),
]


class PodPort(Leaf):
    """A port of a Service's pods."""

    allowed = "the name of a port of the Service, or a number from 1 to 65535"
    schema = {  # noqa: RUF012 - a constant that no instance changes
        "anyOf": [
            {"type": "string", "pattern": r"^[a-z0-9-]{1,15}$"},
            {"type": "integer", "minimum": 1, "maximum": 65535},
        ]
    }

    def check(self, value: object) -> int | str:
        if isinstance(value, str) and re.fullmatch(r"[0-9]{1,5}", value):
            value = int(value)
        if isinstance(value, str) and re.fullmatch(r"[a-z0-9-]{1,15}", value):
            return value
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= 65535:
            self.fail(is_not(value, "a port"))
        return value


class ServerEntry(Section):
    """A server that requests are sent to."""

    url: Annotated[str, Text("an address such as http://10.0.0.7:8000")] = Field(
        description="Its address; https for TLS."
    )
    role: Role = "both"
    slots: Slots = 256
    key_env: ServerKey = None
    ca: Annotated[str, FilePath("a file of certificates")] | None = Field(
        default=None,
        description="CA certificates for an https server; default: the system's.",
    )
    kv_events_port: KvEventsPort = None

    def check(self, where: Context) -> Iterator[Fault]:
        what = server_fault(self.url)
        if what:
            yield where.fault("url", what, "an address such as http://10.0.0.7:8000")


class DnsEntry(Section):
    """A name whose addresses are servers, such as a headless Service of Kubernetes."""

    name: Annotated[str, Text("a host name")] = Field(description="The name to resolve.")
    port: Annotated[int, Whole(1, 65535)] = Field(description="The port of every server.")
    interval_s: Annotated[float, Duration("50ms", LONGEST_S)] = Field(
        default=5.0, description="How often it is resolved."
    )


def _place(noun: str) -> Pattern:
    """The name of an object, optionally with its namespace."""
    form = re.compile(rf"({DNS_LABEL.pattern}/)?{DNS_LABEL.pattern}")
    return Pattern(noun, form, 127, "NAME or NAMESPACE/NAME, of small letters, digits and '-'")


class KubernetesEntry(Section):
    """A Service or an InferencePool whose ready pods are servers."""

    service: Annotated[str, _place("a Service")] | None = Field(
        default=None,
        description="The Service; default namespace: the gateway's.",
    )
    pool: Annotated[str, _place("an InferencePool")] | None = Field(
        default=None,
        description="The InferencePool; each of its `targetPorts` is a server.",
    )
    port: Annotated[int | str, PodPort()] | None = Field(
        default=None,
        description="With `service`: the name of its port, or the number that pods listen on; "
        "default: its only TCP port.",
    )
    role: Role = "both"
    slots: Slots = 256
    key_env: ServerKey = None
    kv_events_port: KvEventsPort = None

    @property
    def place(self) -> str:
        return self.service or self.pool or ""

    @property
    def kind(self) -> str:
        return "Service" if self.pool is None else "InferencePool"

    def check(self, where: Context) -> Iterator[Fault]:
        if (self.service is None) == (self.pool is None):
            what = "exactly one of a Service and an InferencePool is needed"
            yield where.fault((), what, "service: NAME, or pool: NAME")
        if self.pool is not None and self.port is not None:
            yield where.fault("port", "the ports come from the InferencePool", "leave it out")

    def server(self, url: str) -> ServerEntry:
        """The server entry of one of its pods."""
        return ServerEntry(
            url=url,
            role=self.role,
            slots=self.slots,
            key_env=self.key_env,
            kv_events_port=self.kv_events_port,
        )


class ClientEntry(Section):
    """A client API key, with its tenant and permitted classes."""

    key_env: Variable = Field(description="The environment variable of the key.")
    tenant: Annotated[str, Name()] = Field(
        default=DEFAULT_TENANT, description="The tenant of requests with this key."
    )
    classes: list[Annotated[str, Name()]] = Field(
        default_factory=list,
        description="Classes that the header `x-slo-class` may name, the first by default. "
        "Default: all, `standard` by default.",
    )


class HealthSettings(Section):
    """Health checks of servers."""

    path: Annotated[str, Text("a path such as /health")] = Field(
        default="/health", description="Path of the health check; status 200 is healthy."
    )
    interval_s: Annotated[float, Duration("50ms", LONGEST_S)] = Field(
        default=2.0, description="Time between two checks of a server."
    )
    timeout_s: Annotated[float, Duration("10ms", LONGEST_S)] = Field(
        default=5.0, description="Timeout of a check."
    )
    failures: Annotated[int, Whole(1, 1000)] = Field(
        default=3, description="Failed checks in a row that make a server unhealthy."
    )
    ramp_s: Annotated[float, Duration("0s", LONGEST_S)] = Field(
        default=10.0,
        description="Slow start: how long a new server gets fewer requests.",
    )


class ScrapeSettings(Section):
    """How the servers' load is read."""

    path: Annotated[str, Text("a path such as /metrics")] = Field(
        default="/metrics", description="Path of the servers' Prometheus metrics."
    )
    interval_s: Annotated[float, Duration("20ms", LONGEST_S)] = Field(
        default=0.5, description="Time between two scrapes of a server; they never overlap."
    )
    timeout_s: Annotated[float, Duration("10ms", LONGEST_S)] = Field(
        default=5.0, description="Timeout of a scrape."
    )
    stale_s: Annotated[float, Duration("20ms", LONGEST_S)] = Field(
        default=5.0,
        description="Load older than this is estimated from the requests sent to the server.",
    )


class BreakerSettings(Section):
    """When a failing server gets no more requests for a while."""

    consecutive: Annotated[int, Whole(1, 1_000_000)] = Field(
        default=5, description="Failures in a row that open the breaker."
    )
    share: Annotated[float, Share(above=True)] = Field(
        default=0.5, description="Share of failures among the last 40 requests that opens it."
    )
    open_s: Annotated[float, Duration("10ms", LONGEST_S)] = Field(
        default=5.0,
        description="How long no request is sent; then one at a time. Doubled when it fails.",
    )
    longest_s: Annotated[float, Duration("10ms", LONGEST_S)] = Field(
        default=60.0, description="Longest open time."
    )


class LiveRetrySettings(Section):
    """Retries of a request that a server did not answer, on another server."""

    attempts: Annotated[int, Whole(1, 16)] = Field(
        default=3, description="Servers that a request is sent to, at most."
    )
    budget: Annotated[float, Share()] = Field(
        default=0.2, description="Retries are at most this share of requests."
    )
    internal_errors: Annotated[bool, Flag()] = Field(
        default=False,
        description="Whether 500 is retried, as 502, 503 and 504 are. A request that makes every "
        "server fail then hits `attempts` of them.",
    )


class LimitSettings(Section):
    """Limits on clients and servers."""

    head_bytes: Annotated[float, Size("1KiB", "1MiB")] = Field(
        default=64 * 1024, description="Size of a request's headers."
    )
    body_bytes: Annotated[float, Size("1KiB", "1GiB")] = Field(
        default=32 * 1024**2, description="Size of a request's body."
    )
    connections: Annotated[int, Whole(1, 1_000_000)] = Field(
        default=20_000, description="Connections from clients at once."
    )
    request_s: Annotated[float, Duration("10ms", LONGEST_S)] = Field(
        default=30.0, description="Timeout from a request's first byte to its last."
    )
    idle_s: Annotated[float, Duration("10ms", LONGEST_S)] = Field(
        default=75.0, description="An idle connection is closed after this."
    )
    stall_s: Annotated[float, Duration("10ms", LONGEST_S)] = Field(
        default=30.0, description="A client that reads nothing for this long is dropped."
    )
    connect_s: Annotated[float, Duration("10ms", LONGEST_S)] = Field(
        default=5.0, description="Timeout for connecting to a server."
    )
    first_byte_s: Annotated[float, Duration("10ms", LONGEST_S)] = Field(
        default=600.0, description="Timeout until a server begins to answer."
    )
    silence_s: Annotated[float, Duration("10ms", LONGEST_S)] = Field(
        default=120.0, description="Timeout between two chunks of a response."
    )


class TraceFileSettings(Section):
    """The request trace, without prompts, that `windtunnel simulate` replays."""

    folder: Annotated[str, FilePath("a folder")] = Field(
        default="windtunnel-trace", description="The folder of its files."
    )
    rotate_bytes: RotateBytes = Field(
        default=64 * 1024**2, description="A file is closed at this size."
    )
    keep: KeptFiles = Field(default=16, description="Files to keep; the oldest is removed.")


class PickerSettings(Section):
    """The Endpoint Picker of a Gateway API implementation: it decides, Envoy forwards requests."""

    listen: Address = Field(
        default=f"127.0.0.1:{DEFAULT_PICKER_PORT}", description="Address for Envoy's gRPC."
    )
    manifests: list[Annotated[str, FilePath("a file")]] = Field(
        default_factory=list,
        max_length=64,
        description="Files with InferencePools, whose ports servers must have, and "
        "InferenceObjectives, which are classes.",
    )


class KvEventSettings(Section):
    """KV-cache events of servers (vLLM's `--kv-events-config`): the exact content of caches."""

    port: Annotated[int, Whole(1, 65535)] = Field(
        default=5557, description="Port of the events (`endpoint`)."
    )
    replay_port: Annotated[int, Whole(1, 65535)] | None = Field(
        default=None,
        description="Port for replaying events (`replay_endpoint`); default: a missed event "
        "clears the server's index.",
    )
    topic: Annotated[str, FreeText()] = Field(default="", description="The topic; empty: all.")
    ranks: Annotated[int, Whole(1, 64)] = Field(
        default=1,
        description="Data-parallel ranks of a server, which publish at consecutive ports. What "
        "any rank has, the server has.",
    )

    def check(self, where: Context) -> Iterator[Fault]:
        for name, port in (("port", self.port), ("replay_port", self.replay_port)):
            if port is not None and port + self.ranks - 1 > LAST_PORT:
                what = f"with {self.ranks} ranks the last port is {port + self.ranks - 1}"
                yield where.fault(name, what, f"at most {LAST_PORT - self.ranks + 1}")


class LiveSettings(Section):
    """Addresses, keys and limits of a live gateway."""

    listen: Address = Field(default=f"127.0.0.1:{DEFAULT_PORT}", description="Address for clients.")
    admin: Address | None = Field(
        default=None,
        description="Address of /metrics, /healthz, /readyz and /servers; default: the port after "
        "`listen`'s, on 127.0.0.1.",
    )
    certificate: Annotated[str, FilePath("a PEM file")] | None = Field(
        default=None, description="For TLS to clients, with `certificate_key`."
    )
    certificate_key: Annotated[str, FilePath("a PEM file")] | None = Field(
        default=None, description="The private key of `certificate`."
    )
    servers: list[ServerEntry] = Field(
        default_factory=list, max_length=4096, description="Servers to send requests to."
    )
    servers_file: Annotated[str, FilePath("a file")] | None = Field(
        default=None,
        description="A file of addresses, one a line, read again when it changes.",
    )
    servers_dns: list[DnsEntry] = Field(
        default_factory=list,
        max_length=64,
        description="DNS names whose addresses are servers.",
    )
    servers_kubernetes: list[KubernetesEntry] = Field(
        default_factory=list,
        max_length=64,
        description="Watched Services and InferencePools whose ready pods are servers. The "
        "cluster is that of `KUBECONFIG`, the pod's service account or ~/.kube/config.",
    )
    clients: list[ClientEntry] = Field(
        default_factory=list,
        max_length=10_000,
        description="API keys of clients; default: none is required.",
    )
    picker: PickerSettings | None = Field(
        default=None,
        description="Also serve Envoy as an Endpoint Picker (extra `picker`).",
    )
    tokenizers: dict[str, Annotated[str, FilePath("a folder with tokenizer.json")]] = Field(
        default_factory=dict,
        description="Hugging Face tokenizers by model, with the chat template in "
        "tokenizer_config.json (extra `tokenizers`). Default: tokens are estimated.",
    )
    kv_events: KvEventSettings | None = Field(
        default=None,
        description="Follow servers' KV caches (extra `kv-events`, and `tokenizers`); default: "
        "what was sent to a server counts as cached there.",
    )
    health: HealthSettings = Field(default_factory=HealthSettings, description="Health checks.")
    scrape: ScrapeSettings = Field(default_factory=ScrapeSettings, description="Load of servers.")
    breaker: BreakerSettings = Field(
        default_factory=BreakerSettings, description="Circuit breakers."
    )
    retries: LiveRetrySettings = Field(default_factory=LiveRetrySettings, description="Retries.")
    limits: LimitSettings = Field(default_factory=LimitSettings, description="Limits.")
    trace: TraceFileSettings | None = Field(
        default_factory=TraceFileSettings, description="The request trace; null: none is written."
    )
    log: Annotated[str, FilePath("a file")] | None = Field(
        default=None,
        description="The event log: every observation and decision, for `windtunnel audit`.",
    )
    log_rotate_bytes: RotateBytes = Field(
        default=LOG_LIMITS.rotate_bytes, description="Size at which `log` is rotated."
    )
    log_keep: KeptFiles = Field(
        default=LOG_LIMITS.keep,
        description="Rotated files to keep, `LOG.1`, `LOG.2`, ...; the oldest is deleted.",
    )
    access_log: Annotated[str, FilePath("a file, such as /dev/stdout")] | None = Field(
        default=None,
        description="A line of JSON per ended request. SIGHUP begins a new file.",
    )
    no_server_ttl_s: Annotated[float, Duration("0s", LONGEST_S)] = Field(
        default=30.0,
        description="How long a request waits while no server is ready.",
    )
    drain_s: Annotated[float, Duration("0s", LONGEST_S)] = Field(
        default=30.0, description="How long answers may take after SIGTERM."
    )
    usage: Annotated[bool, Flag()] = Field(
        default=True,
        description="Whether token counts of streams are requested (`include_usage`), and "
        "removed for clients that did not ask.",
    )
    explain: Annotated[bool, Flag()] = Field(
        default=True,
        description="Whether the header `x-windtunnel-explain` is answered with server and reason.",
    )
    dry_run: Annotated[bool, Flag()] = Field(
        default=False,
        description="Send no request to a server; answer each with the decision instead.",
    )

    def check(self, where: Context) -> Iterator[Fault]:
        if (self.certificate is None) != (self.certificate_key is None):
            yield where.fault(
                "certificate", "a certificate and its key go together", "both, or neither"
            )
        if self.kv_events is not None and not self.tokenizers:
            yield where.fault(
                "kv_events",
                "KV-cache events are of tokens and need a tokenizer",
                hint="name them in live.tokenizers",
            )
        if self.dry_run and self.picker is not None:
            yield where.fault(
                "dry_run",
                "with a picker Envoy sends the requests, which is not a dry run",
                hint="leave out live.picker",
            )
        places: set[tuple[str, str, int | str | None]] = set()
        for number, source in enumerate(self.servers_kubernetes):
            place = (source.kind, source.place, source.port)
            if place in places:
                yield where.fault(("servers_kubernetes", number), "it is listed twice")
            places.add(place)
        seen: set[str] = set()
        for number, entry in enumerate(self.servers):
            base = "" if server_fault(entry.url) else server_base(entry.url)
            if base in seen:
                yield where.fault(("servers", number, "url"), "it is listed twice")
            seen.update([base] if base else ())


class ServingPolicies(Section):
    """Admission and routing of requests, as in a scenario."""

    router: RouterSettings = Field(
        default_factory=lambda: RouterSettings(policy="weighted"),
        description="How a server is chosen; default: weighted, with its default scorers.",
    )
    admission: GatewaySettings = Field(
        default_factory=lambda: AlwaysSettings(policy="always"),
        description="Which requests are admitted, and when; default: all, at once.",
    )
    disaggregation: SplitSettings = Field(
        default_factory=SplitSettings,
        description="Which prompts are computed by servers of role `prefill`, where there are any.",
    )


class GatewayFile(Section):
    """A gateway's configuration: `serving` and `slo` as in a scenario, and `live`."""

    slo: dict[Annotated[str, Name()], SloClass] = Field(
        default_factory=dict, description="Classes of service, as in a scenario."
    )
    serving: ServingPolicies = Field(
        default_factory=ServingPolicies, description="Policies, as in a scenario."
    )
    live: LiveSettings = Field(default_factory=LiveSettings, description="Live settings.")

    def check(self, where: Context) -> Iterator[Fault]:
        for name, one in self.slo.items():
            if one.priority is None and name not in BUILT_IN_PRIORITIES:
                yield where.fault(("slo", name), "it has no priority", "priority: a whole number")
        for number, entry in enumerate(self.live.clients):
            for place, name in enumerate(entry.classes):
                if name not in self.class_names:
                    path = ("live", "clients", number, "classes", place)
                    known = ", ".join(self.class_names)
                    yield where.fault(path, f"there is no class {name!r}", known)

    @property
    def class_names(self) -> list[str]:
        return list(dict.fromkeys((DEFAULT_SLO, *self.slo, *BUILT_IN_PRIORITIES)))

    @property
    def tenants(self) -> list[str]:
        return list(dict.fromkeys((DEFAULT_TENANT, *(one.tenant for one in self.live.clients))))

    def classes(self, objectives: Mapping[str, int]) -> tuple[ClassOfService, ...]:
        """All classes, `standard` first, InferenceObjectives last."""
        found = []
        for name in self.class_names:
            one = self.slo.get(name)
            written = one.priority if one is not None else None
            priority = BUILT_IN_PRIORITIES[name] if written is None else written
            ttft_s = math.inf if one is None or one.ttft_s is None else one.ttft_s
            found.append(ClassOfService(name, priority, ttft_s))
        found += [
            ClassOfService(name, priority, math.inf)
            for name, priority in objectives.items()
            if name not in self.class_names
        ]
        return tuple(found)

    def policies(self, folder: Path, seed: int, objectives: Mapping[str, int]) -> Policies:
        """The policies that the decisions follow."""
        live = self.live
        breaker = live.breaker
        return Policies(
            router=self.serving.router,
            admission=self.serving.admission,
            split=self.serving.disaggregation,
            classes=self.classes(objectives),
            tenants=self.tenants,
            breaker=BreakerLimits(
                breaker.consecutive, breaker.share, breaker.open_s, breaker.longest_s
            ),
            ramp_s=live.health.ramp_s,
            attempts=live.retries.attempts,
            retry_share=live.retries.budget,
            unplaced_ttl_s=live.no_server_ttl_s,
            folder=folder,
            seed=seed,
        )


class HostPort(NamedTuple):
    host: str
    port: int


def split_address(text: str) -> HostPort | None:
    """Parses `127.0.0.1:8080` or `[::1]:8080`; None for anything else."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535 or not host:
        return None
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        return None
    return HostPort(host, int(port))


def server_base(url: str) -> str:
    """The address of a server in one spelling, without the path."""
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port
    shown = f"[{host}]" if ":" in host else host
    usual = 443 if parts.scheme == "https" else 80
    return f"{parts.scheme}://{shown}" + (f":{port}" if port not in (None, usual) else "")


def server_fault(url: str) -> str:
    """What is wrong with a server's address; empty if nothing."""
    what = address_fault(url)
    if what:
        return what
    parts = urlsplit(url)
    if parts.query or parts.fragment:
        return "an address has no '?' and no '#'"
    if parts.path.rstrip("/") not in ("", "/v1"):
        return f"the path {parts.path[:40]!r} is not passed on: requests go to /v1"
    try:
        if ipaddress.ip_address(parts.hostname or "").is_link_local:
            return "link-local addresses are not allowed"
    except ValueError:
        pass
    return ""


class Configuration(NamedTuple):
    """The settings of a gateway, and the document they were read from."""

    settings: GatewayFile
    written: dict[str, Any]
    folder: Path
    objectives: dict[str, int]
    """Priorities of InferenceObjectives, by name."""
    ports: frozenset[int] | None = None
    """Ports that an Endpoint Picker may return; empty for any; None if there is no picker."""

    def fault_of(self, url: str) -> str:
        """What is wrong with a server's address in this configuration; empty if nothing."""
        what = server_fault(url)
        return what or ("" if self.ports is None else _endpoint_fault(url, self.ports))


def read_settings(path: Path | None, sets: Sequence[str], servers: Sequence[str]) -> Configuration:
    """Reads the settings in a file, with overrides and servers from the command line."""
    text = read_text(path, NOUN) if path is not None else "live: {}\n"
    document = parse_document(text, str(path) if path is not None else NOUN, NOUN, KEYS)
    for override in sets:
        apply_override(document, override)
    folder = path.parent if path is not None else Path()
    found = section_of(document, GatewayFile, folder)
    live = found.live.model_copy(update={"servers": _joined(found.live.servers, servers)})
    found = located(found.model_copy(update={"live": live}), folder)
    live = found.live
    if not (live.servers or live.servers_file or live.servers_dns or live.servers_kubernetes):
        raise InputError(
            "there is no server to send requests to",
            where=str(path) if path is not None else None,
            allowed="--server URL, or live.servers in the file",
        )
    if found.live.picker is None:
        return Configuration(found, document.data, folder, {})
    resources = read_resources(found.live.picker.manifests)
    for entry in found.live.servers:
        what = _endpoint_fault(entry.url, resources.ports)
        if what:
            hint = "live.servers_dns resolves a name to the addresses behind it"
            raise InputError(what, where="live.servers", hint=hint)
    for number, name in enumerate(found.live.servers_dns):
        what = _port_fault(f"{name.name}:{name.port}", name.port, resources.ports)
        if what:
            raise InputError(what, where=f"live.servers_dns[{number}].port")
    return Configuration(found, document.data, folder, resources.objectives, resources.ports)


def _joined(listed: Sequence[ServerEntry], more: Sequence[str]) -> list[ServerEntry]:
    """The servers of the file and of the command line, each once."""
    found = {server_base(entry.url): entry for entry in listed}
    for url in more:
        what = server_fault(url)
        if what:
            raise InputError(what, where="--server", allowed="such as http://10.0.0.7:8000")
        found.setdefault(server_base(url), ServerEntry(url=url))
    return list(found.values())


def _endpoint_fault(url: str, ports: frozenset[int]) -> str:
    """What is wrong with an address for Envoy, which does not resolve names; empty if nothing."""
    parts = urlsplit(url)
    try:
        ipaddress.ip_address(parts.hostname or "")
    except ValueError:
        return f"{url!r} is not an IP address, and an Endpoint Picker names only those"
    return _port_fault(url, parts.port, ports)


def _port_fault(name: str, port: int | None, ports: frozenset[int]) -> str:
    if not ports or port in ports:
        return ""
    allowed = ", ".join(str(one) for one in sorted(ports))
    return f"the port of {name!r} is not one of the InferencePool: {allowed}"
