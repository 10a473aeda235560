"""Fits the bundled profiles to operator tables, and estimates the error for an unmeasured GPU.

The tables (NVIDIA aiconfigurator, Apache-2.0) are not part of the repository: WINDTUNNEL_DATA names
the folder that has `silicon/`; the default is `../shared/data`. Tables of B300 and GB300, and those
of SGLang and TensorRT-LLM, are read from the package `aiconfigurator-core`; without it these
profiles stay as they are, as does that of the MI355X unless WINDTUNNEL_AITER names a checkout of
AITER. No published serving point is read. What operators cannot show comes from
whole steps measured on H200s, the profile `h200-pytorch`. Run: python -m benchmarks.truth.fit
"""

import csv
import importlib.util
import math
import os
import statistics
import tempfile
from pathlib import Path

import msgspec

from benchmarks.calibration_accuracy import data_folder
from benchmarks.truth.aiter import write_tables
from benchmarks.vllm_replay import RUN
from windtunnel.models.calibration.calibrate import error_of
from windtunnel.models.calibration.operators import (
    PARAMETERS_OF,
    SMALLEST_SIDE,
    Row,
    all_reduce_rows,
    fit_operators,
)
from windtunnel.models.catalog.accelerators import Accelerator, resolve_accelerator
from windtunnel.models.catalog.models import MODELS
from windtunnel.models.step_time.kernels import TILE, Kernels
from windtunnel.models.step_time.model import StepWork
from windtunnel.models.step_time.profile import (
    BUNDLED,
    PARAMETERS,
    Profile,
    load_profile,
    measured_profiles,
    physics_model,
    scaled_profile,
)

ORIGIN = "vLLM operator timings of NVIDIA aiconfigurator 0.12 (Apache-2.0); "
ORIGIN += (
    "starting small kernels, and time beyond kernels, as in a vLLM 0.19 run on an RTX PRO 6000 "
)
ORIGIN += "(LLMServingSim, MIT); "
HOPPER = (
    "multiplications in bf16, traffic of small kernels and the clock under load from 383 whole "
)
HOPPER += "steps measured on H200s with PyTorch 2.11 (bf16, CUDA graphs)."
OTHERS = (
    "starting a multiplication as in whole steps on H200s, traffic of small kernels as of fused "
)
OTHERS += "ones, no falling clock."

TABLES = {
    "a100": "a100_sxm",
    "l40s": "l40s",
    "h100": "h100_sxm",
    "h200": "h200_sxm",
    "b200": "b200_sxm",
    "gb200": "gb200",
    "rtx-pro-6000": "rtx_pro_6000_server",
}
NEWER = {"b300": "b300_sxm", "gb300": "gb300"}
"""GPUs whose tables are only in the package."""

LARGE = {"h200": "h200_sxm", "b200": "b200_sxm"}

VLLM = ("vllm", "0.24.0")
NCCL = "2.29.2"  # what all of them call for large messages
TRTLLM = "1.3.0rc20"
OTHER_ENGINES = {
    "sglang": ("0.5.14", {"h100": "h100_sxm", **LARGE, "b300": "b300_sxm"}),
    "trtllm": (TRTLLM, LARGE),
}
"""Releases of other engines, and the GPUs whose tables of them are used."""

MODULES = {"sglang": ("0.5.10", "wideep_generation_mla_perf")}
"""Tables of modules that a later release has none of."""

FUSED_NORMS = "b200"
"""The GPU whose modules of latent attention were timed again with the norms that vLLM serves with.
All other tables of 0.24 have norms of many small kernels, "50 to 65 us per layer that a serving
engine never pays" (aiconfigurator at c56db49, of 2026-07-29)."""

INDEXER = {
    "h100": "h100-sglang",
    "h200": "h200-sglang",
    "b200": "b200-sglang",
    "b300": "b300-sglang",
    "gb200": "b200-sglang",
    "gb300": "b300-sglang",
    "a100": "h100-sglang",
    "l40s": "h100-sglang",
    "rtx-pro-6000": "b200-sglang",
}
"""Where profiles of vLLM take the time of choosing tokens from: SGLang's modules, which were timed
in CUDA graphs with the kernels that it serves with."""

EARLIER = ("0.19.0", {"h200": "h200_sxm", "b200": "b200_sxm"})
"""The earlier release of vLLM whose experts were timed, and where."""

