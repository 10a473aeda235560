"""Replays the event log of a gateway through its decisions."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from windtunnel.core import vocabulary
from windtunnel.core.errors import InputError
from windtunnel.live.event_log import STARTED
from windtunnel.live.gateway import facts
from windtunnel.live.gateway.decisions import GatewayCore
from windtunnel.live.gateway.facts import ModelCard, RequestArrival
from windtunnel.live.gateway.settings import GatewayFile
from windtunnel.live.replay import AuditReport, LogLine, MadeLines, first_line, replay


def audit(path: Path) -> AuditReport:
    """Replays a log; raises InputError if the file is not one."""
    head = log_head(path)
    settings = GatewayFile.read(head.data["settings"])
    folder = Path(head.data.get("folder") or path.parent)
    policies = settings.policies(folder, int(head.data["seed"]), head.data.get("objectives", {}))
    made = MadeLines()
    program = _ReplayedGateway(GatewayCore(policies, made.record))
    return replay(path, program, made, float(head.data.get("since", 0.0)))


def log_head(path: Path) -> LogLine:
    """The first line of a log, with its gateway's settings and seed."""
    head = first_line(path)
    try:
        if head is not None and head.kind == STARTED:
            GatewayFile.read(head.data["settings"])
            int(head.data["seed"])
            return head
    except (LookupError, TypeError, ValueError, ValidationError):
        pass
    allowed = "a file that `live.log` of a gateway named"
    raise InputError("this is not the log of a gateway", where=f"{path}:1", allowed=allowed)


class _ReplayedGateway:
    """A gateway that replays the facts of its log."""

    decisions: tuple[str, ...] = facts.DECISIONS

    def __init__(self, core: GatewayCore) -> None:
        self._core: Final = core

    def skips(self, line: LogLine) -> bool:  # noqa: ARG002 - a gateway's whole log is replayed
        return False

    def tell(self, line: LogLine) -> None:
        about = line.subject.partition("/")[2]
        _FACTS[line.kind](self._core, int(about) if about else -1, line)
        while self._core.take() is not None:
            pass


def _observe(core: GatewayCore, server: int, line: LogLine) -> None:
    waiting, running, kv_used, adapters = line.data["load"]
    core.observe(server, (waiting, running, kv_used), adapters, line.time)


_FACTS: Final[dict[str, Callable[[GatewayCore, int, LogLine], None]]] = {
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


def _joined(core: GatewayCore, line: LogLine) -> None:
    core.join(line.data["name"], line.data["slots"], line.time, line.data["role"])
