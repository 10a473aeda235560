"""Monitors a run: its progress, its memory, and Ctrl-C."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Self

from windtunnel.cli.places import note
from windtunnel.core.system.interrupts import Interruption
from windtunnel.core.units import format_duration
from windtunnel.twin.ceiling import MemoryCeiling
from windtunnel.twin.simulation import Simulation

BY_INTERRUPT = "interrupt"
MOST_FINISHED = 20_000
"""Most requests or servers whose rows are still written when a run is interrupted."""

Look = Callable[[Simulation], None]


class RunWatch:
    """Ends a run early if it uses too much memory or is interrupted."""

    def __init__(self, memory_bytes: int | None) -> None:
        self._ceiling = MemoryCeiling.of(memory_bytes)
        self._interruption = Interruption()
        self._collects = False
        self._reached: tuple[int, float] | None = None  # requests ended, and when, in the run

    @property
    def is_interrupted(self) -> bool:
        return self._interruption.asked

    @contextmanager
    def optional(self) -> Iterator[None]:
        """For work after the run whose results are complete without it: Ctrl-C ends only that."""
        self._interruption.may_ask = False
        try:
            yield
        except KeyboardInterrupt:
            self._interruption.asked = True
        self._interruption.may_ask = True

    def __enter__(self) -> Self:
        self._interruption.__enter__()
        self._collects = gc.isenabled()
        gc.disable()  # looking through millions of objects for garbage takes seconds
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._interruption.__exit__()
        if self._collects:
            gc.enable()
        if kind is KeyboardInterrupt and self._reached is not None:
            self._say_what_was_lost(*self._reached)

    def looking(self, shown: Look | None) -> Look:
        """The callback that a run calls at intervals; it also calls `shown`."""

        def look(simulation: Simulation) -> None:
            self._reached = simulation.recorder.ended, simulation.now_s
            self._interruption.may_ask = True
            if self._interruption.asked:
                if len(simulation.servers) > MOST_FINISHED:
                    raise KeyboardInterrupt
                what = f"the run was interrupted at {format_duration(simulation.now_s)}"
                inside = simulation.recorder.arrived - simulation.recorder.ended
                if inside > MOST_FINISHED:
                    simulation.in_haste = True
                    what += f"; the {inside:,} requests inside are counted, without rows"
                simulation.end_early(BY_INTERRUPT, what)
            self._ceiling.look(simulation)
            if shown is not None:
                shown(simulation)

        return look

    def _say_what_was_lost(self, ended: int, now_s: float) -> None:
        """Reports what was lost, and how to run the scenario to the same point with all results."""
        note(
            f"{ended:,} requests had ended, at {format_duration(now_s)} of simulated time; nothing "
            f"is written, as that would take a while (--set duration={now_s:.6g}s runs this far)"
        )
