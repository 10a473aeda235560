"""Which requests are inside a run at all, and whom it concerns when a server is to go or is lost.

Under the policy `redirect` those whose prompt nobody has begun to compute: they lose nothing. Under
`immediate` all but those whose last token is on its way. Whoever has KV on the way to the server,
or there already, has begun: under `redirect` it ends there. With a server that is lost, all that
had anything to do with it are.
"""

from windtunnel.engine.server import Server
from windtunnel.twin.handoff import Handoff
from windtunnel.twin.places import ON_THE_WAY, SPLIT
from windtunnel.workload.request import CLOSING, ENDING, FETCHING, UNSET, WAITING, Request


def who_goes_back(
    server: Server,
    elsewhere: dict[int, Request],
    handoff: Handoff | None,
    begun: bool,  # noqa: FBT001 - whether those go, too, whose prompt was begun
) -> list[Request]:
    """Whole requests, by number, that have to do with a server."""
    here = server.index
    found: dict[int, Request] = {}
    for one in server.unfinished():
        if one.stage not in {ENDING, CLOSING} and (begun or _only_waits(one)):
            found[one.id] = one if one.parent is None else one.parent
    for request in elsewhere.values():
        if request.place == ON_THE_WAY and request.server == here:
            found[request.id] = request
        elif request.place == SPLIT:
            assert handoff is not None
            leg = handoff.splits[request.id].leg
            if here in (request.server, leg.server) and (begun or _only_waits(leg)):
                found[request.id] = request
    return [found[number] for number in sorted(found)]


def who_is_lost(
    server: Server, elsewhere: dict[int, Request], handoff: Handoff | None
) -> list[Request]:
    """Whole requests, by number, that have anything to do with a server that is lost."""
    here = server.index
    found: dict[int, Request] = {}
    for one in server.unfinished():
        found[one.id] = one if one.parent is None else one.parent
    for request in elsewhere.values():
        if request.place == ON_THE_WAY and request.server == here:
            found[request.id] = request
        elif request.place == SPLIT:
            assert handoff is not None
            if here in (request.server, handoff.splits[request.id].leg.server):
                found[request.id] = request
    return [found[number] for number in sorted(found)]


def all_inside(
    servers: list[Server], elsewhere: dict[int, Request], handoff: Handoff | None
) -> list[Request]:
    """Every whole request that has arrived and not ended, by number."""
    found = list(elsewhere.values())
    if handoff is not None:
        for request in found:
            if request.place == SPLIT:
                handoff.note(request)
    for server in servers:
        found.extend([one for one in server.unfinished() if one.parent is None])
    found.sort(key=_number)
    return found


def _number(request: Request) -> int:
    return request.id


def _only_waits(request: Request) -> bool:
    """Whether nothing of it was computed: it is on its way, or waits and never ran."""
    if request.place == ON_THE_WAY:
        return True
    return request.stage in {WAITING, FETCHING} and request.scheduled_s == UNSET
