"""The progress line of a long run: on a terminal, after two seconds, gone at the end."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from windtunnel.core.clock import monotonic_s
from windtunnel.core.units import format_count, format_duration
from windtunnel.twin.simulation import Simulation

PATIENCE_S = 2.0
"""Shorter runs show nothing: a bar that flashes is no help."""

REFRESH_S = 0.1
USUAL_COLUMNS = 80
CLEAR = "\r\x1b[2K"


@contextmanager
def progress(
    duration_s: float | None, stream: TextIO | None, clock: Callable[[], float] = monotonic_s
) -> Iterator[Callable[[Simulation], None] | None]:
    """Gives a `look` for a simulation, or None where the stream is no terminal."""
    if stream is None or not stream.isatty() or os.environ.get("TERM") == "dumb":
        yield None
        return
    line = ProgressLine(duration_s, stream, clock)
    try:
        yield line.look
    finally:
        line.close()


@contextmanager
def counting(
    what: str, stream: TextIO | None, clock: Callable[[], float] = monotonic_s
) -> Iterator[Callable[[int, int], None]]:
    """Gives a function that shows how far a count has come: `7 of 29 runs`, on a terminal."""
    if stream is None or not stream.isatty() or os.environ.get("TERM") == "dumb":
        yield lambda _count, _total: None
        return
    started_s = clock()
    shown = False

    def update(count: int, total: int) -> None:
        nonlocal shown
        if clock() - started_s >= PATIENCE_S:
            text = f"{count} of {total} {what}"
            stream.write(CLEAR + text[: _columns(stream) - 1])
            stream.flush()
            shown = True

    try:
        yield update
    finally:
        if shown:
            stream.write(CLEAR)
            stream.flush()


@contextmanager
def bar(what: str, stream: TextIO | None) -> Iterator[Callable[[int, int, int], None]]:
    """Gives a function that shows how far a long count has come, as a bar with the time left.

    It takes how many have ended, of how many, and how many of those had ended before: they say
    nothing of how long the others take.
    """
    if stream is None or not stream.isatty() or os.environ.get("TERM") == "dumb":
        yield lambda _count, _total, _before: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.progress import TimeRemainingColumn as TimeLeft

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeLeft(elapsed_when_finished=True),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=Console(file=stream), transient=True) as shown:
        task = shown.add_task(what, total=None, note="")

        def update(count: int, total: int, before: int) -> None:
            if count <= before:
                note = f"{before} from before" if before else ""
                shown.reset(task, total=total, completed=count, note=note)
            else:
                shown.update(task, total=total, completed=count)

        yield update


class ProgressLine:
    """Simulated time, requests done, events per second; one line that is drawn over itself."""

    def __init__(
        self, duration_s: float | None, stream: TextIO, clock: Callable[[], float]
    ) -> None:
        self._duration_s = duration_s
        self._stream = stream
        self._clock = clock
        self._started_s = self._drawn_s = clock()
        self._shown = False

    def look(self, simulation: Simulation) -> None:
        now_s = self._clock()
        elapsed_s = now_s - self._started_s
        if elapsed_s < PATIENCE_S or now_s - self._drawn_s < REFRESH_S:
            return
        self._drawn_s = now_s
        self._shown = True
        # A line that wraps cannot be drawn over.
        text = self.text(simulation, elapsed_s)[: _columns(self._stream) - 1]
        self._stream.write(CLEAR + text)
        self._stream.flush()

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
            self._stream.write(CLEAR)
            self._stream.flush()


def _columns(stream: TextIO) -> int:
    try:
        return os.get_terminal_size(stream.fileno()).columns or USUAL_COLUMNS
    except (OSError, ValueError):
        return USUAL_COLUMNS
