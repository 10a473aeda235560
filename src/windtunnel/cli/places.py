"""Keeps what a command writes apart from what it reads, and one of its files from another."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from windtunnel.core.errors import OutputError

if TYPE_CHECKING:
    from windtunnel.twin.scenario.plan import ScenarioPlan

STANDARD_OUTPUT = "-"

Place = str | Path | None


def keep_apart(read: Mapping[str, Place], written: Mapping[str, Place]) -> None:
    """Refuses a file to write that is one of those that are read, or written twice.

    Both are named as a person would: `the scenario`, `--json`, `result.json of -o`; the last word
    of what is written is the option that says where. None and `-` are not files.
    """
    taken: dict[str, str] = {}
    for whose, place in read.items():
        if place is not None:
            taken.setdefault(os.path.realpath(place), whose)
    for name, place in written.items():
        if place is None or str(place) == STANDARD_OUTPUT or _is_no_file(Path(place)):
            continue
        whose = taken.setdefault(os.path.realpath(place), name)
        if whose != name:
            option = name.rpartition(" ")[2]
            raise OutputError(
                f"{name} would overwrite {whose}",
                where=str(place),
                hint=f"choose another file with {option}",
            )


def in_folder(folder: Place, names: tuple[str, ...], option: str = "-o") -> dict[str, Place]:
    """The files of a folder that a command writes, for `keep_apart`."""
    if folder is None:
        return {}
    return {f"{name} of {option}": Path(folder) / name for name in names}


def traces_of(plan: "ScenarioPlan") -> dict[str, Place]:
    """The traces that a scenario replays, for `keep_apart`."""
    from windtunnel.workload.settings.sources import ReplaySettings

    paths = [entry.trace.path for entry in plan.workload if isinstance(entry, ReplaySettings)]
    return {f"the trace {path}": path for path in paths}


def _is_no_file(path: Path) -> bool:
    """Devices and pipes may be written to by several; that a folder is no file is said later."""
    return path.exists() and not path.is_file()
