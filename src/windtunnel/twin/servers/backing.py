"""The port through which replicas are backed by pods and machines."""

from windtunnel.core.loop import Component
from windtunnel.twin.servers.replicas import Pool, Replica


class ReplicaBacking(Component):
    """Makes replicas come and go where they are pods on machines."""

    def wish(self, pool: Pool, replicas: int, now_s: float, reason: str) -> None:
        """A pool should have so many."""
        raise NotImplementedError

    def buried(self, replica: Replica, now_s: float) -> None:
        """A replica is gone: what it stood on is free."""
        raise NotImplementedError

    def crash(self, replica: Replica, now_s: float) -> None:
        """The engine of a replica ends with an error; it is started again where it was."""
        raise NotImplementedError

    def crash_loop(self, replica: Replica, now_s: float) -> str | None:
        """Engines of its clique crash after every start from now on; its name, if it has one."""
        raise NotImplementedError

    def mend(self, pool: str, clique: str, now_s: float) -> None:
        """They no longer do."""
        raise NotImplementedError

    def restart_gangs(self, now_s: float) -> None:
        """The controllers of gangs are lost with all that they knew, and others begin."""
        raise NotImplementedError

    def restart_fleet(self, now_s: float) -> None:
        """The same of who decides about machines."""
        raise NotImplementedError

    @property
    def under_way(self) -> int:
        """What may yet come of itself, with nothing else happening."""
        raise NotImplementedError

    @property
    def gangs_ended(self) -> int:
        """How many were terminated so far."""
        raise NotImplementedError
