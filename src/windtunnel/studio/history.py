"""The runs in a folder: results, time series, and slow requests."""

import itertools
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from windtunnel.analysis.comparison import compared, figures_of
from windtunnel.analysis.explain.overview import lost_in_words, overview
from windtunnel.analysis.explain.run import RunReader
from windtunnel.analysis.figures import DOLLARS, SECONDS, text_of
from windtunnel.analysis.run_folder import RESULT, TIMELINE, result_of, series_of
from windtunnel.core.errors import InputError, OutputError, WindtunnelError, os_reason
from windtunnel.report.page.headline import tiles

MOST_RUNS = 200
MOST_POINTS = 1_000
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.,=@+-]{0,120}")
CHARTED = (
    "arrived",
    "completed",
    "output_tokens",
    "waiting",
    "running",
    "replicas_ready",
    "replicas_wanted",
)


class RunHistory:
    """The runs in one folder, newest first."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def folder_of(self, name: str) -> Path:
        """The folder of a run; a name that leads elsewhere is rejected."""
        folder = self.root / name
        if not NAME.fullmatch(name) or not (folder / RESULT).is_file():
            raise InputError(f"there is no run {name[:80]!r} here", where=str(self.root))
        return folder

    def new(self, name: str, seed: int) -> Path:
        """Creates a folder for a new run, at once, so that no other run gets it."""
        stem = re.sub(r"[^A-Za-z0-9_.-]", "-", f"{name}-{seed}")[:80].lstrip("-.") or "run"
        for number in itertools.count(1):
            folder = self.root / f"{stem}-{number}"
            try:
                folder.mkdir(parents=True)
            except FileExistsError:
                continue
            except OSError as error:
                what = f"cannot be made: {os_reason(error)}"
                raise OutputError(what, where=str(folder)) from error
            return folder
        raise AssertionError

    def listed(self) -> list[dict[str, Any]]:
        """A line for each run; folders that cannot be read are left out."""
        found = []
        for path in self.root.glob("*/" + RESULT):
            with suppress(OSError):  # it may be replaced this very moment
                if NAME.fullmatch(path.parent.name):
                    found.append((path.stat().st_mtime, path))
        lines = []
        for _, path in sorted(found, reverse=True)[:MOST_RUNS]:
            with suppress(WindtunnelError, LookupError, TypeError, ValueError, OSError):
                lines.append(self._line(path))
        return lines

    def _line(self, path: Path) -> dict[str, Any]:
        result = result_of(path.parent)
        requests = result["requests"]
        return {
            "id": path.parent.name,
            "name": result["name"],
            "seed": result["seed"],
            "written": path.stat().st_mtime,
            "completed": requests["completed"],
            "arrived": requests["arrived"],
            "ttft_p99": text_of(SECONDS, _number(result["latency"]["ttft"]["p99"])),
            "cost": text_of(DOLLARS, _number(result["cost"]["total"]) or None),
            "partial": result["partial"],
        }

    def shown(self, name: str) -> dict[str, Any]:
        """A run in the form that the page draws."""
        folder = self.folder_of(name)
        result = result_of(folder)
        found = overview(RunReader(folder))
        return {
            "id": name,
            "name": result["name"],
            "seed": result["seed"],
            "partial": result["partial"],
            "tiles": [msgspec.to_builtins(tile) for tile in tiles(result)],
            "series": self._series(folder),
            "slow": [msgspec.to_builtins(one) for one in found.requests],
            "lost": [{"request": one.example, "says": lost_in_words(one)} for one in found.lost],
            "causes": [msgspec.to_builtins(one) for one in found.causes],
            "decisions": [msgspec.to_builtins(one) for one in found.decisions],
        }

    def _series(self, folder: Path) -> dict[str, list[float]]:
        series = series_of(folder / TIMELINE)
        each = max(1, -(-len(series.times) // MOST_POINTS))
        columns = {name: series.whole[name][::each].tolist() for name in CHARTED}
        return {"time": series.times[::each].tolist(), **columns}

    def side_by_side(self, names: Sequence[str]) -> dict[str, Any]:
        """The figures of several runs side by side."""
        runs = [[figures_of(result_of(self.folder_of(name)))] for name in names]
        rows = []
        for metric in compared(runs, [False] * len(runs)):
            values = [design["values"][0] for design in metric["designs"]]
            if metric["unit"] == DOLLARS:  # nothing is free: a run without prices costs 0
                values = [value or None for value in values]
            rows.append(
                {
                    "group": metric["group"],
                    "figure": metric["name"],
                    "better": metric["better"],
                    "values": values,
                    "texts": [text_of(metric["unit"], value) for value in values],
                }
            )
        return {"runs": list(names), "rows": rows}


def _number(value: Any) -> float | None:
    """A figure from an untrusted file."""
    return value if value is None else float(value)
