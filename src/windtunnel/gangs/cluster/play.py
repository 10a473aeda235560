"""Plays manifests through on a described cluster, up to a time or until nothing more happens."""

from typing import Final

from windtunnel.gangs.api.load import Manifests
from windtunnel.gangs.cluster.build import build, happen
from windtunnel.gangs.cluster.driver import Driver
from windtunnel.gangs.cluster.spec import ClusterSpec
from windtunnel.gangs.controller import Controller

LONGEST_S: Final = 7 * 86_400.0
"""A run without an end stops here, such as one whose containers crash for ever."""


def play(
    spec: ClusterSpec,
    manifests: Manifests,
    *,
    at_s: float | None = None,
    seed: int = 0,
    check: bool = False,
) -> Driver:
    """The cluster as it is at a time; by default when all is quiet, or after a week."""
    driver = Driver(build(spec, manifests, seed=seed), Controller, check=check)
    end_s = LONGEST_S if at_s is None else at_s
    for happening in sorted(spec.happens, key=lambda happening: happening.at):
        if happening.at > end_s:
            break
        driver.run(happening.at)
        happen(driver.cluster, happening, driver.now_s)
    driver.settle()
    while driver.next_s() <= end_s and driver.step():
        pass
    if at_s is not None:
        driver.run(at_s)
    return driver
