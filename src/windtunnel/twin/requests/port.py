"""The port through which the gateway and the lifecycle of replicas move requests."""

from windtunnel.engine.server import Server
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
