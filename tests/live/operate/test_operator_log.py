"""The event log of the operator: no secrets, and neither lost by a restart nor without bound."""

from pathlib import Path

from windtunnel.gangs.kubernetes.calls import CREATE, ApiCall
from windtunnel.gangs.objects import POD
from windtunnel.live.gateway.event_log import EventLogFile
from windtunnel.live.kubernetes.resources import Meta
from windtunnel.live.operate.mirror import Received
from windtunnel.live.operate.program import OperatorOptions, Program

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
    program = Program(OperatorOptions(log=log))
    applied = {"kubectl.kubernetes.io/last-applied-configuration": f"{{{SECRET}}}"}
    program._received(POD, "p", Received(metadata=Meta(name="p", annotations=applied), spec=SPEC))
    program._decided(0.0, [ApiCall(CREATE, POD, "p", (), {"spec": SPEC})])
    assert program._log_file is not None
    program._log_file.close()
    written = log.read_text()
    assert written.count("TOKEN") == written.count("secretKeyRef") == 2
    assert SECRET not in written
    assert SPEC["containers"][0]["env"][0]["value"] == SECRET  # type: ignore[index]


def test_a_restart_and_a_full_log_keep_the_log_before(tmp_path: Path) -> None:
    path, before = tmp_path / "log", tmp_path / "log.1"
    for subject in ("first", "second"):
        log = EventLogFile(path, {"subject": subject}, "operator", 400)
        log.close()
    assert b"first" in before.read_bytes()
    log = EventLogFile(path, {}, "operator", 400)
    for number in range(50):
        log.record(0.0, "object.gone", f"Pod {number}", "", {})
        log.flush()
    log.close()
    assert b"Pod 49" in path.read_bytes()
    assert max(path.stat().st_size, before.stat().st_size) <= 400
    assert log.lost == 0
