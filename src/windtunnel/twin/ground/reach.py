"""The way to the provider of machines, which may be closed for a while."""

from typing import Final

from windtunnel.fleet.fake import FakeProvider
from windtunnel.fleet.machine import Machine
from windtunnel.fleet.orders import Order
from windtunnel.fleet.provider import PAGE, Answer, Page


class Reach:
    """A provider as its users reach it: while it is out, orders and answers do not get through.

    What had begun goes on meanwhile; answers are heard afterwards.
    """

    def __init__(self, provider: FakeProvider) -> None:
        self._provider: Final = provider
        self._held: list[Answer] = []
        self.out = 0  # how many faults keep it from answering
        self.unheard = 0  # orders that came meanwhile

    def begin(self, shard: str, order: Order, now_s: float) -> None:
        """Takes an order, or seems to."""
        if self.out:
            self.unheard += 1
        else:
            self._provider.begin(shard, order, now_s)

    def get(self, machine: str) -> Machine | None:
        """One machine as it is."""
        return self._provider.get(machine)

    def list_since(self, shard: str, epoch: int, cursor: int, most: int = PAGE) -> Page:
        """What changed after a cursor; nothing while nobody answers."""
        if self.out:
            return Page([], [], cursor, unreachable=True)
        return self._provider.list_since(shard, epoch, cursor, most)

    def next_s(self) -> float:
        """When something will be done or answered next."""
        if self._held and not self.out:
            return float("-inf")
        return self._provider.next_s()

    def advance(self, now_s: float) -> list[Answer]:
        """Finishes what is due; gives the answers that get through."""
        answers = self._held + self._provider.advance(now_s)
        self._held = answers if self.out else []
        return [] if self.out else answers
