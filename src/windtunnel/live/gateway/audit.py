"""Replays the event log of a gateway through its decisions."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from windtunnel.core import vocabulary
from windtunnel.core.errors import InputError
from windtunnel.core.telemetry import Event
from windtunnel.live.event_log import STARTED
from windtunnel.live.gateway import facts
from windtunnel.live.gateway.decisions import GatewayCore
from windtunnel.live.gateway.facts import ModelCard, RequestArrival
from windtunnel.live.gateway.settings import GatewayFile
from windtunnel.live.replay import (
    AuditReport,
    LogSection,
    MadeLines,
    audit_all,
    replay,
    sections_of,
)


def audit(path: Path) -> AuditReport:
    """Replays a log; raises InputError if the file is not one."""
    return audit_all(starts_of(path), partial(_audit, path))


def _audit(path: Path, start: LogSection) -> AuditReport:
    head = start.head
    settings = GatewayFile.read(head.data["settings"])
    folder = Path(head.data.get("folder") or path.parent)
    policies = settings.policies(folder, int(head.data["seed"]), head.data.get("objectives", {}))
    made = MadeLines()
    program = _ReplayedGateway(GatewayCore(policies, made.record))
    return replay(path, start, program, made, float(head.data.get("since", 0.0)))


def starts_of(path: Path) -> list[LogSection]:
    """The starts in a log; each has the gateway's settings and seed in its first line."""
    found = sections_of(path)
    bad = next((one.where for one in found if not _is_ours(one.head)), "" if found else f"{path}:1")
    if bad:
        allowed = "a file that `live.log` of a gateway named"
        what = "this is not the log of a gateway"
        raise InputError(what, where=bad, allowed=allowed)
    return found


def _is_ours(head: Event) -> bool:
    try:
        GatewayFile.read(head.data["settings"])
        int(head.data["seed"])
    except (LookupError, TypeError, ValueError, ValidationError):
        return False
    return head.kind == STARTED


class _ReplayedGateway:
    """A gateway that replays the facts of its log."""

    decisions: tuple[str, ...] = facts.DECISIONS

    def __init__(self, core: GatewayCore) -> None:
        self._core: Final = core

    def skips(self, line: Event) -> bool:  # noqa: ARG002 - a gateway's whole log is replayed
        return False

    def apply(self, line: Event) -> None:
        about = line.subject.partition("/")[2]
        _FACTS[line.kind](self._core, int(about) if about else -1, line)
        while self._core.take() is not None:
            pass


def _observe(core: GatewayCore, server: int, line: Event) -> None:
    waiting, running, kv_used, adapters = line.data["load"]
    core.observe(server, (waiting, running, kv_used), adapters, line.time)


_FACTS: Final[dict[str, Callable[[GatewayCore, int, Event], None]]] = {
    facts.JOINED: lambda core, _, line: _joined(core, line),
    facts.HEALTHY: lambda core, server, line: core.healthy(
        server, [ModelCard(*card) for card in line.data["models"]], line.time
    ),
    facts.UNHEALTHY: lambda core, server, line: core.unhealthy(server, line.reason, line.time),
    facts.DRAINING: lambda core, server, line: core.drain(server, line.time),
    facts.UNDRAINED: lambda core, server, line: core.undrain(server, line.time),
    facts.OBSERVED: _observe,
    facts.UNOBSERVED: lambda core, server, line: core.unobserved(server, line.time),
    facts.CACHE_SIZE: lambda core, server, line: core.cache_size(
        server, line.data["tokens"], line.time
    ),
    facts.CACHE_TOLD: lambda core, server, line: core.cache_told(
        server,
        [(key, end) for key, end in line.data["stored"]],
        line.data["removed"],
        line.time,
        cleared=line.data["cleared"],
    ),
    facts.TENANT: lambda core, _, line: core.add_tenant(line.data["name"], line.time),
    facts.ARRIVED: lambda core, request, line: core.arrive(
        RequestArrival(id=request, **line.data), line.time
    ),
    facts.ANSWERED: lambda core, request, line: core.answered(
        request, line.time, good=line.data["good"]
    ),
    facts.PREFILLED: lambda core, request, line: core.prefilled(
        request, line.time, good=line.data["good"]
    ),
    facts.FAILED: lambda core, request, line: core.failed(
        request, line.reason, line.time, again=line.data["again"], faulty=line.data["faulty"]
    ),
    vocabulary.ENDED: lambda core, request, line: core.ended(
        request, line.reason, line.time, line.data["ttft_s"], line.data["tpot_s"]
    ),
    facts.TICK: lambda core, _, line: core.tick(line.time),
}
"""How each kind of fact is replayed."""


def _joined(core: GatewayCore, line: Event) -> None:
    core.join(line.data["name"], line.data["slots"], line.time, line.data["role"])
