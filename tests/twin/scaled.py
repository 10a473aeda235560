"""Runs whose pools are scaled by a script instead of a policy."""

from typing import Any

from tests.core.sinks import MemorySink
from windtunnel.core.telemetry import Event
from windtunnel.scaling.decision import Decision
from windtunnel.scaling.snapshot import Snapshot
from windtunnel.twin.run import run
from windtunnel.twin.scenario.load import load_text


class Script:
    """Wants sizes that were written down beforehand, one line a tick; the last line stays."""

    def __init__(self, *sizes: dict[str, int], again: bool = False) -> None:
        self._sizes = sizes
        self._again = again  # whether it starts over at the end
        self.seen: list[Snapshot] = []

    def tick(self, snapshot: Snapshot, now_s: float) -> list[Decision]:
        assert now_s >= snapshot.taken_s
        number = len(self.seen)
        place = number % len(self._sizes) if self._again else min(number, len(self._sizes) - 1)
        self.seen.append(snapshot)
        return [
            Decision(
                model.name,
                variant.name,
                current=variant.target,
                recommended=variant.target,
                target=self._sizes[place].get(variant.name, variant.target),
                reason="it is written",
                metrics={"tick": float(number)},
                limits=[],
            )
            for model in snapshot.models
            for variant in model.variants
        ]


def scaled(text: str, script: Script, *sets: str) -> tuple[dict[str, Any], list[Event]]:
    """The result and the events of a run, every invariant checked after every event."""
    sink = MemorySink()
    plan = load_text(text, sets=sets)
    return run(plan, events=sink, check=True, scaler=script).result, sink.events
