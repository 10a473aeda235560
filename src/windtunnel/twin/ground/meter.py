"""What machines cost: each from when it is there until it is given back or lost."""

from typing import Final

from windtunnel.fleet.machine import Machine
from windtunnel.fleet.states import CONFIGURED, CONFIGURING, DELETING, DRAINING, IDLE

PAID: Final = (IDLE, CONFIGURING, CONFIGURED, DRAINING, DELETING)
AN_HOUR_S: Final = 3600.0


class Account:
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

    def seconds(self, now_s: float) -> float:
        self.settle(now_s)
        return self._seconds

    def cost(self, now_s: float) -> float:
        self.settle(now_s)
        return self._cost

    def begin(self, now_s: float) -> None:
        """The run begins: what was before is nobody's."""
        self.settle(now_s)
        self._seconds = self._cost = 0.0
        self.most = self.here
        self.created = self.given_back = self.lost = 0


class Meter:
    """Counts machines and dollars, by the kind of machine."""

    def __init__(self, kinds: list[str]) -> None:
        self.accounts: Final = {kind: Account() for kind in kinds}

    def begin(self, now_s: float) -> None:
        for account in self.accounts.values():
            account.begin(now_s)

    def move(self, record: Machine, before: Machine | None, now_s: float) -> None:
        """A machine is in another state."""
        was = before is not None and before.state in PAID
        pays = record.state in PAID
        if was == pays:
            return
        account = self.accounts[record.shape.instance_type]
        account.change(1 if pays else -1, record.shape.price_per_hour, now_s)
        if pays:
            account.created += 1
        elif record.error:
            account.lost += 1
        else:
            account.given_back += 1

    def forget(self, record: Machine, now_s: float) -> None:
        """A machine is not listed any more."""
        if record.state in PAID:
            account = self.accounts[record.shape.instance_type]
            account.change(-1, record.shape.price_per_hour, now_s)
            account.lost += 1

    def cost(self, now_s: float) -> float:
        return sum([account.cost(now_s) for account in self.accounts.values()])
