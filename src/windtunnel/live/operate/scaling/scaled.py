"""An object that asks for autoscaling, as the operator keeps it."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any, Final, NamedTuple

import msgspec

from windtunnel.core.loop import INFINITY
from windtunnel.live.kubernetes.resources import Meta, Resource
from windtunnel.scaling.kubernetes.canary import (
    ANNOTATION,
    CanaryAsk,
    CanaryGate,
    CanaryOutcome,
    WantedScaling,
)
from windtunnel.scaling.kubernetes.control import RecordHolder, ScalingController
from windtunnel.scaling.kubernetes.plan import ObjectName

LONGEST_NAME: Final = 200
FAILED_S: Final = 15.0


class RunningCheck(NamedTuple):
    """A check of a changed policy."""

    ask: CanaryAsk
    task: asyncio.Task[CanaryOutcome]


class Scaled:
    """One object, its plan, and how it fares."""

    def __init__(self, named: ObjectName, resource: Resource, meta: Meta) -> None:
        self.named: Final = named
        self.resource: Final = resource
        self.meta = meta
        self.spec: dict[str, Any] = {}
        self.status: dict[str, Any] = {}
        self.gate: Final = CanaryGate()
        self.wanted: WantedScaling | None = None
        """None: another object has its targets."""
        self.check: RunningCheck | None = None
        self.control: ScalingController | None = None
        self.holder: RecordHolder | None = None
        self.wrong = ""
        """What is wrong with it; it is not scaled then."""
        self.version: str | None = None
        """Of its record, as we wrote or read it; None: to be read first; empty: there is none."""
        self.task: asyncio.Task[None] | None = None
        self.due_s = 0.0
        self.standing_by = False
        self.failures = 0
        self.told: tuple[Any, ...] = ()
        self.told_s = -INFINITY
        self.told_text = ""
        self.mute = False
        """Its kind has no status to write."""

    @property
    def interval_s(self) -> float:
        return FAILED_S if self.control is None else self.control.plan.interval_s

    @property
    def canary(self) -> str | None:
        """The annotation; kinds of Kthena have no field for it."""
        return self.meta.annotations.get(ANNOTATION)

    def is_edited_by(self, meta: Meta) -> bool:
        """Whether it says something else under this metadata; annotations have no generation."""
        now = meta.uid, meta.generation, meta.annotations.get(ANNOTATION)
        return now != (self.meta.uid, self.meta.generation, self.canary)

    def cancel(self) -> None:
        """Ends what goes on for it."""
        for task in (self.task, self.check and self.check.task):
            if task is not None:
                task.cancel()

    def beside(self, what: str) -> str:
        """The name of the ConfigMap that has its record, or something else."""
        name = f"windtunnel-{what}-{self.named.kind.lower()}-{self.named.name}"
        if len(name) <= LONGEST_NAME:
            return name
        return f"{name[:LONGEST_NAME]}-{hashlib.sha256(name.encode()).hexdigest()[:12]}"

    def has_condition(self, kind: str) -> bool:
        known = self.status.get("conditions")
        found = known if isinstance(known, list) else []
        return any(isinstance(one, dict) and one.get("type") == kind for one in found)


def decoded(text: str) -> dict[str, Any]:
    """A record; of what is none, nothing."""
    try:
        record = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}
