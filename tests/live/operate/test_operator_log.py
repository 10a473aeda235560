"""The event log of the operator: no secrets, and neither lost by a restart nor without bound."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from windtunnel.core.errors import OutputError
from windtunnel.gangs.kubernetes.calls import CREATE, ApiCall
from windtunnel.gangs.objects import POD
from windtunnel.live.kubernetes.resources import Meta
from windtunnel.live.operate import program
from windtunnel.live.operate.program import OperatorOptions, OperatorProgram
from windtunnel.live.operate.received import Received
from windtunnel.live.rotation import LogLimits

SECRET = "hf_abcdef"
SPEC = {
    "containers": [
        {
            "name": "c",
            "env": [
                {"name": "TOKEN", "value": SECRET},
                {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
            ],
        }
    ]
}


def test_values_of_environment_variables_are_not_logged(tmp_path: Path) -> None:
    log = tmp_path / "log"
    operator = OperatorProgram(OperatorOptions(log=log))
    assert operator._log_file is not None
    operator._log_file.open()
    applied = {"kubectl.kubernetes.io/last-applied-configuration": f"{{{SECRET}}}"}
    operator._received(POD, "p", Received(metadata=Meta(name="p", annotations=applied), spec=SPEC))
    operator._decided(0.0, [ApiCall(CREATE, POD, "p", (), {"spec": SPEC})])
    operator._log_file.close()
    written = log.read_text()
    assert written.count("TOKEN") == written.count("secretKeyRef") == 2
    assert SECRET not in written
    assert SPEC["containers"][0]["env"][0]["value"] == SECRET  # type: ignore[index]


def test_a_restart_and_a_full_log_keep_the_log_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "LOG_LIMITS", LogLimits(400, keep=2))
    path = tmp_path / "log"
    for image in ("first", "second", "third"):
        operator = OperatorProgram(OperatorOptions(log=path, init_image=image))
        log = operator._log_file
        assert log is not None
        log.open()
        if image != "third":
            log.close()
    assert log is not None
    starts = [json.loads(line)["data"]["init_image"] for line in path.read_text().splitlines()]
    assert starts == ["first", "second", "third"]
    other = OperatorProgram(OperatorOptions(log=path))._log_file
    assert other is not None
    with pytest.raises(OutputError, match="another process writes this event log"):
        other.open()
    other.close()
    for number in range(50):
        log.record(0.0, "object.gone", f"Pod {number}", "", {})
        operator._flush_log()
    log.record(0.0, "object.gone", "Pod last", "", {})
    log.close()
    assert path.read_bytes().startswith(b'{"time":0.0,"kind":"operator.started"')
    assert b"Pod last" in path.read_bytes()
    files = {one.name: one.stat().st_size for one in tmp_path.iterdir()}
    assert set(files) == {"log", "log.1", "log.2"}, "the oldest are deleted"
    assert max(files.values()) <= 500
    assert log.lost == 0


def test_a_full_log_goes_on_while_orders_await_their_outcomes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "LOG_LIMITS", LogLimits(400, keep=2))
    operator = OperatorProgram(OperatorOptions(log=tmp_path / "log"))
    operator.scaling = SimpleNamespace(core=SimpleNamespace(awaits_outcomes=True))  # type: ignore[assignment]
    log = operator._log_file
    assert log is not None
    log.open()
    for number in range(100):
        log.record(0.0, "object.gone", f"Pod {number}", "", {})
        operator._flush_log()
    log.close()
    files = {one.name: one.stat().st_size for one in tmp_path.iterdir()}
    assert set(files) == {"log", "log.1", "log.2"}
    assert max(files.values()) <= 2 * 400 + 100
