"""An event loop whose time passes only when nothing is left to do: sleeping takes no time."""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


class _Eager(selectors.SelectSelector):
    """Passes the time that it was asked to wait, instead of waiting."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self.passes = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.passes += 1
        assert timeout is not None, "everybody waits for somebody else, for ever"
        self.now_s += max(timeout, 0.0)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """Starts at an odd time, so that whoever takes it for another clock is found out."""

    START_S = 1000.5

    def __init__(self) -> None:
        self._eager = _Eager()
        super().__init__(self._eager)

    def time(self) -> float:
        return self.START_S + self._eager.now_s

    def spend(self, time_s: float) -> None:
        """Lets time pass while something computes."""
        self._eager.now_s += time_s

    @property
    def passes(self) -> int:
        """How often the loop has gone round."""
        return self._eager.passes


def run(main: Coroutine[Any, Any, Result]) -> Result:
    """Runs to the end, in as much time as it computes."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)


async def ticks(count: int) -> None:
    """Lets everything that is ready run, so many times."""
    for _ in range(count):
        await asyncio.sleep(0)
