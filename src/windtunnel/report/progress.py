"""The progress line of a long run: on standard error, on a terminal, after two seconds."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from windtunnel.core.clock import monotonic_s
from windtunnel.core.units import format_count, format_duration
from windtunnel.twin.simulation import Simulation

PATIENCE_S = 2.0
"""Shorter runs show nothing: a flash of a bar tells nobody anything."""

REFRESH_S = 0.1


@contextmanager
def progress(duration_s: float | None) -> Iterator[Callable[[Simulation], None] | None]:
    """Gives a `look` for a simulation, or None where nobody would see it."""
    if not sys.stderr.isatty():
        yield None
        return
    line = ProgressLine(duration_s)
    try:
        yield line.look
    finally:
        line.close()


class ProgressLine:
    """Simulated time, requests done, events per second; one line that is drawn over itself."""

    def __init__(self, duration_s: float | None) -> None:
        self._duration_s = duration_s
        self._started_s = monotonic_s()
        self._drawn_s = 0.0
        self._shown = False

    def look(self, simulation: Simulation) -> None:
        now_s = monotonic_s()
        elapsed_s = now_s - self._started_s
        if elapsed_s < PATIENCE_S or now_s - self._drawn_s < REFRESH_S:
            return
        self._drawn_s = now_s
        self._shown = True
        sys.stderr.write("\r\x1b[2K" + self.text(simulation, elapsed_s))
        sys.stderr.flush()

    def text(self, simulation: Simulation, elapsed_s: float) -> str:
        """What the line says."""
        simulated = format_duration(simulation.now_s)
        if self._duration_s:
            simulated += f" of {format_duration(self._duration_s)}"
            simulated += f" ({simulation.now_s / self._duration_s:.0%})"
        done = format_count(simulation.recorder.ended)
        rate = format_count(simulation.events / elapsed_s)
        return f"simulated {simulated}   {done} requests done   {rate} events/s"

    def close(self) -> None:
        if self._shown:
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()
