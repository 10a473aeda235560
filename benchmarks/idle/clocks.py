"""Two event loops for one driver: one whose time jumps, and one with precise timers."""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


class _Jump(selectors.SelectSelector):
    """Makes a loop's time jump to its next timer instead of sleeping."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        assert timeout is not None, "every task waits for another, for ever"
        self.now_s += max(timeout, 0.0)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """Time passes only when nothing is left to do: exact, and the same each time."""

    def __init__(self) -> None:
        self._jump = _Jump()
        super().__init__(self._jump)

    def time(self) -> float:
        return self._jump.now_s


def real_loop() -> asyncio.AbstractEventLoop:
    """A loop with `select`; `epoll` would round sleeps up to 1 ms, three times a quick call."""
    return asyncio.SelectorEventLoop(selectors.SelectSelector())


def run(make: Callable[[], Coroutine[Any, Any, Result]], *, is_real: bool = False) -> Result:
    """Runs a coroutine to its end, in real or virtual time."""
    with asyncio.Runner(loop_factory=real_loop if is_real else VirtualLoop) as runner:
        return runner.run(make())
