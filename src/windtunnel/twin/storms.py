"""Which servers answer 429 now, and to whom."""

from typing import Final

from windtunnel.core.random import Stream


class Storm:
    """Servers that refuse a share of the requests that are sent to them."""

    def __init__(self, servers: list[int], share: float, stream: Stream) -> None:
        self.servers: Final = dict.fromkeys(servers)
        self.share: Final = share
        self.stream: Final = stream


class Storms:
    """All storms of the moment."""

    def __init__(self) -> None:
        self.expected = False  # whether there may be any in the run
        self._now: Final[list[Storm]] = []

    def begin(self, storm: Storm) -> None:
        self._now.append(storm)

    def end(self, storm: Storm) -> None:
        self._now.remove(storm)

    def refuse(self, server: int) -> bool:
        """Whether a server refuses the request that is sent to it now."""
        for storm in self._now:
            if server in storm.servers and storm.stream.uniform() < storm.share:
                return True
        return False
