"""Counts machines and their cost: each from when it exists until it is given back or lost."""

from collections.abc import Sequence
from typing import Final

from windtunnel.fleet.machine import Machine
from windtunnel.fleet.states import (
    CONFIGURED,
    CONFIGURING,
    CREATING,
    DELETING,
    DRAINING,
    FAILED,
    IDLE,
)

PAID: Final = (IDLE, CONFIGURING, CONFIGURED, DRAINING, DELETING)
AN_HOUR_S: Final = 3600.0
NOWHERE: Final = -1
COUNTED: Final = (CREATING, IDLE, CONFIGURING, CONFIGURED, DRAINING, DELETING, FAILED)
"""The states that levels show, in this order, followed by the dollars per hour."""


MOST_LEVELS: Final = 2_000
"""The most changes that are kept; at twice as many, every second one is dropped."""


class Levels:
    """A series of values over time, one row per change."""

    def __init__(self) -> None:
        self.rows: list[list[float]] = []
        """Every change: its time, followed by the values."""

    def note(self, now_s: float, values: Sequence[float]) -> None:
        """Records the values from now on, replacing those recorded at the same instant."""
        rows = self.rows
        if rows and rows[-1][0] == now_s:
            rows.pop()
        if rows and rows[-1][1:] == list(values):
            return
        rows.append([now_s, *values])
        if len(rows) >= 2 * MOST_LEVELS:
            self.rows = rows[:1] + rows[2::2]


class MachineAccount:
    """The account of the machines of one kind."""

    def __init__(self) -> None:
        self.here = 0
        self.most = 0
        self.created = 0
        self.given_back = 0
        self.lost = 0
        self._seconds = 0.0
        self._cost = 0.0
        self._rate = 0.0  # dollars per hour of the existing machines
        self._settled_s = 0.0
        self._counts: Final = dict.fromkeys(COUNTED, 0)
        self.levels: Final = Levels()

    def settle(self, now_s: float) -> None:
        passed_s = now_s - self._settled_s
        self._seconds += self.here * passed_s
        self._cost += self._rate * passed_s / AN_HOUR_S
        self._settled_s = now_s

    def change(self, machines: int, price_per_hour: float, now_s: float) -> None:
        self.settle(now_s)
        self.here += machines
        self._rate = self._rate + machines * price_per_hour if self.here else 0.0
        self.most = max(self.most, self.here)

    def count(self, was: int, state: int, now_s: float) -> None:
        """Counts a machine that changes state; states that are not in `COUNTED` are ignored."""
        if was in self._counts:
            self._counts[was] -= 1
        if state in self._counts:
            self._counts[state] += 1
        self.levels.note(now_s, [*self._counts.values(), self._rate])

    def seconds(self, now_s: float) -> float:
        self.settle(now_s)
        return self._seconds

    def cost(self, now_s: float) -> float:
        self.settle(now_s)
        return self._cost

    def begin(self, now_s: float) -> None:
        """Begins the run: drops the counts so far."""
        self.settle(now_s)
        self._seconds = self._cost = 0.0
        self.most = self.here
        self.created = self.given_back = self.lost = 0


class MachineMeter:
    """Counts machines and dollars by kind of machine."""

    def __init__(self, kinds: list[str]) -> None:
        self.accounts: Final = {kind: MachineAccount() for kind in kinds}

    def begin(self, now_s: float) -> None:
        for account in self.accounts.values():
            account.begin(now_s)

    def move(self, record: Machine, before: Machine | None, now_s: float) -> None:
        """Records a machine's change of state."""
        account = self.accounts[record.shape.instance_type]
        was = before is not None and before.state in PAID
        pays = record.state in PAID
        if was != pays:
            account.change(1 if pays else -1, record.shape.price_per_hour, now_s)
            if pays:
                account.created += 1
            elif record.error:
                account.lost += 1
            else:
                account.given_back += 1
        account.count(before.state if before is not None else NOWHERE, record.state, now_s)

    def forget(self, record: Machine, now_s: float) -> None:
        """Records that a machine is no longer listed."""
        account = self.accounts[record.shape.instance_type]
        if record.state in PAID:
            account.change(-1, record.shape.price_per_hour, now_s)
            account.lost += 1
        account.count(record.state, NOWHERE, now_s)

    def cost(self, now_s: float) -> float:
        return sum([account.cost(now_s) for account in self.accounts.values()])
