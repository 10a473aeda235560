"""How far the simulation of a recorded vLLM run is off, latency by latency, against the targets.

The run is not part of the repository: WINDTUNNEL_DATA names the folder that has it; the default is
`../shared/data`. One number, the time per step beyond the kernel tables, is fitted to the mean
end-to-end latency. Run: python -m benchmarks.vllm_replay
"""

import os
from pathlib import Path

from benchmarks.claim import Claim, report
from windtunnel.core.clock import cpu_s
from windtunnel.engine.replay import compare, fit_per_step, read_run
from windtunnel.models.catalog.models import resolve_model
from windtunnel.models.step_time.table_files import read_table

RUN = Path("vllm-runs", "rtxpro6000-llama-3.1-8b")
TARGETS = {
    ("ttft", "mean"): 0.10,
    ("ttft", "p99"): 0.10,
    ("tpot", "mean"): 0.04,
    ("tpot", "p99"): 0.10,
    ("e2e", "mean"): 0.04,
    ("e2e", "p99"): 0.10,
}


def run_folder() -> Path | None:
    named = os.environ.get("WINDTUNNEL_DATA")
    folder = Path(named) if named else Path(__file__).parents[2] / "shared" / "data"
    return folder / RUN if (folder / RUN).exists() else None


def main() -> None:
    folder = run_folder()
    if folder is None:
        print(f"skipped: no {RUN}; name the folder that has it in WINDTUNNEL_DATA")
        return
    run = read_run(folder)
    table = read_table(folder, resolve_model(run.model))
    started = cpu_s()
    per_step_s = fit_per_step(run, table.with_per_step)
    found = compare(run, table.with_per_step(per_step_s), per_step_s)
    spent = cpu_s() - started
    print(
        f"{found.requests} requests, {1e3 * per_step_s:.3f} ms per step fitted in {spent:.2f} CPU s"
    )
    for name, figures in found.latency.items():
        errors = ", ".join(f"{title} {figure.error:+.1%}" for title, figure in figures.items())
        print(f"{name}: {errors}")
    print(f"scheduled at the same place in line: {found.order_agreement:.1%}")
    for (name, title), most in TARGETS.items():
        figure = found.latency[name][title]
        apart = abs(figure.simulated - figure.measured)
        report(
            Claim(
                f"vLLM replay, {title} {name}",
                ours=apart,
                baseline=figure.measured,
                most=most,
                unit="s",
                against="measured",
            )
        )


if __name__ == "__main__":
    main()
