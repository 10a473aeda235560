"""The inputs and outputs of a gateway's decisions: facts, settings and actions."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from windtunnel.admission.gateway.settings import GatewaySettings
from windtunnel.core import vocabulary
from windtunnel.core.telemetry import Plain
from windtunnel.routing.availability import BreakerLimits
from windtunnel.routing.settings import RouterSettings, SplitSettings

SEND: Final = 0
REFUSE: Final = 1
STOP: Final = 2

# Kinds of facts in the log; decisions have the kinds of every event log.
JOINED: Final = "server.joined"
HEALTHY: Final = "server.healthy"
UNHEALTHY: Final = "server.unhealthy"
DRAINING: Final = "server.draining"
UNDRAINED: Final = "server.undrained"
OBSERVED: Final = "server.observed"
UNOBSERVED: Final = "server.unobserved"
CACHE_SIZE: Final = "server.cache"
CACHE_TOLD: Final = "server.cached"
ARRIVED: Final = "request.arrived"
ANSWERED: Final = "request.answered"
FAILED: Final = "request.failed"
TICK: Final = "gateway.tick"
TENANT: Final = "tenant.added"
PREFILLED: Final = "request.prefilled"
DECISIONS: Final = (*vocabulary.GATEWAY_DECISIONS, vocabulary.ROUTED, vocabulary.SPLIT)

BOTH: Final = "both"
PREFILL: Final = "prefill"
DECODE: Final = "decode"


class GatewayAction:
    """What the driver must do with a request, and why.

    SEND: send it to `server`, after `prefill` has computed the prompt if that is not -1. REFUSE:
    answer it with an error that gives `reason`. STOP: end a request that was sent.
    """

    __slots__ = ("kind", "limit", "prefill", "reason", "request", "seen", "server")

    def __init__(
        self, kind: int, request: int, server: int, reason: str, seen: float, limit: float
    ) -> None:
        self.kind: Final = kind
        self.request: Final = request
        self.server: Final = server
        self.reason: Final = reason
        self.seen: Final = seen
        self.limit: Final = limit
        self.prefill = -1


class RequestArrival:
    """A request as known at its arrival. `tenant` and `slo` are indices into `Policies`.

    `holder`: the server that has the state that the request refers to, preferred to any other;
    `among`: the only servers that may take it, or empty for all.
    """

    __slots__ = (
        *("among", "holder", "id", "model", "output_tokens", "prefix_ends", "prefix_keys"),
        *("prompt_tokens", "session", "slo", "tenant"),
    )

    def __init__(
        self,
        id: int,  # noqa: A002
        model: str,
        tenant: int,
        slo: int,
        prompt_tokens: int,
        output_tokens: int,
        session: int = -1,
        prefix_keys: Sequence[int] = (),
        prefix_ends: Sequence[int] = (),
        holder: int = -1,
        among: Sequence[int] = (),
    ) -> None:
        self.id: Final = id
        self.model: Final = model
        self.tenant: Final = tenant
        self.slo: Final = slo
        self.prompt_tokens: Final = prompt_tokens
        self.output_tokens: Final = output_tokens
        self.session: Final = session
        self.prefix_keys: Final = list(prefix_keys)
        self.prefix_ends: Final = list(prefix_ends)
        self.holder: Final = holder
        self.among: Final = tuple(among)


class ClassOfService(NamedTuple):
    name: str
    priority: int
    ttft_s: float
    """Target for the time to first token; infinity if there is none."""


class ModelCard(NamedTuple):
    """A model of a server; an adapter's `parent` is its base model."""

    name: str
    parent: str = ""


class Policies(NamedTuple):
    """The settings that decisions follow."""

    router: RouterSettings
    admission: GatewaySettings
    split: SplitSettings
    classes: tuple[ClassOfService, ...]
    tenants: list[str]
    breaker: BreakerLimits
    ramp_s: float
    attempts: int
    """Servers that a request is sent to in sequence, at most."""
    retry_share: float
    unplaced_ttl_s: float
    """How long a request waits while no server is available."""
    folder: Path
    seed: int


def arrival_data(arrival: RequestArrival) -> dict[str, Plain]:
    data: dict[str, Plain] = {
        "model": arrival.model,
        "tenant": arrival.tenant,
        "slo": arrival.slo,
        "prompt_tokens": arrival.prompt_tokens,
        "output_tokens": arrival.output_tokens,
        "session": arrival.session,
        "prefix_keys": [*arrival.prefix_keys],
        "prefix_ends": [*arrival.prefix_ends],
    }
    if arrival.holder >= 0:
        data["holder"] = arrival.holder
    if arrival.among:
        data["among"] = [*arrival.among]
    return data
