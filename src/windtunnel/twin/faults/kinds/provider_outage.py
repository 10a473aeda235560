"""`provider-outage`: the provider of machines does not answer."""

from typing import Literal

from windtunnel.core.random import Stream
from windtunnel.twin.faults.kind import Injection, LastingFault
from windtunnel.twin.faults.machines import MachineFault
from windtunnel.twin.faults.world import World


class ProviderOutage(LastingFault, MachineFault):
    """The provider of machines does not answer: orders are lost, answers come afterwards."""

    kind: Literal["provider-outage"]

    def prepare(self, world: World, stream: Stream) -> Injection:  # noqa: ARG002
        return Injection(
            ["provider"],
            begin=lambda now_s: world.machines.cut_off_provider(1, now_s),
            end=lambda now_s: world.machines.cut_off_provider(-1, now_s),
        )
