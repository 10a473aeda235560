"""The in-flight index: which requests are in the system, where, and which a server's end affects.

When a server drains under the policy `redirect`, requests whose prompt has not been started go back
to the router: they lose nothing. Under `immediate` all go back except those whose last token is on
its way. A request with KV on the way to the server, or already there, has started: under `redirect`
it ends there. When a server is lost, every request linked to it is lost with it.
"""

from typing import Any, Final

from mypy_extensions import i64

from windtunnel.engine.queue import RequestLine
from windtunnel.engine.server import Server
from windtunnel.twin.requests.handoff import Handoff
from windtunnel.workload.request import (
    AT_GATEWAY,
    CLOSING,
    ENDING,
    FETCHING,
    ON_THE_WAY,
    SPLIT,
    UNPLACED,
    UNSET,
    WAITING,
    Request,
)


class InFlight:
    """Requests that have arrived, have not ended, and are not (whole) at a server."""

    def __init__(self, models: int, handoff: Handoff | None) -> None:
        self.elsewhere: Final[dict[int, Request]] = {}  # those not on the way to a server
        self.queued: Final = [0] * models  # by model: at the gateway, or without a server
        self.queued_prompt_tokens: Final = [0] * models
        self._handoff: Final = handoff
        self._coming: Final[list[RequestLine]] = []  # by server: requests on the way to it
        self._coming_count: i64 = 0
        self._linked: Final[dict[int, dict[int, Request]]] = {}  # by server: split requests
        self._servers: Final[dict[int, tuple[int, int]]] = {}  # by request: its linked servers

    def __len__(self) -> int:
        return len(self.elsewhere) + int(self._coming_count)

    def requests(self) -> list[Request]:
        """All of them."""
        found = list(self.elsewhere.values())
        for line in self._coming:
            found += line.requests()
        return found

    def keep(self, request: Request, place: int) -> None:
        """Records where a request is from now on."""
        request.place = place
        if place == ON_THE_WAY:  # nearly all are at some time: nothing is looked up
            while len(self._coming) <= request.server:
                self._coming.append(RequestLine())
            self._coming[request.server].append(request)
            self._coming_count += 1
            return
        number: Any = request.id  # looked up boxed
        assert number not in self.elsewhere
        self.elsewhere[number] = request
        if place in (AT_GATEWAY, UNPLACED):
            self.queued[request.model] += 1
            self.queued_prompt_tokens[request.model] += request.prompt_tokens
        elif place == SPLIT:
            server, other = int(request.server), int(request.prefill_server)
            self._servers[request.id] = (server, other)
            self._link(server, request)
            if other != server:
                self._link(other, request)

    def remove(self, request: Request) -> None:
        """Removes a request that is now at a server, moves elsewhere, or has ended."""
        if request.place == ON_THE_WAY:
            self._coming[request.server].remove(request)
            self._coming_count -= 1
            return
        del self.elsewhere[request.id]
        if request.place in (AT_GATEWAY, UNPLACED):
            self.queued[request.model] -= 1
            self.queued_prompt_tokens[request.model] -= request.prompt_tokens
        elif request.place == SPLIT:
            server, other = self._servers.pop(request.id)
            del self._linked[server][request.id]
            if other != server:
                del self._linked[other][request.id]

    def clear(self) -> None:
        """Removes all requests at the end of a run."""
        for request in self.requests():
            self.remove(request)

    def _link(self, server: int, request: Request) -> None:
        linked = self._linked.get(server)
        if linked is None:
            linked = self._linked[server] = {}
        linked[request.id] = request

    def linked(self, server: int) -> list[Request]:
        """Requests on their way to a server, or split between it and another."""
        return [*self._on_the_way(server), *self._linked.get(server, {}).values()]

    def _on_the_way(self, server: int) -> list[Request]:
        """Requests that were sent to a server but are not in its queue yet."""
        return self._coming[server].requests() if server < len(self._coming) else []

    def redirected(self, server: Server, begun: bool) -> list[Request]:  # noqa: FBT001
        """Requests that go back to the router when a server drains; with `begun`, also started
        ones."""
        found: dict[int, Request] = {}
        for one in server.unfinished():
            if one.stage not in {ENDING, CLOSING} and (begun or _not_begun(one)):
                found[one.id] = one if one.parent is None else one.parent
        for request in self._on_the_way(int(server.index)):
            found[request.id] = request
        for request in self._linked.get(int(server.index), {}).values():
            assert self._handoff is not None
            if begun or _not_begun(self._handoff.splits[request.id].leg):
                found[request.id] = request
        return [found[number] for number in sorted(found)]

    def lost(self, server: Server) -> list[Request]:
        """The whole requests at a server or linked to it, by id."""
        found = dict(self._linked.get(int(server.index), {}))
        for request in self._on_the_way(int(server.index)):
            found[request.id] = request
        for one in server.unfinished():
            found[one.id] = one if one.parent is None else one.parent
        return [found[number] for number in sorted(found)]

    def fault(self) -> str | None:
        """Describes a difference between the index and a scan of all requests; None without one."""
        queued, tokens = [0] * len(self.queued), [0] * len(self.queued)
        linked: dict[int, dict[int, Request]] = {}
        for request in self.requests():
            if request.place in (AT_GATEWAY, UNPLACED):
                queued[request.model] += 1
                tokens[request.model] += request.prompt_tokens
            servers = [int(request.server)] if request.place in (ON_THE_WAY, SPLIT) else []
            if request.place == SPLIT:
                servers.append(int(request.prefill_server))
            for server in servers:
                linked.setdefault(server, {})[request.id] = request
        if (queued, tokens) != (self.queued, self.queued_prompt_tokens):
            return f"{queued} requests with {tokens} tokens are queued, {self.queued} are counted"
        known = {server: dict(found) for server, found in self._linked.items() if found}
        for server, line in enumerate(self._coming):
            for request in line.requests():
                known.setdefault(server, {})[request.id] = request
        if linked != known:
            return f"requests are linked to servers {sorted(linked)}, known of {sorted(known)}"
        return None

    def note_splits(self) -> None:
        """Records the progress of split requests at the end of a run."""
        if self._handoff is not None:
            for request in self.elsewhere.values():
                if request.place == SPLIT:
                    self._handoff.note(request)

    def everywhere(self, servers: list[Server]) -> list[Request]:
        """All whole requests that have arrived and not ended, by id."""
        found = self.requests()
        for server in servers:
            found.extend([one for one in server.unfinished() if one.parent is None])
        found.sort(key=_id_of)
        return found


def _id_of(request: Request) -> int:
    return request.id


def _not_begun(request: Request) -> bool:
    """Whether no part of it was computed: it is on its way, or waits and never ran."""
    if request.place == ON_THE_WAY:
        return True
    return request.stage in {WAITING, FETCHING} and request.scheduled_s == UNSET
