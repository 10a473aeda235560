"""The log of live programs: JSON lines that cannot steer a terminal."""

import json
import logging
from datetime import UTC, datetime

from windtunnel.live.admin import JsonLines


def test_a_line_has_time_level_and_message() -> None:
    record = logging.makeLogRecord(
        {
            "created": 1_800_000_000.25,
            "levelname": "WARNING",
            "msg": "%s left",
            "args": ("\x1b[31m",),
        }
    )
    line = JsonLines().format(record)
    assert line.isprintable()
    read = json.loads(line)
    assert list(read) == ["time", "level", "message"]
    assert read["time"] == "2027-01-15T08:00:00.250Z"
    assert datetime.fromisoformat(read["time"]) == datetime.fromtimestamp(1_800_000_000.25, UTC)
    assert (read["level"], read["message"]) == ("warning", "\x1b[31m left")
