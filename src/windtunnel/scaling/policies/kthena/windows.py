"""What a scaler remembers: the best of its recent recommendations, and of its recent sizes.

Both windows keep only what may still become the best: a list in which every entry is strictly
better than those after it. A window of no length has no opinion.
"""

from collections import deque
from typing import Any, Final


class Window:
    """The best of what was appended in the last `span_s`. The largest is best, or the smallest."""

    def __init__(self, span_s: float, *, largest: bool) -> None:
        self.span_s: Final = span_s
        self.largest: Final = largest
        self._entries: deque[tuple[float, int]] = deque()

    def append(self, now_s: float, value: int) -> None:
        while self._entries and not self._better(self._entries[-1][1], value):
            self._entries.pop()
        self._entries.append((now_s, value))

    def best(self, now_s: float) -> int | None:
        """None: no opinion."""
        if self.span_s <= 0:
            return None
        while self._entries and self._entries[0][0] + self.span_s < now_s:
            self._entries.popleft()
        return self._entries[0][1] if self._entries else None

    def state(self) -> list[object]:
        """Plain data that `restore` takes back, also into a window of another span."""
        return [[taken_s, value] for taken_s, value in self._entries]

    def restore(self, entries: list[Any]) -> None:
        self._entries = deque((float(taken_s), int(value)) for taken_s, value in entries)

    def _better(self, one: int, other: int) -> bool:
        return one > other if self.largest else one < other


class SizeWindow:
    """The best size of the last `span_s`, where a size holds until the next one is appended."""

    def __init__(self, span_s: float, *, largest: bool) -> None:
        self.span_s: Final = span_s
        self._past: Final = Window(span_s, largest=largest)
        self._last: tuple[float, int] | None = None

    def append(self, now_s: float, value: int) -> None:
        if self._last is not None:
            self._past.append(now_s, self._last[1])  # it was the size until now
        self._last = (now_s, value)

    def best(self, now_s: float, current: int) -> int | None:
        """None: no opinion. `current` is a size, too."""
        if self.span_s <= 0:
            return None
        best = current
        past = self._past.best(now_s)
        if past is not None:
            best = self._best_of(best, past)
        if self._last is not None and self._last[0] + 2 * self.span_s >= now_s:
            best = self._best_of(best, self._last[1])
        return best

    def state(self) -> dict[str, object]:
        """Plain data that `restore` takes back."""
        last = None if self._last is None else list(self._last)
        return {"past": self._past.state(), "last": last}

    def restore(self, state: dict[str, Any]) -> None:
        self._past.restore(state["past"])
        last = state["last"]
        self._last = None if last is None else (float(last[0]), int(last[1]))

    def _best_of(self, one: int, other: int) -> int:
        return max(one, other) if self._past.largest else min(one, other)
