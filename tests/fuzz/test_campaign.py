"""A short campaign finds nothing; what one finds is kept, told and repeated."""

import gc
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from windtunnel.core.errors import InvariantBroken, OutputError
from windtunnel.core.system.processes import Died, Processes, Raised, Returned
from windtunnel.fuzz import worker
from windtunnel.fuzz.campaign import Campaign, FuzzFinding, Revisit, examine, look_into
from windtunnel.fuzz.documents import files_in, read_document
from windtunnel.fuzz.draw import draw
from windtunnel.fuzz.trial import Breach, TookTooLong, invariant_of
from windtunnel.fuzz.worker import attempt_apart, bounded_time

CORPUS = Path(__file__).parent / "corpus"


@pytest.mark.parametrize("first", range(0, 100, 20))
def test_a_short_campaign_finds_nothing(first: int) -> None:
    assert [found for seed in range(first, first + 20) if (found := examine(seed))] == []


def test_examining_a_seed_leaves_the_collection_of_garbage_as_it_was() -> None:
    assert gc.isenabled()
    assert examine(1) is None
    assert gc.isenabled()


FRESH = 200
"""Seeds of scenarios that nobody has seen: they follow from the commit, as all chance in tests."""


@pytest.mark.long
@pytest.mark.parametrize("part", range(10))
def test_fresh_scenarios_break_nothing(part: int, request: pytest.FixtureRequest) -> None:
    commit = int(request.config.getoption("--hypothesis-seed") or 0)
    first = 10**6 + commit * FRESH + part * FRESH // 10
    assert [found for seed in range(first, first + FRESH // 10) if (found := examine(seed))] == []


@pytest.mark.parametrize("path", files_in(CORPUS), ids=lambda path: path.stem)
def test_what_failed_once_does_not_fail_again(path: Path) -> None:
    assert look_into(str(path)) is None


BREACH = Breach("invariant", "sums-match", "here: invariant 'sums-match' is broken")


def test_a_failure_is_written_told_and_kept(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path / "failures", tmp_path / "corpus")
    campaign.take(7, Returned(None))
    campaign.take(8, Returned(FuzzFinding(8, BREACH, draw(8))))
    file = tmp_path / "failures" / "8.yaml"
    assert campaign.result() == {
        "seeds": 2,
        "broken": 1,
        "failures": [
            {
                "seed": 8,
                "what": "invariant",
                "invariant": "sums-match",
                "error": "here: invariant 'sums-match' is broken",
                "file": str(file),
                "command": f"windtunnel simulate {file} --check --seed 8",
            }
        ],
    }
    assert file.read_text().startswith("# invariant: sums-match\n# here: ")
    assert read_document(file) == draw(8)
    assert [path.name for path in files_in(tmp_path / "corpus")] == ["8.yaml"]


def test_failures_are_in_the_order_of_their_seeds(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path, tmp_path / "corpus")
    old = tmp_path / "old.yaml"
    campaign.take(8, Returned(FuzzFinding(8, BREACH, {})))
    campaign.take(str(old), Returned(FuzzFinding(str(old), BREACH, {"seed": 5})))
    campaign.take(9, Returned(None))
    campaign.take(2, Returned(FuzzFinding(2, BREACH, {})))
    result = campaign.result()
    assert [failure["seed"] for failure in result["failures"]] == [5, 2, 8]
    assert (result["seeds"], result["broken"]) == (3, 3)


def test_a_worker_that_died_is_a_failure(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path, tmp_path / "corpus")
    again = campaign.take(4, Died(-9))
    (failure,) = campaign.result()["failures"]
    assert (failure["what"], failure["error"]) == ("died", "the process died: SIGKILL")
    assert read_document(tmp_path / "4.yaml") == draw(4)
    assert again == Revisit(4, -9)
    assert campaign.take(again, Died(-9)) is None
    campaign.take(again, Returned(FuzzFinding(4, BREACH, {"seed": 4})))
    (failure,) = campaign.result()["failures"]
    assert (failure["what"], campaign.result()["seeds"]) == ("invariant", 1)


def test_a_corpus_runs_as_it_is(tmp_path: Path) -> None:
    """Neither a file that nobody can read nor one that is refused by now is a failure."""
    refused = ("[", "workload: 3", "workload: [{trace: {path: 3}}]", "gangs: {manifests: [{}]}")
    for number, text in enumerate(refused):
        path = tmp_path / f"{number}.yaml"
        path.write_text(text)
        assert look_into(str(path)) is None
    assert files_in(tmp_path / "none") == []


def test_a_campaign_survives_a_fault_of_the_fuzzer(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path, tmp_path / "corpus")
    campaign.take(4, Raised(ZeroDivisionError("division by zero")))
    campaign.take(5, Returned(None))
    (failure,) = campaign.result()["failures"]
    assert (failure["seed"], failure["what"]) == (4, "error")
    assert "ZeroDivisionError" in failure["error"]
    with pytest.raises(OutputError):
        campaign.take(6, Raised(OutputError("cannot write a failure: no space left")))


def test_an_invariant_without_a_name_is_a_finding_like_others() -> None:
    told = [InvariantBroken(f"the cluster never has enough at {at} s") for at in (34.19, 7)]
    assert len({invariant_of(one) for one in told}) == 1
    assert invariant_of(InvariantBroken("here: invariant 'sums-match' is broken")) == "sums-match"


def test_the_command_of_a_file_without_a_seed_has_none(tmp_path: Path) -> None:
    campaign, file = Campaign(tmp_path, tmp_path), tmp_path / "of old.yaml"
    campaign.take(str(file), Returned(FuzzFinding(str(file), BREACH, {})))
    (failure,) = campaign.result()["failures"]
    assert failure["command"] == f"windtunnel simulate '{file}' --check"


def test_the_command_of_a_livelock_has_the_limits_of_its_trial(tmp_path: Path) -> None:
    campaign, breach = Campaign(tmp_path, tmp_path), Breach("endless", "progress.resizes", "it is")
    document = {"seed": 3, "progress": {"resizes": 100, "idle": 2000}}
    campaign.take("old.yaml", Returned(FuzzFinding("old.yaml", breach, document)))
    (failure,) = campaign.result()["failures"]
    limits = "--set progress.restarts=100 --set progress.resizes=100 --set progress.events=50000"
    assert failure["command"] == f"windtunnel simulate old.yaml --check --seed 3 {limits}"


@pytest.mark.once
def test_a_campaign_runs_in_workers(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path / "failures", tmp_path / "corpus")
    heard: list[tuple[int, int]] = []
    campaign.run([0, 1, 2], 2, lambda done, broken: heard.append((done, broken)))
    assert campaign.result() == {"seeds": 3, "broken": 0, "failures": []}
    assert heard == [(1, 0), (2, 0), (3, 0)]
    assert not (tmp_path / "failures").exists()


FORKS = pytest.mark.skipif(not worker.CAN_FORK, reason="processes cannot be forked here")


def killer(document: dict[str, Any], **_: object) -> Breach | None:
    """Ends its process where two pools are there."""
    if len(document["serving"]["pools"]) > 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return None


@FORKS
@pytest.mark.once
def test_what_ends_its_process_is_made_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "attempt", killer)
    seed = next(seed for seed in range(100) if len(draw(seed)["serving"]["pools"]) > 1)
    found = look_into(Revisit(seed, -9))
    assert found is not None
    assert found.breach == Breach("died", "SIGKILL", "the process died: SIGKILL")
    assert set(found.document) == {"name", "seed", "serving"}


@FORKS
@pytest.mark.once
def test_a_worker_that_was_ended_from_outside_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "attempt", lambda *_, **__: None)
    found = look_into(Revisit(1, -9))
    assert found is not None
    assert found.breach.sentence == "the process died: SIGKILL; it passes when run alone"


