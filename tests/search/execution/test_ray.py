"""Points on Ray: the figures of this machine, whoever computes them, and sentences when none can.

Most of it is held against a stand-in with Ray's few functions; one test needs the real thing.
"""

import importlib.util
import socket
import sys
from pathlib import Path

import pytest

from tests.search.execution.fake_ray import FakeRay, NodeDiedError, RayError, WorkerCrashedError
from tests.search.execution.test_workers import DYING, evaluate
from tests.twin.runs import BUSY, one_server
from windtunnel.core.errors import WindtunnelError
from windtunnel.core.system.extras import install_command
from windtunnel.search.execution import ray_cluster
from windtunnel.search.execution.cache import Cache
from windtunnel.search.execution.workers import FailedRun, MeasuredRun, Workers
from windtunnel.search.point import Origin
from windtunnel.twin.scenario.plan import ScenarioPlan


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> FakeRay:
    fake = FakeRay()
    monkeypatch.setitem(sys.modules, "ray", fake)
    return fake


@pytest.fixture(scope="module")
def plans() -> list[ScenarioPlan]:
    origin = Origin(BUSY, "busy.yaml", ["duration=100ms"])
    return [origin.plan(seed=seed) for seed in range(8)]


def test_the_figures_are_those_of_this_machine(ray: FakeRay, plans: list[ScenarioPlan]) -> None:
    there = list(evaluate(plans, on="ray", jobs=2))
    here = list(evaluate(plans, jobs=1))
    assert [number for number, _ in there] != [number for number, _ in here]
    assert sorted(there) == here
    assert (ray.inits[0]["address"], ray.inits[0]["num_cpus"]) == ("local", 2)
    assert ray.options == {"num_cpus": 1, "max_retries": 3}
    assert ray.most_flying == 2
    assert not ray.connected


def test_a_cluster_gets_twice_as_many_runs_as_it_has_processors(
    ray: FakeRay, plans: list[ScenarioPlan]
) -> None:
    list(evaluate(plans, on="auto"))
    assert ray.inits[0]["address"] == "auto"
    assert ray.most_flying == 6


def test_runs_there_end_at_the_memory_ceiling(ray: FakeRay, plans: list[ScenarioPlan]) -> None:
    ceilings: list[tuple[int | None, int]] = []

    def seen(code: str, plan: ScenarioPlan, memory_bytes: int | None, processes: int) -> None:
        ceilings.append((memory_bytes, processes))

    ray.fails = seen
    longer = [plan.changed(duration_s=20.0) for plan in plans[:2]]
    outcomes = [one for _, one in evaluate(longer, on="auto", memory_bytes=2 << 20)]
    assert ceilings == [(2 << 20, 2)] * 2  # two run at once on the widest machine
    for outcome in outcomes:
        assert isinstance(outcome, FailedRun)
        assert "the memory ceiling of 1 MiB was reached" in outcome.sentence
    list(evaluate(plans[:1], on="auto", jobs=1))
    assert ceilings[2:] == [(None, 1)]


def test_a_ray_that_was_connected_before_stays_so(ray: FakeRay, plans: list[ScenarioPlan]) -> None:
    ray.connected = True
    assert len(list(evaluate(plans[:1], on="ray"))) == 1
    assert ray.connected
    assert ray.inits == []


@pytest.mark.parametrize("error", [WorkerCrashedError("x"), NodeDiedError("x")])
def test_a_worker_that_dies_again_and_again_fails_its_point(
    ray: FakeRay, plans: list[ScenarioPlan], error: Exception
) -> None:
    ray.fails = lambda _, plan, *__: error if plan.seed == 1 else None
    outcomes = dict(evaluate(plans[:3], on="ray"))
    assert [type(outcomes[number]) for number in range(3)] == [MeasuredRun, FailedRun, MeasuredRun]
    failed = outcomes[1]
    assert isinstance(failed, FailedRun)
    assert "died during the run, 4 times" in failed.sentence


def test_what_is_cached_is_not_sent(
    ray: FakeRay, plans: list[ScenarioPlan], tmp_path: Path
) -> None:
    cache = Cache(tmp_path)
    list(evaluate(plans[:3], jobs=1, cache=cache))
    ray.fails = lambda _, plan, *__: RayError("sent") if plan.seed < 3 else None
    assert len(list(evaluate(plans[:4], on="ray", cache=cache))) == 4


def test_who_stops_listening_cancels_the_rest(ray: FakeRay, plans: list[ScenarioPlan]) -> None:
    with Workers(on="ray", jobs=4) as workers:
        answers = workers.evaluate(plans)
        next(answers)
        answers.close()  # type: ignore[attr-defined]
    assert ray.cancelled == 3


