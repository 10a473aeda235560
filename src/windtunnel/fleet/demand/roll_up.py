"""The needs of a cluster as its shard knows them: sends changes, or everything if necessary."""

from typing import Final

from windtunnel.fleet.demand.demand import Demand
from windtunnel.fleet.need import Need
from windtunnel.fleet.shard import Shard


class RollUp:
    """The needs that a cluster has sent to a shard."""

    def __init__(self, cluster: str) -> None:
        self._cluster: Final = cluster
        self._needs: Final[dict[str, Need]] = {}  # by row, as sent
        self._resend = True

    def send(self, shard: Shard, demand: Demand) -> None:
        """Sends the shard the changes of the demand since the last call."""
        needs = self._needs
        withdrawn = [needs.pop(row) for row in demand.dropped if row in needs]
        fresh = {name: row.need(self._cluster) for name, row in demand.added.items()}
        folded = any(one.profile.same_key for one in [*withdrawn, *fresh.values()])
        needs.update(fresh)
        demand.added.clear()
        demand.dropped.clear()
        if self._resend or folded or not shard.folds_as_before():
            believed = shard.want(self._cluster, needs.values())
            self._resend = not believed or not shard.is_ready
        elif withdrawn or fresh:
            gone = [one.key() for one in withdrawn]
            self._resend = not shard.revise(self._cluster, fresh.values(), gone)

    def resend(self) -> None:
        """Sends everything next time, since the shard has restarted."""
        self._resend = True
