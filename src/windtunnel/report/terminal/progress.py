"""Progress of long commands: a line or bar on a terminal, occasional lines in a file or pipe."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from windtunnel.core.clock import monotonic_s
from windtunnel.core.units import format_count, format_duration
from windtunnel.twin.simulation import Simulation

PATIENCE_S = 2.0
"""Shorter runs show nothing: a bar that only flashes is no help."""

REFRESH_S = 0.1
LINE_S = 30.0
"""Interval of progress lines where nothing can be redrawn."""
USUAL_COLUMNS = 80
CLEAR = "\r\x1b[2K"

Clock = Callable[[], float]


def is_terminal(stream: TextIO | None) -> bool:
    """Whether the stream is a terminal, on which lines can be redrawn."""
    return stream is not None and stream.isatty() and os.environ.get("TERM") != "dumb"


class StatusLine:
    """One line that redraws itself, at most ten times a second; in a file or a pipe, a new line
    every half minute."""

    def __init__(self, stream: TextIO, patience_s: float, clock: Clock) -> None:
        self._stream = stream
        self._redraws = is_terminal(stream)
        self._patience_s = patience_s
        self._clock = clock
        self._started_s = self._drawn_s = clock()
        self._shown = False

    def show(self, text: Callable[[float], str]) -> None:
        """Draws the text that the function returns for the elapsed seconds."""
        now_s = self._clock()
        elapsed_s = now_s - self._started_s
        every_s = REFRESH_S if self._redraws else LINE_S
        if elapsed_s < self._patience_s or now_s - self._drawn_s < every_s:
            return
        self._drawn_s = now_s
        if not self._redraws:
            self._stream.write(text(elapsed_s) + "\n")
            self._stream.flush()
            return
        self._shown = True
        # A line that wraps cannot be redrawn.
        self._stream.write(CLEAR + text(elapsed_s)[: _columns(self._stream) - 1])
        self._stream.flush()

    def close(self) -> None:
        if self._shown:
            self._stream.write(CLEAR)
            self._stream.flush()


@contextmanager
def status_line(
    stream: TextIO | None,
    patience_s: float = PATIENCE_S,
    clock: Clock = monotonic_s,
    *,
    anywhere: bool = False,
) -> Iterator[StatusLine | None]:
    """A status line on a terminal; None if the stream is not a terminal, unless lines may go
    `anywhere`."""
    if stream is None or not (anywhere or is_terminal(stream)):
        yield None
        return
    line = StatusLine(stream, patience_s, clock)
    try:
        yield line
    finally:
        line.close()


@contextmanager
def progress(
    duration_s: float | None, stream: TextIO | None, clock: Clock = monotonic_s
) -> Iterator[Callable[[Simulation], None] | None]:
    """Yields a `look` for a simulation; None if the stream is not a terminal."""
    with status_line(stream, clock=clock) as line:
        if line is None:
            yield None
            return
        yield lambda simulation: line.show(
            lambda elapsed_s: _simulated(simulation, duration_s, elapsed_s)
        )


def _simulated(simulation: Simulation, duration_s: float | None, elapsed_s: float) -> str:
    """Simulated time, requests done, events per second."""
    simulated = format_duration(simulation.now_s)
    if duration_s:
        simulated += f" of {format_duration(duration_s)} ({simulation.now_s / duration_s:.0%})"
    done = format_count(simulation.recorder.ended)
    rate = format_count(simulation.events / elapsed_s)
    return f"simulated {simulated}   {done} requests done   {rate} events/s"


@contextmanager
def counting(
    what: str, stream: TextIO | None, clock: Clock = monotonic_s
) -> Iterator[Callable[..., None]]:
    """Yields a function that shows the progress of a count: `7 of 29 runs`, optionally with a
    note."""
    if stream is not None and not is_terminal(stream):
        lines = ProgressLines(what, stream, clock)
        yield lambda count, total, note="": lines.update(count, total, 0, note)
        return
    with status_line(stream, clock=clock) as line:
        if line is None:
            yield lambda *_: None
            return

        def text(count: int, total: int, note: str, elapsed_s: float) -> str:
            parts = [f"{count} of {total} {what}"]
            if 0 < count < total:
                parts.append(f"about {format_duration(elapsed_s / count * (total - count))} left")
            return ", ".join([*parts, note] if note else parts)

        yield lambda count, total, note="": line.show(lambda s: text(count, total, note, s))


class ProgressLines:
    """The progress of a long count, as lines of text."""

    def __init__(self, what: str, stream: TextIO, clock: Clock) -> None:
        self._what = what
        self._stream = stream
        self._clock = clock
        self._started_s = self._written_s = clock()
        self._note = ""

    def update(self, count: int, total: int, before: int, note: str = "") -> None:
        self._note = note or self._note
        now_s = self._clock()
        if now_s - self._written_s < LINE_S:
            return
        self._written_s = now_s
        parts = [f"{count:,} of {total:,} {self._what}".rstrip()]
        if count > max(before, 0):
            left_s = (now_s - self._started_s) / (count - max(before, 0)) * (total - count)
            parts.append(f"about {format_duration(left_s)} left")
        if self._note:
            parts.append(self._note)
        self._stream.write(", ".join(parts) + "\n")
        self._stream.flush()


@contextmanager
def bar(
    what: str, stream: TextIO | None, clock: Clock = monotonic_s
) -> Iterator[Callable[..., None]]:
    """Yields a function that shows the progress of a long count, as a bar with the time left.

    Its arguments are the number finished, the total, how many of those were finished before the
    start (excluded from the time estimate), and an optional note. In a file or a pipe it writes a
    line every half minute.
    """
    if stream is None:
        yield lambda *_: None
        return
    if not is_terminal(stream):
        yield ProgressLines(what, stream, clock).update
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

        def update(count: int, total: int, before: int, note: str = "") -> None:
            if count <= before:
                note = note or (f"{before} from before" if before else "")
                shown.reset(task, total=total, completed=count, note=note)
            elif note:
                shown.update(task, total=total, completed=count, note=note)
            else:
                shown.update(task, total=total, completed=count)

        yield update


def _columns(stream: TextIO) -> int:
    try:
        return os.get_terminal_size(stream.fileno()).columns or USUAL_COLUMNS
    except (OSError, ValueError):
        return USUAL_COLUMNS
