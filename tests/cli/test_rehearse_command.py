"""What `windtunnel rehearse` refuses before it starts anything."""

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