@FORKS
def test_a_run_in_a_process_of_its_own_says_the_same() -> None:
    assert attempt_apart(draw(1)) is None
    breach = attempt_apart({"seed": 1})
    assert breach is not None
    assert breach.what == "refused"


@pytest.mark.once
def test_a_campaign_goes_on_after_a_worker_has_died(tmp_path: Path) -> None:
    """Seed 4 ends its worker; it is looked at again, and the others are done."""
    campaign = Campaign(tmp_path / "failures", tmp_path / "corpus")
    done: list[int] = []
    with Processes(die_at_four, 2) as processes:
        for number, answer in processes.map(range(8)):
            campaign.take(number, answer)
            done.append(number)
    assert sorted(done) == list(range(8))
    assert [failure["seed"] for failure in campaign.result()["failures"]] == [4]


def die_at_four(seed: int) -> FuzzFinding | None:
    if seed == 4:
        os.kill(os.getpid(), signal.SIGKILL)
    return None


@pytest.mark.once
@pytest.mark.skipif(
    not Path("/proc/self/statm").exists(), reason="the size of a process is unknown"
)
def test_a_worker_that_wants_too_much_memory_lives() -> None:
    with Processes(want_memory, 1) as processes:
        answers = dict(processes.map([1, 64]))
    assert answers == {0: Returned(value="enough"), 1: Returned(value="MemoryError")}


def want_memory(gib: int) -> str:
    worker.bound_memory()
    try:
        return "enough" if bytearray(gib << 30) else ""
    except MemoryError:
        return "MemoryError"


CLOCKED = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no such clock here")


@CLOCKED
def test_a_run_that_takes_too_long_is_interrupted() -> None:
    with pytest.raises(TookTooLong):
        for_ever(0.05)


def for_ever(limit_s: float) -> None:
    with bounded_time(limit_s):
        while True:
            pass


@CLOCKED
@pytest.mark.once
def test_code_that_hears_no_signal_is_ended(tmp_path: Path) -> None:
    """By the system, in a worker: nobody else could."""
    with Processes(spin, 1) as processes:
        answers = dict(processes.map([10.0, 0.05]))
    assert answers == {0: Returned(value=None), 1: Died(-signal.SIGVTALRM)}
    campaign = Campaign(tmp_path, tmp_path / "corpus")
    campaign.take(4, Died(-signal.SIGVTALRM))
    (failure,) = campaign.result()["failures"]
    assert failure["error"] == "the process died: a run took 120 s of CPU time, and was ended"


def spin(limit_s: float) -> None:
    """Never comes back before a short limit, whatever it hears, and at once before a long one."""
    with bounded_time(limit_s):
        while limit_s < 1.0:
            try:
                while True:
                    pass
            except TookTooLong:
                pass
