"""Samples of runs that never were, for tests of what is read from them."""

from windtunnel.twin.results.accounts import RecordNames
from windtunnel.twin.results.recorder import Recorder
from windtunnel.twin.results.timeline import Sample
from windtunnel.twin.servers.cluster import Cluster


def sample(
    time_s: float,
    waiting: list[int],
    running: list[int],
    kv_used: float = 0.5,
    arrived: int = 0,
) -> Sample:
    """The state of servers at one instant; whoever waits or runs is inside, and nobody else."""
    recorder = Recorder(RecordNames([], [], [], []), {}, [], None)
    recorder.total.requests = arrived
    recorder.total.completed = arrived - sum(waiting) - sum(running)
    made = Sample(time_s, recorder, Cluster([], None, 0.0), [])
    made.waiting.extend(waiting)
    made.running.extend(running)
    made.kv_used.extend(kv_used for _ in waiting)
    made.serving = len(waiting)
    return made
