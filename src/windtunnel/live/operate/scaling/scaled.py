"""An object that requests autoscaling, as the operator keeps it."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any, Final, NamedTuple

import msgspec

from windtunnel.core.loop import INFINITY
from windtunnel.live.kubernetes.resources import Meta, Resource
from windtunnel.scaling.kubernetes.canary import CanaryAsk, CanaryGate, CanaryOutcome
from windtunnel.scaling.kubernetes.control import RecordHolder, ScalingController
from windtunnel.scaling.kubernetes.core import AutoscaledObject
from windtunnel.scaling.kubernetes.plan import ObjectName

LONGEST_NAME: Final = 200
FAILED_S: Final = 15.0


class RunningCheck(NamedTuple):
    """A running check of a changed policy."""

    ask: CanaryAsk
    task: asyncio.Task[CanaryOutcome]


class ScaledEntry:
    """One object and its state."""

    def __init__(self, known: AutoscaledObject, resource: Resource, meta: Meta) -> None:
        self.known: Final = known
        self.named: Final[ObjectName] = known.named
        self.gate: Final[CanaryGate] = known.gate
        self.resource: Final = resource
        self.meta = meta
        self.status: dict[str, Any] = {}
        self.check: RunningCheck | None = None
        self.holder: RecordHolder | None = None
        self.version: str | None = None
        """The version of its record; None if it must be read first, empty if there is none."""
        self.task: asyncio.Task[None] | None = None
        self.due_s = 0.0
        self.standing_by = False
        self.failures = 0
        self.written: tuple[Any, ...] = ()
        self.written_s = -INFINITY
        self.logged = ""
        self.mute = False
        """Whether its kind has no status to write."""

    @property
    def control(self) -> ScalingController | None:
        return self.known.control

    @property
    def wrong(self) -> str:
        """What is wrong with it; it is then not scaled, or continues with its previous plan."""
        return str(self.known.wrong or "")

    @property
    def interval_s(self) -> float:
        return FAILED_S if self.control is None else self.control.plan.interval_s

    def cancel(self) -> None:
        """Cancels its tasks."""
        for task in (self.task, self.check and self.check.task):
            if task is not None:
                task.cancel()

    def beside(self, what: str) -> str:
        """The name of the ConfigMap with its record (`scaling`) or check report (`canary`)."""
        name = f"windtunnel-{what}-{self.named.kind.lower()}-{self.named.name}"
        if len(name) <= LONGEST_NAME:
            return name
        return f"{name[:LONGEST_NAME]}-{hashlib.sha256(name.encode()).hexdigest()[:12]}"

    def has_condition(self, kind: str) -> bool:
        known = self.status.get("conditions")
        found = known if isinstance(known, list) else []
        return any(isinstance(one, dict) and one.get("type") == kind for one in found)


def decoded(text: str) -> dict[str, Any]:
    """Decodes a record; empty if it is not one."""
    try:
        record = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}
