"""How far the simulator is off on published measurements, against its targets.

Every point runs as a scenario of its own: a closed loop of users, random prompts without shared
prefixes, the engine's defaults; points of SGLang and TensorRT-LLM use profiles of their kernels. A
point that the simulator rejects is counted and its reason printed.
Run: python -m benchmarks.truth [--save FILE.json] [--beside FILE.json]
"""

import argparse
import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

import windtunnel as wt
from benchmarks.claim import Claim, report
from benchmarks.truth.points import Point, drafted, guessed, points
from windtunnel.core.statistics.distribution import quantile_of
from windtunnel.models.catalog.accelerators import resolve_accelerator
from windtunnel.models.catalog.models import resolve_model
from windtunnel.models.releases import LEAST_HOST_S
from windtunnel.models.step_time.profile import bundled_profiles
from windtunnel.twin.scenario.load import load_text

TARGETS = {"tpot": (0.06, 0.20), "ttft": (0.15, 0.40), "throughput": (0.06, None)}
"""Targets for the median and the 90th percentile of the absolute relative error."""

FEWEST, MOST_WAVES, MOST_REQUESTS = 3, 5, 2048
WAIT_STEPS = 60
"""`timeout_iters` in InferenceX's scripts; their `batching_wait_iters` is 0."""

GROUPS: dict[str, Callable[[Point], str]] = {
    "GPU": lambda point: point.gpu,
    "model": lambda point: point.family,
    "dtype": lambda point: point.dtype,
    "parallelism": lambda point: point.parallelism,
    "engine": lambda point: point.engine,
}


class Outcome(msgspec.Struct):
    """The simulated figures of one point."""

    title: str
    refused: str | None = None
    verdict: str | None = None
    measured: dict[str, float] = {}
    simulated: dict[str, float] = {}

    def error(self, figure: str) -> float:
        """The signed error: above zero is too slow, or too many tokens."""
        return self.simulated[figure] / self.measured[figure] - 1.0


def scenario(point: Point, trace: Path) -> str:
    """The point as a scenario; prompts are random, so no two share a prefix.

    Requests of known lengths are written to `trace`, as turns of one client.
    """
    low, high = point.spread
    lengths = {
        name: tokens
        if low == high
        else {
            "distribution": "uniform",
            "min": round(low * tokens),
            "max": round(high * tokens),
        }
        for name, tokens in (("prompt_tokens", point.isl), ("output_tokens", point.osl))
    }
    waves = min(MOST_WAVES * point.users, max(MOST_REQUESTS, 2 * point.users))
    arrivals: dict[str, object] = {"process": "closed", "users": point.users, "think": "0s"}
    if point.rate:
        arrivals = {"process": "poisson", "rate": point.rate}
    load: dict[str, object] = {
        "name": "load",
        "arrivals": arrivals,
        "count": point.requests or max(FEWEST, waves),
        **lengths,
    }
    if point.lengths:
        rows = [
            {"arrived": 0.0, "session": "client", "turn": n, "prompt_tokens": prompt}
            | {"output_tokens": output}
            for n, (prompt, output) in enumerate(point.lengths)
        ]
        trace.write_text("".join(json.dumps(row) + "\n" for row in rows))
        load = {"trace": {"path": str(trace), "sessions": "closed", "think": "0s"}}
    engine: dict[str, object] = {"kv_cache_dtype": point.kv, "prefix_caching": False}
    step_time = {"model": "physics"}
    overheads = {}
    if point.release:
        engine["version"] = point.release
    suffix = f"-{point.release}" if point.release else ""
    profile = f"{point.gpu}-{point.engine.replace('-', '').lower()}{suffix}"
    if profile in bundled_profiles():
        step_time["profile"] = profile
    if point.engine == "SGLang":
        engine["mixed_batches"] = False
        # It computes prompts in CUDA graphs, but not with latent attention: no launches per layer.
        if profile in bundled_profiles() and not resolve_model(point.model).is_latent:
            overheads["queueing"] = LEAST_HOST_S
    if point.engine == "TRT-LLM" and point.ranks > 1:
        engine["prompt_wait_steps"] = WAIT_STEPS
    if point.mtp:
        engine["speculative"] = {"method": "mtp", "num_speculative_tokens": point.mtp}
    if point.state_share:
        engine["max_num_seqs"] = states(point)
    if point.budget:
        engine["max_num_batched_tokens"] = point.budget
    pool = {
        "name": "main",
        "accelerator": point.gpu,
        "tensor_parallel": point.tp // point.ranks,
        "data_parallel": point.ranks,
        "expert_parallel": point.ep,
        "engine": engine,
        "step_time": step_time,
        "overheads": overheads,
    }
    return json.dumps({"model": point.model, "workload": [load], "serving": {"pools": [pool]}})


def states(point: Point) -> int:
    """Requests that SGLang 0.5 runs for a model with recurrent layers, by its own rule.

    States get 9/19 of the memory beside the weights, and a request takes five of them: its own, two
    in its prefix cache, and two buffers of overlapped scheduling.
    """
    shape, accelerator = resolve_model(point.model), resolve_accelerator(point.gpu)
    left = point.state_share * accelerator.memory_bytes - shape.total_weight_bytes
    state_bytes = shape.recurrent_layers * shape.state_layer_bytes()
    return int(left * 0.9 / 1.9 / state_bytes) // 5


