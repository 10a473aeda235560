"""Numbers of the last seconds by key: what windows remember, and their means."""

from typing import Final


class History:
    """Numbers with the time of each, as far back as the window reaches."""

    def __init__(self, window_s: float) -> None:
        self._window_s: Final = window_s
        self._entries: Final[dict[str, list[tuple[float, int]]]] = {}

    def __contains__(self, key: str) -> bool:
        return key in self._entries

    def add(self, key: str, now_s: float, number: int) -> None:
        self.forget(key, now_s)
        self._entries.setdefault(key, []).append((now_s, number))

    def forget(self, key: str, now_s: float) -> None:
        """Drops what is older than the window, whose start does not belong to it."""
        entries = self._entries.get(key)
        if entries is not None:
            oldest_s = now_s - self._window_s
            entries[:] = [entry for entry in entries if entry[0] > oldest_s]

    def since(self, key: str, start_s: float) -> list[int]:
        """The numbers after this time, the oldest first."""
        return [number for at_s, number in self._entries.get(key, []) if at_s > start_s]

    def state(self) -> dict[str, object]:
        return {
            key: [[at_s, number] for at_s, number in entries]
            for key, entries in self._entries.items()
        }

    def restore(self, state: dict[str, object]) -> None:
        for key, saved in state.items():
            if isinstance(saved, list):
                self._entries[key] = [(float(pair[0]), int(pair[1])) for pair in saved]


class WindowMeans:
    """Samples by key, and their mean over any window up to the longest.

    While less than a window has been seen, the mean is over that part.
    """

    def __init__(self, longest_s: float) -> None:
        self._longest_s: Final = longest_s
        self._samples: Final[dict[str, list[tuple[float, float]]]] = {}

    def add(self, key: str, now_s: float, value: float) -> None:
        samples = self._samples.setdefault(key, [])
        oldest_s = now_s - self._longest_s
        samples.append((now_s, value))
        first = 0
        while samples[first][0] <= oldest_s:
            first += 1
        del samples[:first]

    def mean(self, key: str, now_s: float, window_s: float) -> float:
        """0 where nothing was seen; the latest sample counts whatever the window."""
        total = 0.0
        count = 0
        for at_s, value in reversed(self._samples.get(key, [])):
            if count and at_s <= now_s - window_s:
                break
            total += value
            count += 1
        return total / count if count else 0.0

    def state(self) -> dict[str, object]:
        return {key: [[at_s, value] for at_s, value in kept] for key, kept in self._samples.items()}

    def restore(self, state: dict[str, object]) -> None:
        for key, saved in state.items():
            if isinstance(saved, list):
                self._samples[key] = [(float(pair[0]), float(pair[1])) for pair in saved]