EARLIER_NEAREST = {"h100": "h200"}
"""Where other GPUs take that release's experts from."""

EARLIER_ORIGIN = "experts by operator timings of vLLM {release}, the rest as of 0.24: "

AITER_ORIGIN = (
    "multiplications and experts by operator timings of AMD's AITER (MIT) at e404860; attention, "
    "collectives, small kernels and the conversion of inputs as in the generic profile."
)
CONVERSION = ("fp8_launch_s", "fp8_convert_bandwidth", "fp4_launch_s")
"""What AITER's timings leave out: they are of kernels alone."""

OTHER_ORIGIN = (
    "operator timings of {engine} {release}, NVIDIA aiconfigurator 0.12 (Apache-2.0), "
    "multiplications in fp8 by blocks of 128 x 128; the rest as of vLLM's kernels: "
)
FUSED = (
    "; all-reduces by the fastest of its own kernels, NCCL's, and TensorRT-LLM's, with which vLLM "
    "fuses norms (FlashInfer)."
)
STEPS_TRIED = [
    *(StepWork([], n, n * context, n) for n in (1, 16, 128) for context in (500, 4000)),
    *(StepWork([(tokens, 0, tokens)], 0, 0, 1) for tokens in (256, 2048, 8192)),
    StepWork([(1024, 0, 1024)], 64, 64 * 2000, 65),
]
STEPS = ("gemm_efficiency", "gemm_bandwidth", "gemm_wave", "gemm_blend")
"""GEMM parameters that come from whole steps on the H200, and hold for all Hopper chips."""

HOPPERS = ("h100", "h200")
EIGHT = (*HOPPERS, "b200", "b300")
"""Hopper and Blackwell in nodes of eight; tables of GB200 and GB300 end at four, too few to tell
TensorRT-LLM's three kernels for all-reduces apart."""

EXPERTS = ("expert", "fp8_expert", "fp4_expert", "weight_only_expert")
STARTS = ("launch", "width", "visit")
EXPERT_STARTS = [f"{kind}_{part}_s" for kind in EXPERTS for part in STARTS]
ENDS = [(hidden, visited) for hidden in (1024, 8192) for visited in (1, 512)]
"""Extremes of the token width and of the experts that a batch visits; time is linear in both."""

FUSED_PASSES = 4.0
STEP_S = 0.55e-3  # of a recorded vLLM run: decode steps of up to 60 sequences, less their kernels
NO_KNEE = 1.0
NEAREST = {
    "h100": "h200",
    "a100": "h100",
    "l40s": "h100",
    "b200": "h200",
    "gb200": "b200",
    "rtx-pro-6000": "b200",
    "b300": "b200",
    "gb300": "gb200",
}
"""The GPU whose numbers are used if a GPU's own tables have none."""

SLOWER = {
    "h100": "a100",
    "h200": "h100",
    "b200": "h200",
    "gb200": "b200",
    "b300": "b200",
    "gb300": "gb200",
}
"""The slower GPU for each: no operator may be slower than there."""

REDUCES = PARAMETERS_OF["all-reduce"]
SENT = 2 / 8  # of what the kernel for small messages sends among eight, that for large ones does


def small_kernels_s(folder: Path) -> float:
    """Time of vLLM's norms, rotation and activation of one layer for a single token."""
    calls = {"layernorm": 2, "rotary_emb": 1, "act_fn": 1}
    with (folder / RUN / "dense.csv").open() as file:
        found = {row["layer"]: row for row in csv.DictReader(file) if row["tokens"] == "1"}
    return sum(1e-6 * times * float(found[name]["time_us"]) for name, times in calls.items())


def packaged(gpu: str, engine: str, release: str, to: Path) -> Path | None:
    """Links to the package's tables of a GPU and an engine release."""
    found = importlib.util.find_spec("aiconfigurator_core")
    if found is None or found.origin is None:
        return None
    folder = to / f"{gpu}-{engine}"
    folder.mkdir()
    root = Path(found.origin).parent / "systems" / "data" / gpu
    own = sorted(root.glob(f"*/{engine}/{release}/*_perf.parquet"))
    if engine in MODULES:
        older, table = MODULES[engine]
        own += root.glob(f"*/{engine}/{older}/{table}.parquet")
    for path in [*own, root / "comm" / "nccl" / NCCL / "nccl_perf.parquet"]:
        (folder / path.name).symlink_to(path)
    return folder