def outcome(point: Point) -> Outcome:
    with tempfile.TemporaryDirectory() as folder:
        text = scenario(point, Path(folder) / "requests.jsonl")
        try:
            result = wt.simulate(load_text(text, f"{point.source}.yaml"))
        except wt.WindtunnelError as refusal:
            why = str(refusal).splitlines()[0].split(";")[0]
            return Outcome(point.title, refused=why, measured=point.measured())
    return Outcome(
        point.title,
        verdict=_evidence(result),
        measured=point.measured(),
        simulated={
            "ttft": result["latency"]["ttft"][point.statistic],
            "tpot": result["latency"][point.gap][point.statistic],
            "throughput": result["throughput"]["output_tokens_per_s"],
        },
    )


def _evidence(result: dict[str, Any]) -> str:
    """How far the result says that its step times, and figures of full servers, can be trusted.

    Findings on how much was simulated are left out: they follow from the number of requests here.
    """
    wanted = ("calibration", "saturation")
    found: list[str] = [
        one["severity"] for one in result["trust"]["findings"] if one["code"] in wanted
    ]
    return max(found, key=("good", "caution", "doubt").index)


def errors(outcomes: Sequence[Outcome], figure: str) -> list[float]:
    return sorted(
        abs(one.error(figure)) for one in outcomes if one.refused is None and figure in one.measured
    )


def line(title: str, outcomes: Sequence[Outcome]) -> str:
    parts = [f"{title:28}"]
    for figure in TARGETS:
        found = errors(outcomes, figure)
        cell = ""
        if found:
            middle, high = quantile_of(found, 0.5), quantile_of(found, 0.9)
            cell = f"{figure} {middle:6.1%} p90 {high:6.1%} of {len(found):2}"
        parts.append(f"{cell:38}")
    return " ".join(parts).rstrip()


def speed_up(plain: Point, drafting: Point) -> tuple[float, float]:
    """How many times faster tokens come with drafts: measured, and simulated."""
    one, other = outcome(plain), outcome(drafting)
    return (
        one.measured["tpot"] / other.measured["tpot"],
        one.simulated["tpot"] / other.simulated["tpot"],
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--save", type=Path, help="write every point's figures to this file")
    parser.add_argument("--beside", type=Path, help="compare with a file that --save wrote")
    options = parser.parse_args()
    everything = points()
    found = []
    for point in everything:
        found.append(outcome(point))
        _print_point(found[-1])
    print()
    print(line("all", found))
    for name, group in GROUPS.items():
        for value in dict.fromkeys(map(group, everything)):
            chosen = [one for one, p in zip(found, everything, strict=True) if group(p) == value]
            if any(one.refused is None for one in chosen):
                print(line(f"{name} {value}", chosen))
    for verdict in ("good", "caution", "doubt"):
        print(line(f"trust says {verdict}", [one for one in found if one.verdict == verdict]))
    print(line("drafts, apart", [outcome(point) for point in guessed()]))
    for plain, drafting in drafted():
        measured, simulated = speed_up(plain, drafting)
        print(f"{drafting.title}: {measured:.2f} x measured, {simulated:.2f} x simulated")
    if options.beside:
        other = msgspec.json.decode(options.beside.read_bytes(), type=list[Outcome])
        common = {one.title for one in other if one.refused is None}
        common &= {one.title for one in found if one.refused is None}
        for name, rows in ((options.beside.stem, other), ("ours, the same points", found)):
            print(line(name, [one for one in rows if one.title in common]))
    refused = sum(one.refused is not None for one in found)
    print(f"{len(found)} points, {refused} refused")
    if options.save:
        options.save.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=1))
    _claims(found)


def _print_point(one: Outcome) -> None:
    if one.refused is not None:
        print(f"{one.title}: refused: {one.refused}", flush=True)
        return
    cells = []
    for figure, value in one.measured.items():
        unit, scale = ("tok/s", 1.0) if figure == "throughput" else ("ms", 1e3)
        cells.append(
            f"{figure} {scale * one.simulated[figure]:.4g} {unit} for {scale * value:.4g} "
            f"({one.error(figure):+.1%})"
        )
    print(f"{one.title}: {', '.join(cells)}; trust {one.verdict}", flush=True)


def _claims(found: Sequence[Outcome]) -> None:
    for figure, (median, high) in TARGETS.items():
        all_errors = errors(found, figure)
        for name, share, most in (("median", 0.5, median), ("90th percentile", 0.9, high)):
            if most is not None and all_errors:
                report(
                    Claim(
                        f"published points, {figure}: {name} of {len(all_errors)} errors",
                        ours=100 * quantile_of(all_errors, share),
                        baseline=100 * most,
                        most=1.0,
                        unit="%",
                        against="the target",
                    )
                )


if __name__ == "__main__":
    main()
