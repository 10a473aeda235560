"""`windtunnel explain` tells the last decision about each pool, with all that bound it."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from windtunnel.cli.explain import explain
from windtunnel.core.errors import InputError


def line(time: float, pool: str, target: int, **data: Any) -> str:
    told = {"current": 2, "recommended": 6, "target": target, "metrics": {}, "limits": [], **data}
    kind = "scaling.decided" if target != 2 else "scaling.kept"
    event = {"time": time, "kind": kind, "subject": f"pool/{pool}", "reason": "Full.", "data": told}
    return json.dumps(event, separators=(",", ":"))


LIMIT = {
    "name": "rate",
    "before": 6,
    "after": 4,
    "without": 5,
    "reason": "At most 2 more within 60 s: 4 instead of 6.",
}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    lines = [
        line(15.0, "main", 4, limits=[LIMIT], metrics={"load": 1.25, "demand_tokens": 200000.0}),
        line(15.0, "cheap", 2),
        line(30.0, "main", 2),
    ]
    (tmp_path / "control.jsonl").write_text("\n".join(lines) + "\n")
    return tmp_path


def told(run: Path, *options: str) -> str:
    result = CliRunner().invoke(explain, [str(run), *options], catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


def test_it_tells_what_was_decided_until_then(run: Path) -> None:
    assert told(run, "--at", "20s").splitlines() == [
        "cheap: stays at 2, decided at 15 s",
        "  Full.",
        "  Wanted: 6.",
        "  No limit bound it.",
        "",
        "main: 2 -> 4, decided at 15 s",
        "  Full.",
        "  Wanted: 6.",
        "  rate: 6 -> 4. At most 2 more within 60 s: 4 instead of 6. (without it 5)",
        "  Seen: load 1.25, demand_tokens 200,000.",
    ]


def test_without_a_time_it_tells_the_end(run: Path) -> None:
    assert "main: stays at 2, decided at 30 s" in told(run)


def test_the_same_as_data(run: Path) -> None:
    cheap, main = json.loads(told(run, "--at", "20s", "--json"))
    assert (cheap["pool"], cheap["target"]) == ("cheap", 2)
    assert main["limits"] == [LIMIT]
    assert main["metrics"] == {"load": 1.25, "demand_tokens": 200000.0}


def test_events_will_do_too(run: Path) -> None:
    (run / "control.jsonl").rename(run / "events.jsonl")
    assert "main: 2 -> 4" in told(run, "--at", "15s")


@pytest.mark.parametrize(
    ("content", "options", "what"),
    [
        (None, (), "neither control.jsonl nor events.jsonl"),
        ("", (), "no decision was made"),
        (line(15.0, "main", 4), ("--at", "10s"), "the first decision was made at 15 s"),
        ('{"kind":"scaling.decided"}', (), "line 1 is not a decision"),
        (line(15.0, "main", 4), ("--at", "soon"), "--at"),
    ],
)
def test_faults_are_sentences(
    tmp_path: Path, content: str | None, options: tuple[str, ...], what: str
) -> None:
    if content is not None:
        (tmp_path / "control.jsonl").write_text(content)
    with pytest.raises(InputError, match=what):
        CliRunner().invoke(explain, [str(tmp_path), *options], catch_exceptions=False)