def of_engine(engine: str, release: str, name: str, folder: Path, own: Profile) -> Profile:
    """The profile of another engine's kernels; vLLM's values fill what its tables lack."""
    accelerator = resolve_accelerator(name)
    origin = OTHER_ORIGIN.format(engine=engine, release=release) + own.origin
    found = fit_operators(folder, accelerator, own, name=f"{name}-{engine}", origin=origin)
    values = dict(found.parameters)
    values["gemm_launch_s"] = min(values["gemm_launch_s"], own.parameters["gemm_launch_s"])
    if name in HOPPERS:
        values |= {key: own.parameters[key] for key in STEPS}
    return msgspec.structs.replace(found, parameters=values)


def of_earlier(release: str, name: str, table: str, own: Profile, to: Path) -> Profile | None:
    """The profile with the experts of an earlier release of vLLM."""
    there = to / f"{name}-earlier"
    there.mkdir()
    theirs = packaged(table, "vllm", release, there)
    if theirs is None:
        return None
    only = there / "experts"
    only.mkdir()
    (only / "moe_perf.parquet").symlink_to(theirs / "moe_perf.parquet")
    origin = EARLIER_ORIGIN.format(release=release) + own.origin
    accelerator = resolve_accelerator(own.accelerator)
    found = fit_operators(only, accelerator, own, name=earlier_name(name), origin=origin)
    errors = {**own.errors["operators"], **found.errors["operators"]}
    return msgspec.structs.replace(found, errors={"operators": errors}, measured=own.measured)


def earlier_name(name: str) -> str:
    return f"{name}-vllm-{EARLIER[0].removesuffix('.0')}"


def with_experts_of(own: Profile, other: Profile, name: str) -> Profile:
    """The profile with another GPU's fractions and starts of experts."""
    values = {
        key: other.parameters[key] if "expert" in key else value
        for key, value in own.parameters.items()
    }
    origin = EARLIER_ORIGIN.format(release=f"{EARLIER[0]} on an {other.accelerator}") + own.origin
    errors = {
        kind: other.errors["operators"][kind] if kind.startswith("experts") else error
        for kind, error in own.errors["operators"].items()
    }
    return msgspec.structs.replace(
        own, name=name, origin=origin, parameters=values, errors={"operators": errors}
    )


def of_aiter(generic: Profile, to: Path) -> Profile:
    """The profile of the MI355X."""
    checkout = os.environ.get("WINDTUNNEL_AITER")
    if checkout is None:
        return load_profile("mi355x")
    there = to / "mi355x"
    there.mkdir()
    write_tables(Path(checkout), there)
    accelerator = resolve_accelerator("mi355x")
    found = fit_operators(there, accelerator, generic, name="mi355x", origin=AITER_ORIGIN)
    values = {**found.parameters, **{key: generic.parameters[key] for key in CONVERSION}}
    return msgspec.structs.replace(found, parameters=values)


def with_reduces(found: dict[str, Profile], folders: dict[str, Path], to: Path) -> None:
    """Refits all-reduces, so that none is slower than on the slower GPU.

    Where a message takes longer than there, it counts with the time that it takes there. Nodes of
    eight GPUs also have TensorRT-LLM's kernels, with which vLLM fuses norms since 0.19. The error
    is that against all of a GPU's own timings.
    """
    bounds: dict[str, list[Row]] = {}
    for name, folder in folders.items():
        there = to / f"{name}-reduces"
        there.mkdir()
        for table in ("custom_allreduce_perf", "nccl_perf"):
            (there / f"{table}.parquet").symlink_to(folder / f"{table}.parquet")
        if name in EIGHT:
            theirs = packaged({**TABLES, **NEWER}[name], "trtllm", TRTLLM, there)
            if theirs is None:
                found[name] = load_profile(name)
                continue
            fused = theirs / "custom_allreduce_perf.parquet"
            (there / "fused_allreduce_perf.parquet").symlink_to(fused)
        rows = all_reduce_rows(there, resolve_accelerator(found[name].accelerator))
        bounds[name] = rows
        if name in SLOWER:
            bounds[name] = rows + bounds[SLOWER[name]]
            found[name] = with_rows(found, name, rows, bounds[name], there)


