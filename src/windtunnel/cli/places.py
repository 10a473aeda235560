"""Output of commands: never over an input, complete or not at all, checked before the work."""

import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import click

from windtunnel.core.errors import OutputError, message, printable

if TYPE_CHECKING:
    from windtunnel.report.files.folder import WholeFile, WholeFolder
    from windtunnel.twin.scenario.plan import ScenarioPlan

STANDARD_OUTPUT = "-"
LONGEST_OVERRIDES = 60
"""Maximum length of the overrides in a folder's name."""

Place = str | Path | None


class Output(ExitStack):
    """The output of a command; with `--json -` it is JSON `alone`, without a folder."""

    def __init__(self, json_to: str | None = None) -> None:
        super().__init__()
        self.alone = json_to == STANDARD_OUTPUT
        self._json = self.file("--json", None if self.alone else json_to)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> bool | None:
        if isinstance(error, MemoryError):
            from traceback import clear_frames

            clear_frames(trace)  # else no memory is left to remove drafts
        return super().__exit__(kind, error, trace)

    def file(self, option: str, place: Place) -> "WholeFile | None":
        """The file that `option` asks for; None if it was not given."""
        from windtunnel.report.files.folder import WholeFile

        return None if place is None else self.enter_context(WholeFile(Path(place), option))

    def perfetto(self, place: Place) -> "WholeFile | None":
        """The file that `--perfetto` asks for, which replaces only another trace for Perfetto."""
        from windtunnel.report.files.perfetto import refuse_other_file

        if place is not None:
            refuse_other_file(Path(place))
        return self.file("--perfetto", place)

    def folder(self, place: Place) -> "WholeFolder | None":
        from windtunnel.report.files.folder import WholeFolder

        return None if place is None else self.enter_context(WholeFolder(Path(place)))

    def json(self, value: Any) -> None:
        """Writes or prints the JSON, if `--json` was given."""
        from windtunnel.report.files.folder import result_bytes

        self.put_json(result_bytes(value))

    def put_json(self, content: bytes) -> None:
        if self._json is not None:
            self._json.finish(content)
        elif self.alone:
            click.echo(printable(content.decode()), nl=False)


def note(sentence: str) -> None:
    """Prints a sentence beside the results, on standard error."""
    click.echo(f"windtunnel: {message(sentence)}", err=True)


def note_estimate(plans: "Sequence[ScenarioPlan]", runs: int | None = None, says: str = "") -> None:
    """Prints an estimate of time and memory before long or large runs, on standard error.

    The number of runs is that of the plans, unless `runs` gives it.
    """
    from windtunnel.twin.estimate import mean_estimate

    if not plans:
        return
    sentence = mean_estimate(plans).sentence(len(plans) if runs is None else runs)
    if sentence is not None:
        note(says + sentence)


def write_file(option: str, place: Place, text: str) -> None:
    """Writes the file that an option asks for, if it was given."""
    with Output() as out:
        file = out.file(option, place)
        if file is not None:
            file.finish(text.encode())


def folder_of(asked: str | None, json_to: str | None, name: str, earlier: str = "") -> str | None:
    """The requested folder, or else `runs/NAME`; None if only JSON is printed.

    `earlier` says what happens to results that are already in `runs/NAME`.
    """
    if asked is not None or json_to == STANDARD_OUTPUT:
        return asked
    found = Path("runs", name)
    if earlier and found.is_dir() and any(found.iterdir()):
        note(f"{found} has earlier results: {earlier}; -o DIR keeps them")
    return str(found)


def run_name(plan: "ScenarioPlan") -> str:
    """The folder name of a run, which depends on its settings, so that others are not replaced.

    Overrides that are long, or have characters unsuitable for a folder, end in their digest.
    """
    given = [one for one in plan.overrides if one.partition("=")[0] not in ("name", "seed")]
    name = f"{plan.name}-{plan.seed}"
    if not given:
        return name
    text = ",".join(given)
    safe = re.sub(r"[^A-Za-z0-9_.,=+-]+", "_", text)[:LONGEST_OVERRIDES]
    if safe != text:
        safe += f"-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
    return f"{name}-{safe}"


def keep_apart(read: Mapping[str, Place], written: Mapping[str, Place]) -> None:
    """Refuses to write a file that is also read, or that is written twice.

    Files are keyed by a description: `the scenario`, `--json`, `result.json of -o`; for written
    ones, its last word is the option that sets the path. None and `-` are not files.
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


def in_folder(folder: Place, names: tuple[str, ...]) -> dict[str, Place]:
    """The files that a command writes to a folder, for `keep_apart`."""
    if folder is None:
        return {}
    return {f"{name} of -o": Path(folder) / name for name in names}


def traces_of(plan: "ScenarioPlan") -> dict[str, Place]:
    """The traces that a scenario replays, for `keep_apart`."""
    from windtunnel.workload.settings.sources import ReplaySettings

    paths = [entry.trace.path for entry in plan.workload if isinstance(entry, ReplaySettings)]
    return {f"the trace {path}": path for path in paths}


def _is_no_file(path: Path) -> bool:
    """Whether a path is a device, a pipe or a folder.

    Devices and pipes may have several writers; a folder in place of a file is refused later.
    """
    return path.exists() and not path.is_file()
