"""A short campaign finds nothing; what one finds is kept, told and repeated."""

import signal
from pathlib import Path

import pytest

from windtunnel.core.errors import InvariantBroken, OutputError
from windtunnel.core.processes import Died, Processes, Raised, Returned
from windtunnel.fuzz.campaign import Campaign, FuzzFinding, bound_time, examine, look_into
from windtunnel.fuzz.documents import files_in, read_document
from windtunnel.fuzz.draw import draw
from windtunnel.fuzz.trial import Breach, invariant_of

CORPUS = Path(__file__).parent / "corpus"


@pytest.mark.parametrize("first", range(0, 100, 20))
def test_a_short_campaign_finds_nothing(first: int) -> None:
    assert [found for seed in range(first, first + 20) if (found := examine(seed))] == []


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
    campaign.take(4, Died(-9))
    (failure,) = campaign.result()["failures"]
    assert (failure["what"], failure["error"]) == ("died", "the process died: signal 9")
    assert read_document(tmp_path / "4.yaml") == draw(4)


def test_a_corpus_runs_as_it_is(tmp_path: Path) -> None:
    """Neither a file that nobody can read nor one that is refused by now is a failure."""
    for name, text in (("bad", "["), ("refused", "workload: 3")):
        path = tmp_path / f"{name}.yaml"
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


@pytest.mark.once
def test_a_campaign_runs_in_workers(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path / "failures", tmp_path / "corpus")
    heard: list[tuple[int, int]] = []
    campaign.run([0, 1, 2], 2, lambda done, broken: heard.append((done, broken)))
    assert campaign.result() == {"seeds": 3, "broken": 0, "failures": []}
    assert heard == [(1, 0), (2, 0), (3, 0)]
    assert not (tmp_path / "failures").exists()


@pytest.mark.once
@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="the system has no such clock")
def test_code_that_never_comes_back_is_ended(tmp_path: Path) -> None:
    """By the system, in a worker: nobody else could."""
    with Processes(spin, 1) as processes:
        answers = dict(processes.map([1.0, 0.05]))
    assert answers == {0: Returned(value=None), 1: Died(-signal.SIGPROF)}
    campaign = Campaign(tmp_path, tmp_path / "corpus")
    campaign.take(4, Died(-signal.SIGPROF))
    (failure,) = campaign.result()["failures"]
    assert failure["error"].startswith("the process died: a run took 60 s of CPU time")


def spin(limit_s: float) -> None:
    """Never comes back before a short limit, and at once before a long one."""
    bound_time(limit_s)
    while limit_s < 1.0:
        pass
