"""Numbers of the last seconds by key: what limiters with a window remember."""

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
