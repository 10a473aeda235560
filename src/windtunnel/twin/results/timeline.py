"""Samples a run at even times, for charts: few enough to draw, however long the run.

Sampling starts at a fine interval. Whenever there are twice as many samples as a chart needs, every
second one is dropped and the interval doubles, so a run of any length ends with between SAMPLES and
twice as many, and memory stays bounded without knowing the length beforehand.
"""

from typing import Final

from windtunnel.twin.requests.service import Service, waiting_for_servers, waiting_outside
from windtunnel.twin.results.accounts import Owners
from windtunnel.twin.results.recorder import COMPLETED, DROPPED, REJECTED, TIMED_OUT, Recorder
from windtunnel.twin.servers.cluster import Cluster
from windtunnel.twin.servers.replicas import DRAINING, READY

SAMPLES: Final = 240
FEWEST_SAMPLES: Final = 8
MOST_VALUES: Final = 400_000  # of all servers together: a fleet of thousands is sampled less often
FIRST_INTERVAL_S: Final = 0.25


class Sample:
    """The state of a run at one instant: totals so far, and lists with an entry per server.

    There is an entry for every server that has existed so far; `wanted` is by pool.
    """

    def __init__(
        self, time_s: float, recorder: Recorder, cluster: Cluster, services: list[Service]
    ) -> None:
        servers = cluster.servers
        replicas = cluster.replicas
        network = cluster.network
        self.time_s: Final = time_s
        self.arrived: Final = recorder.arrived
        self.completed: Final = recorder.count(COMPLETED)
        self.rejected: Final = recorder.count(REJECTED)
        self.timed_out: Final = recorder.count(TIMED_OUT)
        self.dropped: Final = recorder.count(DROPPED)
        self.output_tokens: Final = int(recorder.total.output_tokens)
        self.at_gateway = waiting_outside(services)
        self.awaiting_server = waiting_for_servers(services)
        self.in_flight: Final = recorder.arrived - recorder.ended - self.at_gateway
        self.transfers: Final = int(network.active) if network is not None else 0
        self.carried_bytes: Final = network.carried_until(time_s) if network is not None else 0.0
        self.waiting: Final = [int(server.queued) for server in servers]
        self.running: Final = [int(server.running.count) for server in servers]
        self.kv_used: Final = [server.kv_used(time_s) for server in servers]
        self.busy_s: Final = [server.busy_until(time_s) for server in servers]
        self.steps: Final = [int(server.steps_until(time_s)) for server in servers]
        self.states: Final = [int(replica.state) for replica in replicas]
        self.serving = sum([state in (READY, DRAINING) for state in self.states])
        self.paid_s: Final = [replica.paid_s(time_s) for replica in replicas]
        self.wanted: Final = [pool.target for pool in cluster.pools]


class Timeline:
    """The samples of a run. `next_s` is when the next one is due."""

    def __init__(self, owners: Owners) -> None:
        self.samples: list[Sample] = []
        self.owners: Final = owners
        self.interval_s = FIRST_INTERVAL_S
        self.next_s = FIRST_INTERVAL_S

    def take(
        self, until_s: float, recorder: Recorder, cluster: Cluster, services: list[Service]
    ) -> None:
        """Takes the samples due before `until_s`; nothing has changed since the last event."""
        while self.next_s < until_s:
            self.samples.append(Sample(self.next_s, recorder, cluster, services))
            servers = max(1, len(cluster.servers))
            enough = min(SAMPLES, max(FEWEST_SAMPLES, MOST_VALUES // servers))
            if len(self.samples) >= 2 * enough:
                self.samples = self.samples[1::2]
                self.interval_s *= 2
            self.next_s += self.interval_s

    def finish(
        self, end_s: float, recorder: Recorder, cluster: Cluster, services: list[Service]
    ) -> None:
        """Takes the remaining samples at the end of a run, so that the last one is its last
        instant."""
        self.take(end_s, recorder, cluster, services)
        self.samples.append(Sample(end_s, recorder, cluster, services))
