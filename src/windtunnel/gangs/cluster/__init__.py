"""A cluster in virtual time: machines, pods that start and end, and the scheduler between them.

`Cluster` has a small face for whoever drives it: `next_s()`, `advance(now_s)`, `apply(commands,
now_s)`, and what happens to machines and pods: `cordon`, `fail`, `crash` and others. `Driver` runs
it with a controller until all is quiet.
"""

from windtunnel.gangs.cluster.cluster import Cluster
from windtunnel.gangs.cluster.driver import Controller, Driver
from windtunnel.gangs.cluster.times import Delay, Times

__all__ = ["Cluster", "Times", "Delay", "Driver", "Controller"]
