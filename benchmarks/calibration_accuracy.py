"""How far the physics model's predictions are off on measured H200 steps, against its targets.

The measurements are not part of the repository: set WINDTUNNEL_DATA to their folder, or keep them
in `../shared/data` beside the checkout. Run: python benchmarks/calibration_accuracy.py
"""

import os
from pathlib import Path

from windtunnel.core.clock import cpu_s
from windtunnel.models.calibration.calibrate import evaluate, fit_profile
from windtunnel.models.calibration.operators import fit_operators
from windtunnel.models.catalog.accelerators import resolve_accelerator
from windtunnel.models.step_time.measurements import read_measurements
from windtunnel.models.step_time.profile import ErrorFigures, load_profile

MAPE_TARGET = 0.05
P90_TARGET = 0.12
UNSEEN_TARGET = 0.08
FILE = "h200_step_times.jsonl"


def data_folder() -> Path | None:
    named = os.environ.get("WINDTUNNEL_DATA")
    folder = Path(named) if named else Path(__file__).parents[2] / "shared" / "data"
    return folder if (folder / FILE).exists() else None


def line(title: str, error: ErrorFigures, target: float) -> None:
    verdict = "met" if error.mape <= target and error.p90 <= P90_TARGET else "MISSED"
    print(
        f"{title:58} mean {error.mape:6.1%} (target {target:.0%})  "
        f"p90 {error.p90:6.1%} (target {P90_TARGET:.0%})  {error.points:4} points  {verdict}"
    )


def main() -> None:
    folder = data_folder()
    if folder is None:
        print(f"skipped: no {FILE}; name its folder in WINDTUNNEL_DATA")
        return
    h200 = resolve_accelerator("h200")
    rows = read_measurements(folder / FILE)
    bundled = load_profile("h200-pytorch")
    for shape, error in evaluate(rows, h200, bundled).items():
        line(f"bundled h200-pytorch profile on {shape}", error, MAPE_TARGET)
    shapes = list(dict.fromkeys(row.shape for row in rows))
    started = cpu_s()
    for shape in shapes:
        seen = [row for row in rows if row.shape == shape]
        unseen = [row for row in rows if row.shape != shape]
        fitted = fit_profile(seen, h200, name="h200", origin=shape)
        for other, error in evaluate(unseen, h200, fitted).items():
            line(f"fitted on {shape}, unseen {other}", error, UNSEEN_TARGET)
    print(f"{len(shapes)} fits took {cpu_s() - started:.1f} CPU seconds")
    tables = folder / "silicon" / "h200_sxm"
    if tables.exists():
        operators = fit_operators(tables, h200, bundled, name="h200", origin="operators")
        for shape, error in evaluate(rows, h200, operators).items():
            line(f"operator tables alone (other kernels) on {shape}", error, UNSEEN_TARGET)
    for shape, error in evaluate(rows, h200, load_profile("generic")).items():
        line(f"generic, uncalibrated, on {shape}", error, UNSEEN_TARGET)


if __name__ == "__main__":
    main()
