"""The controllers on a cluster whose read cache lags: slower, and in the end the same."""

import pytest

from tests.gangs.manifests import workload
from tests.gangs.scenarios.live import Live
from windtunnel.core.loop import Loop
from windtunnel.gangs.controllers.controller import Controller
from windtunnel.twin.kubernetes.driver import Driver


@pytest.mark.parametrize("delay_s", [0.05, 2.0])
def test_a_set_starts_and_survives_a_loss_and_a_restart(delay_s: float) -> None:
    prompt = Live(workload(1), usable=0)
    lagging = Live(workload(1), usable=0)
    lagging.driver.controller.close()
    lagging.driver = Driver(lagging.cluster, Controller, check=True, delay_s=delay_s)
    now_s = lagging.now_s
    lagging.loop = Loop(lagging.driver)
    lagging.loop.run(now_s)
    ends = []
    for live in (prompt, lagging):
        for number in range(10):
            live.cluster.uncordon(f"n{number}", live.now_s)
        live.run(200.0)
        live.cluster.delete_pod(live.pods("pc-a")[0].name, live.now_s)
        live.driver.restart()
        live.run(200.0)
        view = live.view
        ends.append(
            (
                [(one.clique, one.index, one.ready) for one in live.pods()],
                view.sets["web"].status.available,
                sorted((gang.name, gang.phase) for gang in view.gangs.values()),
            )
        )
    assert ends[0] == ends[1]
    assert len(ends[0][0]) == 10
