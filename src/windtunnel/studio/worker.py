"""Runs one scenario in a process: the scenario comes on standard input, progress goes out as lines.

Each line is a JSON object: `at` has the samples taken since the last line, and its `writing` is
true once only the results remain to be written; `done` or `failed` is the last one. An interrupt
ends the run early and keeps its results.
"""

import signal
import sys
from pathlib import Path
from typing import Any

import msgspec

from windtunnel.core.clock import monotonic_s
from windtunnel.core.errors import WindtunnelError
from windtunnel.core.units import format_duration
from windtunnel.report.files.folder import RunFolder
from windtunnel.twin.ceiling import MemoryCeiling
from windtunnel.twin.results.timeline import Sample, Timeline
from windtunnel.twin.run import Run, run
from windtunnel.twin.scenario.load import document_of, load_document
from windtunnel.twin.simulation import Simulation

BETWEEN_LINES_S = 0.2


class RunRequest(msgspec.Struct):
    """A scenario as text, its nominal file, and the folder for the results."""

    text: str
    file: str
    folder: str


class StopFlag:
    """Set by an interrupt: the run ends after its current event, and results are still written."""

    def __init__(self) -> None:
        self.is_set = False
        signal.signal(signal.SIGINT, self._set)

    def _set(self, *_: object) -> None:
        self.is_set = True


def send(**what: Any) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(what) + b"\n")
    sys.stdout.buffer.flush()


class SampleLines:
    """Writes a line at intervals, with the new samples."""

    def __init__(self, duration_s: float | None) -> None:
        self._duration_s = duration_s
        self._next = 0.0
        self._until_s = -1.0

    def __call__(self, simulation: Simulation) -> None:
        now = monotonic_s()
        if now < self._next:
            return
        self._next = now + BETWEEN_LINES_S
        recorder = simulation.recorder
        self._send(simulation.now_s, recorder.arrived, recorder.ended, simulation.timeline)

    def finish(self, done: Run) -> None:
        """Reports that the run has ended and its results are about to be written."""
        requests, seconds = done.result["requests"], done.result["simulated_seconds"]
        ended = requests["arrived"] - requests["unfinished"]
        self._send(seconds, requests["arrived"], ended, done.timeline, writing=True)

    def _send(
        self, now_s: float, arrived: int, ended: int, timeline: Timeline, *, writing: bool = False
    ) -> None:
        fresh = [one for one in timeline.samples if one.time_s > self._until_s]
        if fresh:
            self._until_s = fresh[-1].time_s
        send(
            at={
                "now": now_s,
                "of": self._duration_s,
                "arrived": arrived,
                "ended": ended,
                "samples": [_figures(one) for one in fresh],
                "writing": writing,
            }
        )


def _figures(sample: Sample) -> dict[str, float]:
    """Totals up to a sample, by the names in the timeline of a finished run."""
    return {
        "time": sample.time_s,
        "arrived": sample.arrived,
        "completed": sample.completed,
        "output_tokens": sample.output_tokens,
        "waiting": sum(sample.waiting) + sample.awaiting_server + sample.at_gateway,
        "running": sum(sample.running),
        "replicas_ready": sample.serving,
        "replicas_wanted": sum(sample.wanted),
    }


def main() -> None:
    asked = msgspec.json.decode(sys.stdin.buffer.read(), type=RunRequest)
    try:
        plan = load_document(document_of(asked.text, asked.file, (), None))
        lines = SampleLines(plan.duration_s)
        ceiling = MemoryCeiling.of(None)
        stop = StopFlag()
        with RunFolder(Path(asked.folder)) as files:

            def look(simulation: Simulation) -> None:
                if stop.is_set:
                    at = format_duration(simulation.now_s)
                    simulation.end_early("interrupt", f"the run was interrupted at {at}")
                ceiling.look(simulation)
                lines(simulation)

            done = run(plan, rows=files.rows(), decisions=files.control(), look=look)
            lines.finish(done)
            files.finish(done)
    except WindtunnelError as error:
        send(failed=str(error))
    else:
        send(done=done.result["partial"])


if __name__ == "__main__":
    main()
