"""Ports inside the twin: moving requests, and backing replicas with pods and machines."""

from mypy_extensions import mypyc_attr

from windtunnel.core.loop import Component, SkewedClock
from windtunnel.engine.server import Server
from windtunnel.twin.servers.replicas import Pool, Replica
from windtunnel.workload.request import Request


class RequestPort:
    """What others may do with the requests of a run."""

    def let_in(self, request: Request) -> None:
        raise NotImplementedError

    def turn_away(self, request: Request, reason: str) -> None:
        """Ends a request that waits at the gateway."""
        raise NotImplementedError

    def stop(self, request: Request, reason: str) -> None:
        """Ends a request that was let in."""
        raise NotImplementedError

    def opened(self, model: int) -> None:
        """A server of this model is ready: requests without one are sent."""
        raise NotImplementedError

    def lose(self, server: Server, reason: str) -> None:
        """A server is gone with all that it had: its requests begin anew elsewhere, or end."""
        raise NotImplementedError

    def shed(self, server: Server) -> None:
        """Requests end that can never be served by a server any more, where they are."""
        raise NotImplementedError

    def send_back(self, server: Server, begun: bool) -> None:  # noqa: FBT001 - see below
        """Requests of a server go back to the router; with `begun` those, too, that it computes."""
        raise NotImplementedError

    def gateway_clocks(self) -> list[SkewedClock]:
        """Those of the gateways of all models."""
        raise NotImplementedError

    def wake_gateway(self) -> None:
        """Its clock has changed."""
        raise NotImplementedError

    def stop_gateway(self, on: bool) -> None:  # noqa: FBT001 - see below
        """The gateway ends with all requests, and refuses others until it is on again."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class ReplicaBacking(Component):
    """Makes replicas come and go where they are pods on machines."""

    def wish(self, pool: Pool, replicas: int, now_s: float, reason: str) -> None:
        """Sets the wanted number of replicas of a pool."""
        raise NotImplementedError

    def buried(self, replica: Replica, now_s: float) -> None:
        """A replica is gone: what it stood on is free."""
        raise NotImplementedError

    @property
    def under_way(self) -> int:
        """What may yet come of itself, with nothing else happening."""
        raise NotImplementedError
