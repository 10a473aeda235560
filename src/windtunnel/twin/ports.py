"""Ports inside the twin: for moving requests, and for backing replicas with pods and machines."""

from mypy_extensions import mypyc_attr

from windtunnel.core.loop import Component, SkewedClock
from windtunnel.engine.server import Server
from windtunnel.twin.servers.replicas import Pool, Replica
from windtunnel.workload.request import Request


class RequestPort:
    """The operations of other components on the requests of a run."""

    def let_in(self, request: Request) -> None:
        raise NotImplementedError

    def turn_away(self, request: Request, reason: str) -> None:
        """Rejects a request that waits at the gateway."""
        raise NotImplementedError

    def stop(self, request: Request, reason: str) -> None:
        """Ends a request that was admitted."""
        raise NotImplementedError

    def opened(self, model: int) -> None:
        """Sends waiting requests after a server of this model has become ready."""
        raise NotImplementedError

    def lose(self, server: Server, reason: str) -> None:
        """Handles the loss of a server: its requests start over elsewhere, or end."""
        raise NotImplementedError

    def shed(self, server: Server) -> None:
        """Ends the requests of a server that it can no longer serve."""
        raise NotImplementedError

    def send_back(self, server: Server, begun: bool) -> None:  # noqa: FBT001 - see below
        """Returns the requests of a server to the router; with `begun`, also those that are
        running."""
        raise NotImplementedError

    def gateway_clocks(self) -> list[SkewedClock]:
        """The clocks of the gateways of all models."""
        raise NotImplementedError

    def wake_gateway(self) -> None:
        """Wakes the gateway after its clock has changed."""
        raise NotImplementedError

    def stop_gateway(self, on: bool) -> None:  # noqa: FBT001 - see below
        """Stops the gateway, ending all requests, or restarts it; it rejects requests in
        between."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class ReplicaBacking(Component):
    """Adds and removes replicas that are pods on machines."""

    def wish(self, pool: Pool, replicas: int, now_s: float, reason: str) -> None:
        """Sets the target number of replicas of a pool."""
        raise NotImplementedError

    def buried(self, replica: Replica, now_s: float) -> None:
        """Frees what a replica ran on, after it is gone."""
        raise NotImplementedError

    @property
    def under_way(self) -> int:
        """The number of changes still to come without any further trigger."""
        raise NotImplementedError
