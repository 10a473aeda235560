"""Replays the event log of a gateway through its decisions, in the time of the log.

The log has every fact that the decisions were given, and every decision. The same facts must lead
to the same lines, byte for byte; the first one that differs is reported.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from pydantic import ValidationError

from windtunnel.core import vocabulary
from windtunnel.core.errors import InputError
from windtunnel.core.telemetry import Plain
from windtunnel.live.gateway import facts
from windtunnel.live.gateway.decisions import GatewayCore
from windtunnel.live.gateway.event_log import STARTED, log_line
from windtunnel.live.gateway.facts import ModelCard, RequestArrival
from windtunnel.live.gateway.settings import GatewayFile

LONGEST_LINE: Final = 16 << 20


class AuditReport(NamedTuple):
    """What came of a replay."""

    facts: int
    decisions: int
    difference: str
    """The first line that is not as in the log, in words; empty: there is none."""
    cut: bool
    """Whether the last line of the log is incomplete: the gateway was killed."""


class LogLine(msgspec.Struct):
    """A line of the log."""

    time: float
    kind: str
    subject: str
    reason: str = ""
    data: dict[str, Any] = {}


def audit(path: Path) -> AuditReport:
    """Replays a log; a file that is not one is an InputError."""
    lines = lines_of(path)
    number, first = next(lines, (1, b""))
    head = _head(path, first)
    core, expected = _begin(path, head)
    since_s = float(head.data.get("since", 0.0))
    heard = decided = 0
    cut = False
    made: list[bytes] = expected
    place = 0
    for number, raw in lines:
        if not raw.endswith(b"\n"):
            cut = True
            break
        try:
            line = msgspec.json.decode(raw, type=LogLine)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise InputError(
                "this is not a line of a gateway's log", where=f"{path}:{number}"
            ) from None
        if line.kind not in facts.DECISIONS:
            if place < len(made):
                break
            made.clear()
            place = 0
            heard += 1
            _tell(core, line, path, number)
            if line.time < since_s:
                del made[1:]  # the log was cut: it has no decisions of this time
        else:
            decided += 1
        if place >= len(made):
            what = f"{path}:{number}: the log has a decision that is not made again: {_shown(raw)}"
            return AuditReport(heard, decided, what, cut)
        if made[place] != raw:
            what = f"{path}:{number}: the log has {_shown(raw)}, the replay {_shown(made[place])}"
            return AuditReport(heard, decided, what, cut)
        place += 1
    if place < len(made) and not cut:
        what = f"{path}:{number}: the replay decides what the log does not have: "
        return AuditReport(heard, decided, what + _shown(made[place]), cut)
    return AuditReport(heard, decided, "", cut)


def lines_of(path: Path) -> Iterator[tuple[int, bytes]]:
    try:
        with path.open("rb") as file:
            number = 0
            while line := file.readline(LONGEST_LINE):
                number += 1
                yield number, line
    except OSError as error:
        raise InputError(f"the log cannot be read: {error.strerror}", where=str(path)) from None


def log_head(path: Path) -> LogLine:
    """The first line of a log, with the settings and the seed of its gateway."""
    return _head(path, next(lines_of(path), (1, b""))[1])


def _head(path: Path, raw: bytes) -> LogLine:
    try:
        head = msgspec.json.decode(raw, type=LogLine)
        GatewayFile.read(head.data["settings"])
        int(head.data["seed"])
    except (
        *(msgspec.DecodeError, UnicodeDecodeError, LookupError, TypeError),
        *(ValueError, ValidationError),
    ):
        head = LogLine(0.0, "", "")
    if head.kind != STARTED:
        allowed = "a file that `live.log` of a gateway named"
        raise InputError("this is not the log of a gateway", where=f"{path}:1", allowed=allowed)
    return head


def _begin(path: Path, head: LogLine) -> tuple[GatewayCore, list[bytes]]:
    settings = GatewayFile.read(head.data["settings"])
    seed = int(head.data["seed"])
    made: list[bytes] = []

    def record(now_s: float, kind: str, subject: str, reason: str, data: dict[str, Plain]) -> None:
        made.append(log_line(now_s, kind, subject, reason, data))

    folder = Path(head.data.get("folder") or path.parent)
    objectives = head.data.get("objectives", {})
    return GatewayCore(settings.policies(folder, seed, objectives), record), made


def _tell(core: GatewayCore, line: LogLine, path: Path, number: int) -> None:
    """Gives one fact to the decisions again."""
    about = line.subject.partition("/")[2]
    tell = _FACTS.get(line.kind)
    try:
        if tell is None:
            raise LookupError(line.kind)  # noqa: TRY301 - one sentence for all that is wrong
        tell(core, int(about) if about else -1, line)
    except (LookupError, TypeError, ValueError, AssertionError) as error:
        what = f"the fact {line.kind!r} does not follow from what was before it ({error!r})"
        raise InputError(what, where=f"{path}:{number}") from None
    while core.take() is not None:
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
"""How each kind of fact is told."""


def _joined(core: GatewayCore, line: LogLine) -> None:
    core.join(line.data["name"], line.data["slots"], line.time, line.data["role"])


def _shown(raw: bytes) -> str:
    return raw.decode("utf-8", "replace").strip()[:300]
