"""`engine-crash`: engines end at once, with everything on them."""

from typing import Literal

from windtunnel.core.random import Stream
from windtunnel.twin.faults.kind import Injection
from windtunnel.twin.faults.servers import ServerFault, names_of
from windtunnel.twin.faults.world import World


class EngineCrash(ServerFault):
    """Engines end at once, with everything on them; a new server starts in the place of each.

    It is ready after `serving.startup`. What becomes of the requests is said by `serving.retries`.
    """

    kind: Literal["engine-crash"]

    def prepare(self, world: World, stream: Stream) -> Injection:
        servers = self.select.choose(world, stream)
        return Injection(names_of(servers), begin=lambda now_s: world.crash(servers, now_s))
