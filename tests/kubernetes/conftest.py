"""Fixtures for a real API server: a control plane or a cluster, and a namespace for each test.

These tests run if `WINDTUNNEL_KUBERNETES` is set, as by `make test-kubernetes`; other test runs
leave them out. A coroutine test gets its `cluster` with a client in its own event loop.
"""

import asyncio
import inspect
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kubernetes.cluster import open_cluster
from tests.kubernetes.control_plane import StageControlPlane, build, why_not
from windtunnel.live.system import new_loop

HERE = Path(__file__).parent


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    ours = [item for item in items if HERE in item.path.parents]
    for item in ours:
        # A connection that is cancelled in its TLS handshake is closed when it is collected.
        item.add_marker(
            pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
        )
    if ours and not os.environ.get("WINDTUNNEL_KUBERNETES"):
        config.hook.pytest_deselected(items=ours)
        items[:] = [item for item in items if HERE not in item.path.parents]


@pytest.fixture(scope="session")
def control_plane(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[StageControlPlane | None]:
    """The control plane that the tests started; None if KUBECONFIG names another."""
    if os.environ.get("KUBECONFIG"):
        yield None
        return
    if reason := why_not():
        pytest.skip(reason)
    with StageControlPlane(tmp_path_factory.mktemp("control-plane"), build()) as plane:
        yield plane


@pytest.fixture
def cluster(control_plane: StageControlPlane | None) -> StageControlPlane | None:
    """A coroutine test gets a `Cluster` in its place when it runs."""
    if control_plane is not None:
        control_plane.check()
    return control_plane


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    arguments: dict[str, Any] = {name: pyfuncitem.funcargs[name] for name in names}

    async def run() -> None:
        async with open_cluster(arguments.pop("cluster")) as cluster:
            await pyfuncitem.obj(cluster=cluster, **arguments)

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(run())
    return True
