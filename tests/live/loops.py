"""Runs a coroutine on a loop whose time is virtual: waiting takes none, and jumps to its end."""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")

PATIENCE_S = 30.0
"""How long a loop with no timer is left to wait for a thread or a socket."""


class _Jump(selectors.DefaultSelector):
    """Where a loop would sleep until its next timer, its time jumps there."""

    now_s = 0.0
    passes = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.passes += 1
        if timeout is not None:
            self.now_s += max(timeout, 0.0)
            return super().select(0)
        ready = super().select(PATIENCE_S)
        assert ready, "the loop would wait for ever: no timer, and nothing comes from outside"
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop for tests; sockets work, but time passes only by jumping."""

    def __init__(self) -> None:
        self._jump = _Jump()
        super().__init__(self._jump)

    def time(self) -> float:
        return self._jump.now_s

    @property
    def passes(self) -> int:
        """How often the loop has gone round."""
        return self._jump.passes


def in_virtual_time(main: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main())


async def ticks(count: int) -> None:
    """Lets everything that is ready run, so many times."""
    for _ in range(count):
        await asyncio.sleep(0)
