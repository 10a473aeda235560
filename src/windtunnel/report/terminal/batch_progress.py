"""The progress of a batch: bars by column and figures by model on a terminal.

Without a terminal (a log, a pipe), a line is written now and then instead.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from contextlib import ExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, TextIO

from windtunnel.core.errors import printable
from windtunnel.core.units import format_count, format_duration, format_rate

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from windtunnel.live.batch.tally import BatchView, ModelView

REFRESH_S = 0.25
LINE_S = 30.0
"""Interval of progress lines without a terminal."""
WINDOW_S = 10.0
"""Seconds over which rates are measured."""
BAR_COLUMNS = 30


class BatchPace:
    """Rates of progress over the last seconds."""

    def __init__(self) -> None:
        self._looks: deque[BatchView] = deque()

    def look(self, view: BatchView) -> None:
        self._looks.append(view)
        while len(self._looks) > 2 and view.elapsed_s - self._looks[1].elapsed_s > WINDOW_S:
            self._looks.popleft()

    def rate(self, count: Callable[[BatchView], int]) -> float:
        """The rate of a count, per second."""
        first, last = self._looks[0], self._looks[-1]
        passed_s = last.elapsed_s - first.elapsed_s
        return (count(last) - count(first)) / passed_s if passed_s > 0.0 else 0.0


def eta(left: int, rate: float) -> str:
    """The remaining time in words; empty if it is unknown."""
    if left <= 0:
        return "done"
    return format_duration(math.ceil(left / rate)) if rate > 0.0 else ""


def picture(view: BatchView, pace: BatchPace) -> Any:
    """The whole display, as a rich renderable."""
    from rich.console import Group

    return Group(_headline(view), _columns(view, pace), _models(view, pace))


def _headline(view: BatchView) -> Any:
    from rich.text import Text

    parts = [f"{view.finished:,} of {view.rows:,} rows finished"]
    if view.resumed:
        parts.append(f"{view.resumed:,} of them earlier")
    if view.dropped:
        parts.append(f"{view.dropped:,} dropped")
    if view.gave_up:
        parts.append(f"{view.gave_up:,} given up")
    parts.append(f"{format_duration(view.elapsed_s)} so far")
    return Text("   ".join(parts))


def _columns(view: BatchView, pace: BatchPace) -> Any:
    from rich.progress_bar import ProgressBar

    from windtunnel.report.terminal.layout import table_of

    rows = []
    for number, column in enumerate(view.columns):
        rate = pace.rate(lambda seen, n=number: seen.columns[n].done)  # type: ignore[misc]
        bar = ProgressBar(total=max(1, column.of), completed=column.done, width=BAR_COLUMNS)
        done, left = f"{column.done:,} of {column.of:,}", eta(column.of - column.done, rate)
        rows.append((column.name, bar, done, format_rate(rate), left))
    return table_of(("column", "", "done", "rate", "left"), rows)


def _models(view: BatchView, pace: BatchPace) -> Any:
    from windtunnel.report.terminal.layout import table_of

    rows = []
    for number, model in enumerate(view.models):
        tokens = pace.rate(
            lambda seen, n=number: seen.models[n].completion_tokens  # type: ignore[misc]
        )
        counts = (model.in_flight, model.limit, model.waiting, model.rate_limited, model.failed)
        name, speed = f"{model.model} at {model.endpoint}", f"{format_count(tokens)}/s"
        rows.append((name, *(f"{count:,}" for count in counts), speed, _held(model)))
    heads = ("model", "in flight", "limit", "waiting", "429s", "failed", "tokens", "")
    return table_of(heads, rows)


def _held(model: ModelView) -> str:
    """Why calls are held back; empty if they are not."""
    if model.cooldown_s > 0.0:
        return f"waits {format_duration(model.cooldown_s)}"
    if model.budget:
        return f"waits {format_duration(math.ceil(model.budget_wait_s))}: {model.budget}"
    return ""


def line(view: BatchView, pace: BatchPace) -> str:
    """The same in one line."""
    rate = pace.rate(lambda seen: seen.finished)
    left = view.rows - view.finished - view.dropped - view.gave_up
    flying = sum(model.in_flight for model in view.models)
    refused = sum(model.rate_limited for model in view.models)
    text = f"{view.finished:,} of {view.rows:,} rows, {format_rate(rate)}, {flying} in flight"
    if refused:
        text += f", {refused:,} times refused (429)"
    for model in view.models:
        if model.budget:
            text += f", {model.endpoint} is held to {model.budget}"
    if view.dropped or view.gave_up:
        text += f", {view.dropped:,} dropped, {view.gave_up:,} given up"
    remaining = eta(left, rate)
    return f"{text}, {remaining} left" if remaining not in ("", "done") else text


@asynccontextmanager
async def showing(
    look: Callable[[], BatchView], stream: TextIO, *, is_terminal: bool
) -> AsyncIterator[None]:
    """Shows the progress of a run until the block ends."""
    with ExitStack() as drawn:
        if is_terminal:
            from rich.live import Live

            from windtunnel.report.terminal.layout import Screen

            console = Screen(file=stream, force_terminal=True)
            live = drawn.enter_context(Live(console=console, transient=True, auto_refresh=False))
            task = asyncio.create_task(_draw(look, live))
        else:
            task = asyncio.create_task(_write(look, stream))
        try:
            yield
        finally:
            task.cancel()


async def _draw(look: Callable[[], BatchView], live: Any) -> None:
    pace = BatchPace()
    while True:
        view = look()
        pace.look(view)
        live.update(picture(view, pace), refresh=True)
        await asyncio.sleep(REFRESH_S)


async def _write(look: Callable[[], BatchView], stream: TextIO) -> None:
    pace = BatchPace()
    pace.look(look())
    while True:
        await asyncio.sleep(LINE_S)
        view = look()
        pace.look(view)
        stream.write(f"windtunnel: {printable(line(view, pace))}\n")
        stream.flush()
