"""The log of the control plane is bounded, and says what it has not."""

import json
from pathlib import Path

from windtunnel.core.telemetry import Event
from windtunnel.report.files.control_log import ControlLog


def test_a_log_that_would_grow_too_long_says_since_when(tmp_path: Path) -> None:
    path = tmp_path / "control.jsonl"
    log = ControlLog(path, most=4, most_kept=1)
    for number, kind in enumerate(
        ("scaling.kept", "scaling.kept", "machine.idle", "replica.ready", "fleet.short", "fault.x")
    ):
        log.record(Event(float(number), kind, "run"))
    log.close()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    kinds = ["scaling.kept", "machine.idle", "replica.ready", "fleet.short", "control.cut"]
    assert [line["kind"] for line in lines] == [*kinds, "log.closed"]
    assert (lines[-2]["time"], lines[-2]["data"]) == (1.0, {"missing": 2})
    assert lines[-1]["data"] == {"lines": 5}
