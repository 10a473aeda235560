"""Counts machines and what they cost: each from when it is there until it goes or is lost."""

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
"""States that levels show, in this order; then the dollars an hour of those that are there."""


MOST_LEVELS: Final = 2_000
"""Changes that are written down; of twice as many, every second is forgotten."""


class Levels:
    """Numbers that go together, from when they were so."""

    def __init__(self) -> None:
        self.rows: list[list[float]] = []
        """Every change, as when and what."""

    def note(self, now_s: float, values: Sequence[float]) -> None:
        """From now on it is so; what was noted at the same instant never was."""
        rows = self.rows
        if rows and rows[-1][0] == now_s:
            rows.pop()
        if rows and rows[-1][1:] == list(values):
            return
        rows.append([now_s, *values])
        if len(rows) >= 2 * MOST_LEVELS:
            self.rows = rows[:1] + rows[2::2]


class MachineAccount:
    """Machines of one kind."""

    def __init__(self) -> None:
        self.here = 0
        self.most = 0
        self.created = 0
        self.given_back = 0
        self.lost = 0
        self._seconds = 0.0
        self._cost = 0.0
        self._rate = 0.0  # dollars an hour of those that are here
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
        """A machine is in another state; other states than those that are counted are none."""
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
        """The run begins: what was counted before is dropped."""
        self.settle(now_s)
        self._seconds = self._cost = 0.0
        self.most = self.here
        self.created = self.given_back = self.lost = 0


class MachineMeter:
    """Counts machines and dollars, by the kind of machine."""

    def __init__(self, kinds: list[str]) -> None:
        self.accounts: Final = {kind: MachineAccount() for kind in kinds}

    def begin(self, now_s: float) -> None:
        for account in self.accounts.values():
            account.begin(now_s)

    def move(self, record: Machine, before: Machine | None, now_s: float) -> None:
        """A machine is in another state."""
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
        """A machine is not listed any more."""
        account = self.accounts[record.shape.instance_type]
        if record.state in PAID:
            account.change(-1, record.shape.price_per_hour, now_s)
            account.lost += 1
        account.count(record.state, NOWHERE, now_s)

    def cost(self, now_s: float) -> float:
        return sum([account.cost(now_s) for account in self.accounts.values()])
