"""Ctrl-C in long work: it reaches compiled code, and leaves a little time to keep results."""

import gc
import signal
import threading
from typing import Self

GRACE_CPU_S = 0.85
"""CPU time after Ctrl-C for writing the results that are worth keeping."""


def breathe() -> None:
    """Runs pending signal handlers; compiled loops that may run long call it.

    Compiled code never checks for signals. This module is not compiled: the interpreter checks when
    one of its own functions begins, so Ctrl-C raises here.
    """


class Interruption:
    """Handles Ctrl-C while there are results to keep: `asked` tells the work to end by itself.

    KeyboardInterrupt is raised before `may_ask` is set, at a second Ctrl-C, and when the work
    exceeds its grace time: nothing goes on for more than about a second of CPU time.
    """

    def __init__(self) -> None:
        self.asked = False
        self.may_ask = False
        self._before: list[tuple[int, object]] = []

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number, handler in ((signal.SIGINT, self._ask), (signal.SIGPROF, _interrupt)):
                self._before.append((number, signal.signal(number, handler)))
        return self

    def __exit__(self, *_: object) -> None:
        if self._before:
            signal.setitimer(signal.ITIMER_PROF, 0.0)
        for number, handler in self._before:
            signal.signal(number, handler)  # type: ignore[arg-type]  # as it was given
        self._before.clear()

    def _ask(self, *_: object) -> None:
        if self.asked or not self.may_ask:
            raise KeyboardInterrupt
        self.asked = True
        # Garbage collection over everything that a run has in memory takes seconds.
        gc.freeze()
        signal.setitimer(signal.ITIMER_PROF, GRACE_CPU_S)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt
