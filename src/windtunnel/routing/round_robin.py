"""Round-robin: every server in turn, whatever it is doing."""

from typing import Final


class RoundRobin:
    """Chooses servers by number, in a circle."""

    def __init__(self, servers: int) -> None:
        self._servers: Final = servers
        self._next = 0

    def choose(self) -> int:
        chosen = self._next
        self._next = chosen + 1 if chosen + 1 < self._servers else 0
        return chosen
