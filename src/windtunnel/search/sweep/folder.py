"""The folder of a sweep: it records which sweep it holds, so that only that one can resume
there."""

from pathlib import Path
from typing import Any

import msgspec

from windtunnel.core.errors import OutputError
from windtunnel.core.system.files import write_whole, writing
from windtunnel.search.sweep.sweep import Sweep

IDENTITY = "sweep.json"
RESULTS = "results.parquet"
PAGE = "report.html"
POINTS = "points"
"""Where finished points are stored by default."""
FILES = (IDENTITY, RESULTS, PAGE)
ELSEWHERE = "choose another folder with -o"
ANOTHER = f"{ELSEWHERE}; --cache lets both share finished points"


def identity_of(sweep: Sweep, command: dict[str, Any]) -> dict[str, Any]:
    """What must match for a sweep to resume: the scenario and the arguments."""
    return {"scenario": sweep.plan.name, "scenario_sha256": sweep.plan.sha256, **command}


def check(folder: Path, identity: dict[str, Any]) -> None:
    """Rejects a folder of another sweep or with other content; changes nothing in it."""
    if folder.exists() and not folder.is_dir():
        raise OutputError("is a file, not a folder", where=str(folder), hint=ANOTHER)
    file = folder / IDENTITY
    if file.exists():
        with writing(folder, ELSEWHERE):
            content = file.read_bytes()
        _refuse_another(folder, content, identity)
        return
    for name in FILES:
        if (folder / name).exists():
            what = f"has a {name} that is not from a sweep"
            raise OutputError(what, where=str(folder), hint=ELSEWHERE)


def claim(folder: Path, identity: dict[str, Any]) -> None:
    """Creates the folder and records its sweep, so that an interrupted sweep can resume."""
    check(folder, identity)
    content = msgspec.json.format(msgspec.json.encode(identity), indent=2) + b"\n"
    with writing(folder, ELSEWHERE):
        write_whole(folder / IDENTITY, content)


def _refuse_another(folder: Path, content: bytes, identity: dict[str, Any]) -> None:
    try:
        there = msgspec.json.decode(content, type=dict[str, Any])
    except msgspec.DecodeError:
        there = {}
    ours = msgspec.json.decode(msgspec.json.encode(identity), type=dict[str, Any])
    if there == ours:
        return
    named = {"scenario_sha256": "the content of the scenario"}
    differing = [named.get(name, name) for name in ours if there.get(name) != ours[name]] or [
        "its arguments"
    ]
    what = f"holds another sweep: {', '.join(differing)} was different"
    raise OutputError(what, where=str(folder), hint=ANOTHER)
