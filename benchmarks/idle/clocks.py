"""Two clocks for one driver: a loop whose time jumps, and a loop whose timers are fine."""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


class _Jump(selectors.SelectSelector):
    """Where a loop would sleep until its next timer, its time jumps there."""

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
    """With `select`: `epoll` rounds each sleep up to a millisecond, three times a quick call."""
    return asyncio.SelectorEventLoop(selectors.SelectSelector())


def run(make: Callable[[], Coroutine[Any, Any, Result]], *, is_real: bool = False) -> Result:
    """Runs a coroutine to its end, in real time or in none."""
    with asyncio.Runner(loop_factory=real_loop if is_real else VirtualLoop) as runner:
        return runner.run(make())