def test_other_code_on_the_cluster_is_refused(
    ray: FakeRay, plans: list[ScenarioPlan], monkeypatch: pytest.MonkeyPatch
) -> None:
    digests = iter(["a" * 64, "b" * 64])
    monkeypatch.setattr(ray_cluster, "code_digest", lambda: next(digests))
    with pytest.raises(WindtunnelError) as raised:
        list(evaluate(plans[:1], on="auto"))
    said = str(raised.value)
    assert said.startswith("--on auto: the cluster has different Windtunnel code")
    assert "aaaaaaaaaaaa here, bbbbbbbbbbbb there" in said


def test_a_cluster_without_windtunnel_is_a_sentence(
    ray: FakeRay, plans: list[ScenarioPlan]
) -> None:
    ray.fails = lambda *_: RayError("Traceback\nModuleNotFoundError: No module named 'windtunnel'")
    with pytest.raises(WindtunnelError) as raised:
        list(evaluate(plans[:1], on="auto"))
    said = str(raised.value)
    assert "the cluster cannot run points: ModuleNotFoundError: No module named" in said
    assert "every machine of the cluster needs windtunnel" in said


def test_no_ray_to_connect_to_is_a_sentence(ray: FakeRay) -> None:
    ray.refuses = ConnectionError("nothing runs here\nat all")
    with pytest.raises(WindtunnelError) as raised, Workers(on="auto"):
        pass
    assert str(raised.value).startswith(
        "--on auto: no running Ray was found: nothing runs here (`ray start --head`"
    )


def test_a_ray_that_does_not_start_is_a_sentence(ray: FakeRay) -> None:
    ray.refuses = RuntimeError("The current node timed out during startup.\nSee the logs.")
    with pytest.raises(WindtunnelError) as raised, Workers(on="ray"):
        pass
    assert str(raised.value).startswith(
        "--on ray: Ray did not start: The current node timed out during startup (its logs say"
    )


def known(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Makes the libraries that Ray needs be there, or not."""
    real = importlib.util.find_spec
    found = {name: real("json") if name in names else None for name in ("ray", "grpc")}
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: found[name] if name in found else real(name)
    )


@pytest.mark.parametrize(
    ("on", "there"), [("ray", ()), ("auto", ()), ("ray://there:1", ()), ("ray://there:1", ("ray",))]
)
def test_without_ray_the_line_that_installs_it(
    on: str, there: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    known(monkeypatch, *there)
    with pytest.raises(WindtunnelError) as raised:
        Workers(on=on)
    says = f"--on {on}: Ray is not installed ({install_command('ray')})"
    assert str(raised.value) == says


@pytest.mark.parametrize("on", ["rai", "", "127.0.0.1:6379"])
def test_a_place_that_is_none(on: str) -> None:
    with pytest.raises(WindtunnelError, match="is not a place to run; allowed: local, ray"):
        Workers(on=on)


def test_an_unreachable_cluster_is_a_sentence_and_ray_is_not_asked(
    ray: FakeRay, monkeypatch: pytest.MonkeyPatch
) -> None:
    known(monkeypatch, "ray", "grpc")
    with socket.socket() as bound:  # bound and not listening: nobody else takes the port
        bound.bind(("127.0.0.1", 0))
        on = f"ray://127.0.0.1:{bound.getsockname()[1]}"
        with pytest.raises(WindtunnelError) as raised, Workers(on=on):
            pass
    assert str(raised.value).startswith(f"--on {on}: the cluster cannot be reached: ")
    assert ray.inits == []
    for wrong in ("ray://", "ray://:9", "ray://there:port"):
        with pytest.raises(WindtunnelError, match="this is not an address"), Workers(on=wrong):
            pass


def test_a_cluster_that_lets_nobody_in_is_told_from_none(
    ray: FakeRay, monkeypatch: pytest.MonkeyPatch
) -> None:
    known(monkeypatch, "ray", "grpc")
    ray.refuses = ConnectionError("timeout")
    with socket.create_server(("127.0.0.1", 0)) as server:
        on = f"ray://127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(WindtunnelError) as raised, Workers(on=on):
            pass
    assert "the cluster answers, but refuses the connection: timeout" in str(raised.value)
    assert "RAY_AUTH_TOKEN" in str(raised.value)


@pytest.mark.xdist_group("workers")
@pytest.mark.filterwarnings("ignore")
def test_a_real_ray_gives_the_same_and_outlives_a_worker(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="Ray is not installed")
    (tmp_path / "a_dying_router.py").write_text(DYING)
    origin = Origin(one_server(count=3), str(tmp_path / "one.yaml"))
    policies = ("round-robin", "a_dying_router:Dies", "random")
    plans = [origin.plan((("serving.router.policy", policy),)) for policy in policies]
    there = dict(evaluate(plans, on="ray", jobs=1))
    here = dict(evaluate([plans[0], plans[2]], jobs=1))
    assert [there[0], there[2]] == [here[0], here[1]]
    failed = there[1]
    assert isinstance(failed, FailedRun)
    assert "died during the run, 4 times" in failed.sentence
