"""What `windtunnel rehearse` refuses before it starts anything, and what it would inject."""

from __future__ import annotations

from pathlib import Path

import pytest

from windtunnel.cli.main import main

pytest.importorskip("cryptography")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (
            ["examples/rehearse.yaml", "--apiserver", "/nowhere"],
            "--apiserver /nowhere: there is no",
        ),
        (
            ["examples/rehearse.yaml", "--apiserver", "a", "--kubeconfig", "b"],
            "one of them says where the API server is",
        ),
        (["examples/whole-loop.yaml", "--set", "duration=2h"], "a rehearsal is in real time"),
        (["examples/disaggregation.yaml"], "serving.disaggregation: an emulated server does all"),
        (["examples/my_router.yaml"], "a router of your own is not rehearsed"),
        (["examples/rehearse.yaml"], "there is no API server on this machine"),
    ],
)
def test_bad_input_is_a_sentence(
    options: list[str],
    says: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(SystemExit) as left:
        main(["rehearse", *options, "-o", str(tmp_path / "out")])
    assert left.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert says in err
    assert not [one for one in tmp_path.iterdir() if one.name.startswith("windtunnel-rehearse")]
    assert not (tmp_path / "out" / "rehearsal.json").exists()


def test_which_faults_are_injected_and_into_what() -> None:
    from windtunnel.cli.live.rehearsed import RehearsedScenario

    rack = "{at: 2s, kind: rack-loss}"
    restarts = [
        f"{{at: {at}s, kind: controller-restart, controller: {which}}}"
        for at, which in ((3, "gangs"), (4, "gateway"))
    ]
    slow = "{at: 5s, kind: slow-machine, for: 2s}"
    faults = f"faults=[{', '.join([rack, *restarts, slow])}]"
    scenario = RehearsedScenario(Path("examples/rehearse.yaml"), ["duration=8s", faults], None)
    assert "faults that are not injected: controller-restart, slow-machine" in scenario.notes
    scenario.simulated()
    found = scenario.rehearsal().changes.faults
    assert [(one.at_s, one.kind, [*one.subjects]) for one in found] == [
        (2.0, "rack-loss", ["h100-0", "h100-1"]),
        (3.0, "controller-restart", []),
    ]