def with_rows(
    found: dict[str, Profile], name: str, rows: list[Row], bounded: list[Row], to: Path
) -> Profile:
    """The profile with all-reduces fitted to the fastest of the bounded rows of each size."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    only = to / "fastest"
    only.mkdir()
    kept = [{key: row[key] for key in ("num_gpus", "message_size", "latency")} for row in bounded]
    pq.write_table(pa.Table.from_pylist(kept), only / "custom_allreduce_perf.parquet")
    own = found[name]
    origin = own.origin
    if name in EIGHT:
        origin = own.origin.removesuffix(".") + FUSED
    accelerator = resolve_accelerator(own.accelerator)
    again = fit_operators(only, accelerator, own, name=name, origin=origin)
    again = with_order(again, found[SLOWER[name]])
    kernels = Kernels(again.physics_parameters(), accelerator)
    off = [
        abs(
            1e3 * kernels.all_reduce_s(2.0 * row["message_size"], row["num_gpus"]) / row["latency"]
            - 1
        )
        for row in rows
    ]
    errors = {**own.errors["operators"], "all-reduce": error_of(off).rounded()}
    return msgspec.structs.replace(again, errors={"operators": errors}, measured=own.measured)


def with_order(own: Profile, slower: Profile) -> Profile:
    """The profile with no all-reduce of up to eight GPUs slower than on the slower GPU.

    Where the kernel for large messages starts later, it starts as there, or the one for small
    messages is fast enough until it has caught up: whichever changes less.
    """
    here, there = resolve_accelerator(own.accelerator), resolve_accelerator(slower.accelerator)
    small_s, small, large_s, large = reduce_lines(own, here)
    limit_small_s, limit_small, limit_large_s, limit_large = reduce_lines(slower, there)
    small_s = min(small_s, limit_small_s)
    small, large = max(small, limit_small), max(large, limit_large)
    if large_s > limit_large_s:
        gained = 1.0 / limit_large - 1.0 / large
        caught_up = (large_s - limit_large_s) / gained if gained else math.inf
        needed = 1.0 / ((limit_large_s - small_s) / caught_up + 1.0 / limit_large)
        if needed / small < large_s / limit_large_s:
            small = max(small, needed)
        else:
            large_s = limit_large_s
    link = here.link_bytes_per_s
    values = dict(zip(REDUCES, (small_s, small / link, large_s, large / link * SENT), strict=True))
    return msgspec.structs.replace(own, parameters={**own.parameters, **values})


def reduce_lines(own: Profile, accelerator: Accelerator) -> tuple[float, float, float, float]:
    """Seconds to start, and bytes/s of messages to seven others, of both kernels."""
    small_s, small, large_s, large = (own.parameters[key] for key in REDUCES)
    link = accelerator.link_bytes_per_s
    return small_s, small * link, large_s, large * link / SENT


def fitted(name: str, folder: Path, steps: Profile, layer_s: float) -> Profile:
    """The profile of one GPU from its own tables."""
    accelerator = resolve_accelerator(name)
    hopper = name in HOPPERS
    origin = ORIGIN + (HOPPER if hopper else OTHERS)
    rest = {**steps.parameters, "layer_s": layer_s, "step_s": STEP_S}
    if not hopper:
        rest |= {"elementwise_passes": FUSED_PASSES, "power_knee": NO_KNEE}
    base = msgspec.structs.replace(steps, parameters=rest)
    found = fit_operators(folder, accelerator, base, name=name, origin=origin)
    values = dict(found.parameters)
    # In a captured graph a call starts while the one before it ends: steps show less than calls.
    values["gemm_launch_s"] = min(values["gemm_launch_s"], steps.parameters["gemm_launch_s"])
    if hopper:
        values |= {key: steps.parameters[key] for key in STEPS}
    return msgspec.structs.replace(found, parameters=values)


def peaks(key: str, accelerator: Accelerator) -> float:
    """The peak that a fraction refers to, or 1 for seconds and counts."""
    if key.endswith("bandwidth"):
        return accelerator.hbm_bytes_per_s
    if not key.endswith("efficiency"):
        return 1.0
    precision = key[:3] if key.startswith("fp") else "bf16"
    return accelerator.peak_flops(precision)


def completed(profile: Profile, nearest: Profile) -> Profile:
    """The profile, with the nearest GPU's numbers where its own tables have no rows."""
    own = set(shown(profile))
    values = {
        key: value if key in own else nearest.parameters[key]
        for key, value in profile.parameters.items()
    }
    return msgspec.structs.replace(profile, parameters=values)


def shown(profile: Profile) -> list[str]:
    """Parameters that are determined by the profile's own operator tables or by whole steps."""
    decided = [key for kind in profile.errors["operators"] for key in PARAMETERS_OF[kind]]
    return [
        *decided,
        "layer_s",
        "elementwise_passes",
        "power_knee",
        "power_exponent",
        "decode_rows",
    ]


def _multiplication_start_s(values: dict[str, float], accelerator: Accelerator) -> float:
    """Start and partial wave of a multiplication over the fewest inputs that were timed."""
    wave = values["gemm_wave"] * accelerator.compute_units * TILE * TILE
    rate = accelerator.bf16_flops * values["gemm_efficiency"]
    return values["gemm_launch_s"] + 2.0 * SMALLEST_SIDE * wave / rate


def _start_s(values: dict[str, float], kind: str, hidden: int, visited: int) -> float:
    launch_s, width_s, visit_s = (values[f"{kind}_{part}_s"] for part in STARTS)
    return launch_s + hidden * width_s + visited * visit_s


def ordered(profile: Profile, slower: Profile) -> Profile:
    """The profile with no operator but all-reduces slower than on the slower GPU.

    A precision that the slower GPU lacks was not timed there.
    """
    here, there = resolve_accelerator(profile.accelerator), resolve_accelerator(slower.accelerator)
    values = dict(profile.parameters)
    rates = {"fp8": there.fp8_flops, "fp4": there.fp4_flops}
    lacking = tuple(precision for precision, rate in rates.items() if not rate)
    for key, value in slower.parameters.items():
        if key in REDUCES or key in EXPERT_STARTS or key.startswith(lacking):
            continue
        if key.endswith(("bandwidth", "efficiency")):
            least = value * peaks(key, there) / peaks(key, here)
            values[key] = min(1.0, max(values[key], least))
        elif key.endswith("_s"):
            values[key] = min(values[key], value)
    late_s = _multiplication_start_s(values, here)
    late_s -= _multiplication_start_s(slower.parameters, there)
    values["gemm_launch_s"] -= max(0.0, late_s)
    for kind in (one for one in EXPERTS if not one.startswith(lacking)):
        starts = [f"{kind}_{part}_s" for part in STARTS]
        if any(_start_s(values, kind, *at) > _start_s(slower.parameters, kind, *at) for at in ENDS):
            values |= {key: slower.parameters[key] for key in starts}
    return msgspec.structs.replace(profile, parameters=values)


def of_steps(steps: Profile, tables: Profile) -> Profile:
    """The profile of PyTorch's steps: their own attention, and the rest of the tables."""
    kept = {key: steps.parameters[key] for key, rule in PARAMETERS.items() if rule.spread > 0}
    kept |= {key: steps.parameters[key] for key in ("decode_rows", "step_s")}
    errors = {
        kind: error
        for kind, error in tables.errors["operators"].items()
        if not set(PARAMETERS_OF[kind]) & set(kept)
    }
    return msgspec.structs.replace(
        steps,
        parameters={**tables.parameters, **kept},
        errors={**steps.errors, "operators": errors},
    )


def write(found: dict[str, Profile]) -> None:
    for name, raw in found.items():
        rounded = {key: float(f"{raw.parameters[key]:.6g}") for key in PARAMETERS}
        profile = msgspec.structs.replace(raw, parameters=rounded)
        (BUNDLED / f"{name}.json").write_text(profile.to_json())
        errors = profile.errors.get("operators", {})
        print(name, ", ".join(f"{kind} {error.mape:.1%}" for kind, error in errors.items()))


def of_vllm(folders: dict[str, Path], steps: Profile, layer_s: float) -> dict[str, Profile]:
    """The profiles of vLLM 0.24, none slower than that of a slower GPU."""
    found = {name: fitted(name, there, steps, layer_s) for name, there in folders.items()}
    for name, nearest in NEAREST.items():
        if name in found:
            found[name] = completed(found[name], found[nearest])
    for name, slower in SLOWER.items():
        if name in found:
            found[name] = ordered(found[name], found[slower])
    small = found[FUSED_NORMS].parameters["latent_layer_s"]
    for name, own in found.items():
        least = min(own.parameters["latent_layer_s"], small)
        found[name] = with_value(own, "latent_layer_s", least)
    return found


def with_value(own: Profile, name: str, value: float) -> Profile:
    return msgspec.structs.replace(own, parameters={**own.parameters, name: value})


def of_other_engines(found: dict[str, Profile], to: Path) -> dict[str, Profile]:
    """The profiles of SGLang and TensorRT-LLM."""
    others = {}
    for engine, (release, gpus) in OTHER_ENGINES.items():
        for name, table in gpus.items():
            there = packaged(table, engine, release, to)
            if there is not None:
                own = of_engine(engine, release, name, there, found[name])
                others[own.name] = own
    return others


def of_earlier_release(found: dict[str, Profile], to: Path) -> dict[str, Profile]:
    """The profiles with the experts of an earlier vLLM, ordered like the others."""
    release, gpus = EARLIER
    earlier: dict[str, Profile] = {}
    for name, table in gpus.items():
        own = of_earlier(release, name, table, found[name], to)
        if own is not None:
            slower = earlier.get(earlier_name(SLOWER[name]))
            earlier[own.name] = own if slower is None else ordered(own, slower)
    for name, nearest in EARLIER_NEAREST.items():
        if earlier_name(nearest) in earlier:
            other = earlier[earlier_name(nearest)]
            earlier[earlier_name(name)] = with_experts_of(found[name], other, earlier_name(name))
    return earlier


def all_profiles(folder: Path, scratch: Path) -> dict[str, Profile]:
    steps = load_profile("h200-pytorch")
    folders = {name: folder / "silicon" / table for name, table in TABLES.items()}
    for name, table in NEWER.items():
        there = packaged(table, *VLLM, scratch)
        if there is not None:
            folders[name] = there
    found = of_vllm(folders, steps, small_kernels_s(folder))
    found |= of_other_engines(found, scratch)
    for name, source in INDEXER.items():
        if source in found and name in found:
            index_s = found[source].parameters["index_layer_s"]
            found[name] = with_value(found[name], "index_layer_s", index_s)
    found["h200-pytorch"] = of_steps(steps, found["h200"])
    middle = {
        key: statistics.median(found[name].parameters[key] for name in TABLES) for key in PARAMETERS
    }
    found["generic"] = msgspec.structs.replace(load_profile("generic"), parameters=middle)
    found["mi355x"] = of_aiter(found["generic"], scratch)
    with_reduces(found, folders, scratch)
    return found | of_earlier_release(found, scratch)


def main() -> None:
    folder = data_folder()
    if folder is None:
        print("skipped: no measurements; name their folder in WINDTUNNEL_DATA")
        return
    with tempfile.TemporaryDirectory() as scratch:
        found = all_profiles(folder, Path(scratch))
    write(found)
    leave_one_out()


def chip(name: str) -> str:
    """The chip of a GPU: variants in memory or packaging must not predict each other."""
    same = {"h200": "h100", "gb200": "b200", "b300": "b200", "gb300": "b200"}
    return same.get(name, name)


def leave_one_out() -> None:
    """The error of each measured GPU's steps if predicted with the nearest GPU of another chip."""
    measured = [one for one in measured_profiles() if one.name in {**TABLES, **NEWER}]
    every = []
    for own in measured:
        accelerator = resolve_accelerator(own.accelerator)
        others = [one for one in measured if chip(one.name) != chip(own.name)]
        scaled = scaled_profile(accelerator, others)
        errors = []
        for shape in MODELS.values():
            here, there = (physics_model(shape, accelerator, one) for one in (own, scaled))
            errors += [abs(there.step_s(work) / here.step_s(work) - 1.0) for work in STEPS_TRIED]
        error = error_of(errors)
        every += errors
        print(f"{own.name} as {scaled.scaled_from}: mean {error.mape:.1%}, p90 {error.p90:.1%}")
    error = error_of(every)
    print(f"left out in turn: mean {error.mape:.1%}, p90 {error.p90:.1%}, {error.points} steps")


if __name__ == "__main__":
    main()
