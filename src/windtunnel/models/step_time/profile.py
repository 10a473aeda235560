"""Profiles of the `physics` model: its fitted parameters, their origin, errors and measured range.

A profile is a small JSON file. Those in the `profiles` folder beside this module are bundled with
the package; `windtunnel calibrate` writes others.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from windtunnel.core.errors import InputError, nearest, one_sentence_per
from windtunnel.core.system.files import read_bounded
from windtunnel.models.catalog.accelerators import Accelerator, resolve_accelerator
from windtunnel.models.catalog.shapes import ModelShape
from windtunnel.models.step_time.kernels import PhysicsParameters
from windtunnel.models.step_time.model import NO_BOUND, MeasuredBounds
from windtunnel.models.step_time.physics import Physics, Ranks

__all__ = [
    "FORMAT",
    "PARAMETERS",
    "ErrorFigures",
    "Parameter",
    "Profile",
    "bundled_profiles",
    "load_profile",
    "physics_model",
    "profile_for",
]

FORMAT = 2
GENERIC = "generic"
BUNDLED = Path(__file__).parent / "profiles"
LARGEST_FILE_BYTES = 1 << 20


class Parameter(msgspec.Struct, frozen=True):
    """One parameter of a profile: its range, where a fit starts, and its likely distance from
    there."""

    low: float
    high: float
    start: float
    spread: float  # likely relative distance from `start`; 0: a fit leaves it alone
    meaning: str


# The starts and spreads come from operator timings of four kinds of GPU. They hold a fit in place
# where measurements cannot tell two causes apart, as with one model whose layers all cost alike.
PARAMETERS: dict[str, Parameter] = {
    "gemm_efficiency": Parameter(
        0.05, 1, 0.82, 0.04, "fraction of the bf16 matrix peak a large multiplication reaches"
    ),
    "gemm_bandwidth": Parameter(
        0.05, 1, 0.88, 0.05, "fraction of the memory peak at which weights are read"
    ),
    "gemm_launch_s": Parameter(1e-8, 1e-3, 2e-6, 0.5, "seconds to start a multiplication"),
    "gemm_wave": Parameter(
        1e-4, 4, 0.07, 0.5, "part of a wave of tiles lost at the end of a multiplication"
    ),
    "gemm_blend": Parameter(
        1.1, 20, 3.0, 0.2, "how well compute and memory overlap: 1 is in turn, infinity is perfect"
    ),
    "fp8_efficiency": Parameter(
        0.05, 1, 0.6, 0, "fraction of the fp8 matrix peak a large multiplication reaches"
    ),
    "fp8_bandwidth": Parameter(
        0.05, 1, 0.8, 0, "fraction of the memory peak at which 8-bit weights are read"
    ),
    "fp8_launch_s": Parameter(
        1e-8,
        1e-3,
        3e-6,
        0,
        "additional seconds to start a multiplication in fp8: converting inputs",
    ),
    "fp8_convert_bandwidth": Parameter(
        0.02, 1, 0.2, 0, "fraction of the memory peak at which inputs are converted to fp8"
    ),
    "fp4_efficiency": Parameter(
        0.05, 1, 0.45, 0, "fraction of the fp4 matrix peak a large multiplication reaches"
    ),
    "fp4_bandwidth": Parameter(
        0.05, 1, 0.7, 0, "fraction of the memory peak at which 4-bit weights are read"
    ),
    "fp4_launch_s": Parameter(
        1e-8, 1e-3, 4e-6, 0, "additional seconds to start a multiplication in fp4"
    ),
    "step_s": Parameter(
        1e-8, 1e-1, 1e-8, 0, "seconds of every step beyond its kernels: gaps, copies, sampling"
    ),
    "layer_s": Parameter(
        1e-8, 1e-2, 25e-6, 0.5, "seconds for the small kernels of a layer: norms, rotation, adding"
    ),
    "elementwise_passes": Parameter(
        0.1, 500, 10.0, 0.3, "how often a layer's small kernels read or write each of its vectors"
    ),
    "attention_efficiency": Parameter(
        0.02, 1, 0.33, 0.3, "fraction of the bf16 matrix peak that attention reaches"
    ),
    "attention_bandwidth": Parameter(
        0.05, 1, 0.9, 0.1, "fraction of the memory peak at which the KV cache is read"
    ),
    "fp8_attention_bandwidth": Parameter(
        0.05, 1, 0.7, 0, "fraction of the memory peak at which an fp8 KV cache is read"
    ),
    "attention_call_s": Parameter(
        1e-8, 1e-3, 10e-6, 0.5, "seconds to start attention of a step's prompts"
    ),
    "decode_call_s": Parameter(
        1e-8, 1e-3, 10e-6, 0.5, "seconds to start attention of a step's decodes"
    ),
    "attention_split_s": Parameter(
        1e-9, 1e-4, 0.2e-6, 0.5, "seconds for each additional part that a context is split into"
    ),
    "attention_ramp_keys": Parameter(
        1, 4096, 80.0, 0.5, "keys' worth of work to start and end the scan of a context"
    ),
    "decode_rows": Parameter(
        1, 256, 128, 0, "query rows that decode attention computes where the model has fewer"
    ),
    "power_knee": Parameter(
        0.05, 1, 0.5, 0.3, "share of time the matrix units may be busy before the clock falls"
    ),
    "power_exponent": Parameter(1e-4, 2, 0.6, 0.3, "how steeply the clock falls beyond power_knee"),
    "expert_efficiency": Parameter(
        0.02, 1, 0.5, 0, "fraction of the matrix peak that grouped expert multiplications reach"
    ),
    "expert_bandwidth": Parameter(
        0.02, 1, 0.8, 0, "fraction of the memory peak at which weights of experts are read"
    ),
    "expert_launch_s": Parameter(
        1e-8, 1e-3, 25e-6, 0, "seconds to route tokens to experts and to start their kernels"
    ),
    "expert_width_s": Parameter(
        1e-12, 1e-7, 1e-12, 0, "additional seconds to start experts, per unit of hidden width"
    ),
    "expert_visit_s": Parameter(
        1e-12, 1e-5, 1e-12, 0, "additional seconds to start experts, per expert visited"
    ),
    "fp8_expert_efficiency": Parameter(
        0.02, 1, 0.3, 0, "fraction of the fp8 matrix peak that experts reach"
    ),
    "fp8_expert_bandwidth": Parameter(
        0.02, 1, 0.7, 0, "fraction of the memory peak at which fp8 experts are read"
    ),
    "fp8_expert_launch_s": Parameter(
        1e-8, 1e-3, 25e-6, 0, "seconds to route tokens to fp8 experts and to start them"
    ),
    "fp8_expert_width_s": Parameter(
        1e-12, 1e-7, 1e-12, 0, "additional seconds to start fp8 experts, per unit of hidden width"
    ),
    "fp8_expert_visit_s": Parameter(
        1e-12, 1e-5, 1e-12, 0, "additional seconds to start fp8 experts, per expert visited"
    ),
    "fp4_expert_efficiency": Parameter(
        0.02, 1, 0.2, 0, "fraction of the fp4 matrix peak that experts reach"
    ),
    "fp4_expert_bandwidth": Parameter(
        0.02, 1, 0.6, 0, "fraction of the memory peak at which fp4 experts are read"
    ),
    "fp4_expert_launch_s": Parameter(
        1e-8, 1e-3, 20e-6, 0, "seconds to route tokens to fp4 experts and to start them"
    ),
    "fp4_expert_width_s": Parameter(
        1e-12, 1e-7, 1e-12, 0, "additional seconds to start fp4 experts, per unit of hidden width"
    ),
    "fp4_expert_visit_s": Parameter(
        1e-12, 1e-5, 1e-12, 0, "additional seconds to start fp4 experts, per expert visited"
    ),
    "weight_only_expert_efficiency": Parameter(
        0.02, 1, 0.3, 0, "fraction of the bf16 matrix peak that experts with 4-bit weights reach"
    ),
    "weight_only_expert_bandwidth": Parameter(
        0.02, 1, 0.6, 0, "fraction of the memory peak at which 4-bit weights of experts are read"
    ),
    "weight_only_expert_launch_s": Parameter(
        1e-8, 1e-3, 30e-6, 0, "seconds to route tokens to such experts and to start them"
    ),
    "weight_only_expert_width_s": Parameter(
        1e-12, 1e-7, 1e-12, 0, "additional seconds to start such experts, per unit of hidden width"
    ),
    "weight_only_expert_visit_s": Parameter(
        1e-12, 1e-5, 1e-12, 0, "additional seconds to start such experts, per expert visited"
    ),
    "latent_efficiency": Parameter(
        0.02, 1, 0.6, 0, "fraction of the bf16 peak that decode attention on latents reaches"
    ),
    "latent_bandwidth": Parameter(
        0.05, 1, 0.8, 0, "fraction of the memory peak at which cached latents are read"
    ),
    "latent_layer_s": Parameter(
        1e-8, 1e-3, 30e-6, 0, "additional seconds of a layer for the small kernels of latents"
    ),
    "index_layer_s": Parameter(
        1e-8, 1e-3, 40e-6, 0, "additional seconds of a layer for choosing the tokens to attend to"
    ),
    "recurrent_bandwidth": Parameter(
        0.02, 1, 0.8, 0, "fraction of the memory peak at which states are read and written"
    ),
    "recurrent_call_s": Parameter(
        1e-8, 1e-3, 4e-6, 0, "seconds to start a recurrence of a step's decodes"
    ),
    "recurrent_efficiency": Parameter(
        1e-3,
        1,
        0.2,
        0,
        "fraction of a multiprocessor's bf16 peak that scanning a prompt reaches",
    ),
    "recurrent_start_s": Parameter(
        1e-8, 1e-3, 10e-6, 0, "seconds to start and end the scan of a prompt, for each head"
    ),
    "recurrent_chunk_s": Parameter(
        1e-15, 1e-6, 1e-15, 0, "seconds to prepare a prompt's scan, for each token and head"
    ),
    "convolution_bandwidth": Parameter(
        0.02, 1, 0.5, 0, "fraction of the memory peak that convolutions reach"
    ),
    "convolution_call_s": Parameter(1e-8, 1e-3, 2e-6, 0, "seconds to start a convolution"),
    "all_reduce_s": Parameter(1e-8, 1e-2, 5e-6, 0, "seconds to start a collective"),
    "all_reduce_small_efficiency": Parameter(
        0.01, 1, 0.2, 0, "fraction of the link peak that the kernel for small messages reaches"
    ),
    "all_reduce_large_s": Parameter(
        1e-8, 1e-2, 10e-6, 0, "seconds to start a collective for large messages"
    ),
    "all_reduce_efficiency": Parameter(
        0.01, 1, 0.7, 0, "fraction of the link peak that a large collective reaches"
    ),
}

_NEW = ("recurrent_", "convolution_", "fp8_convert_", "index_")
ADDED = tuple(
    name for name in PARAMETERS if name.startswith(_NEW) or name.endswith(("_width_s", "_visit_s"))
)
"""Parameters added later; older files without them take their start values."""

RANGES = ("tokens", "decodes", "context")

FAMILIES = (("nvlink", "pcie"), ("infinity-fabric",))
"""Links of accelerators that run the same kernels: NVIDIA's, and AMD's. No others were timed."""


class ErrorFigures(msgspec.Struct, frozen=True):
    """How far predictions are off, as fractions of the measured time: 0.05 is 5 %."""

    mape: float
    p90: float
    points: int

    def rounded(self) -> ErrorFigures:
        """Rounded for writing to a file."""
        return ErrorFigures(round(self.mape, 4), round(self.p90, 4), self.points)


SCALED_ERROR = ErrorFigures(0.079, 0.182, 6120)
"""Error on steps of each measured accelerator in turn, under the profile of the nearest one with
another chip; `python -m benchmarks.truth.fit` computes it."""


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters of the `physics` model for one accelerator, with their origin and their error."""

    name: str
    accelerator: str
    calibrated: bool  # False: generic efficiencies, not measured on this accelerator
    origin: str
    parameters: dict[str, float]
    errors: dict[str, dict[str, ErrorFigures]]  # "shapes" or "operators", then by name
    measured: dict[str, int]  # the largest tokens, decodes and context of the measurements
    scaled_from: str = ""  # the accelerator whose fractions of the peaks these are, if another's

    def physics_parameters(self) -> PhysicsParameters:
        return PhysicsParameters(self.parameters)

    def bounds(self) -> MeasuredBounds | None:
        """The largest measured step; None if nothing was measured."""
        if not self.measured:
            return None
        tokens, decodes, context = (self.measured.get(name, NO_BOUND) for name in RANGES)
        return MeasuredBounds(tokens, decodes, context, context)

    def at_bounds(self, names: Iterable[str]) -> list[str]:
        """The given parameters that a fit left at an end of their range.

        A parameter that starts at its low end, since its effect may be absent, may stay there.
        """
        return [name for name in names if _at_end(self.parameters[name], PARAMETERS[name])]

    def to_json(self) -> str:
        """The text of the file; the same profile always gives the same bytes."""
        document = {"format": FORMAT, **msgspec.to_builtins(self)}
        return json.dumps(document, indent=2) + "\n"


def _at_end(value: float, rule: Parameter) -> bool:
    low = rule.low if rule.low < rule.start else 0.0
    return not low * 1.001 < value < rule.high * 0.999


def bundled_profiles() -> list[str]:
    """Names of the bundled profiles."""
    return sorted(path.stem for path in BUNDLED.glob("*.json"))


def load_profile(name_or_path: str) -> Profile:
    """The bundled profile of that name, or the one in that file."""
    bundled = BUNDLED / f"{name_or_path}.json"
    if name_or_path in bundled_profiles():
        return read_profile(bundled)
    path = Path(name_or_path)
    if path.suffix == ".json" or path.exists():
        return read_profile(path)
    names = bundled_profiles()
    raise InputError(
        f"there is no profile {name_or_path!r}",
        allowed=", ".join(names) + ", or the path of a profile's JSON file",
        hint=nearest(name_or_path, names),
    )


def profile_for(accelerator: Accelerator) -> Profile:
    """The bundled profile of an accelerator, else the nearest one's, else the generic one."""
    measured = measured_profiles()
    for profile in measured:
        if resolve_accelerator(profile.accelerator).name == accelerator.name:
            return profile
    for links in FAMILIES:
        if accelerator.link in links:
            alike = [one for one in measured if resolve_accelerator(one.accelerator).link in links]
            return scaled_profile(accelerator, alike)
    generic = _bundled(GENERIC)
    return msgspec.structs.replace(generic, accelerator=accelerator.name)


def measured_profiles() -> list[Profile]:
    """Bundled profiles of accelerators whose kernels were timed."""
    return [_bundled(name) for name in bundled_profiles() if name != GENERIC]


@cache
def _bundled(name: str) -> Profile:
    return read_profile(BUNDLED / f"{name}.json")


def scaled_profile(accelerator: Accelerator, measured: list[Profile]) -> Profile:
    """The profile of the nearest of these: its fractions, applied to this accelerator's peaks.

    Between two that are as near, as a GH200 is between H100 and H200, it has the geometric mean of
    their fractions: with those of one, it would be slower than the slower or faster than the
    faster.
    """

    def distance(one: Profile) -> float:
        return _distance(accelerator, resolve_accelerator(one.accelerator))

    near = min(measured, key=lambda one: (distance(one), one.name))
    parameters, origin = near.parameters, f"The {near.accelerator}'s fractions"
    others = [one for one in measured if one.accelerator != near.accelerator]
    if others:
        next_to = min(others, key=lambda one: (distance(one), one.name))
        if distance(next_to) - distance(near) < AS_NEAR:
            origin = f"Means of the {near.accelerator}'s and the {next_to.accelerator}'s fractions"
            parameters = {
                key: math.sqrt(value * next_to.parameters[key])
                for key, value in near.parameters.items()
            }
    return msgspec.structs.replace(
        near,
        accelerator=accelerator.name,
        calibrated=False,
        origin=f"{origin} of peak, for the {accelerator.name}'s peaks.",
        parameters=parameters,
        measured={},
        scaled_from=near.accelerator,
    )


AS_NEAR = 0.02
"""Difference in distance, in doublings of a rate, that does not count."""


def _distance(one: Accelerator, other: Accelerator) -> float:
    """How unlike two accelerators are: doublings of their rates, and differences in units and
    links."""
    rates = abs(math.log2(one.bf16_flops / other.bf16_flops))
    rates += abs(math.log2(one.hbm_bytes_per_s / other.hbm_bytes_per_s))
    units = ((one.fp8_flops > 0) != (other.fp8_flops > 0)) + (
        (one.fp4_flops > 0) != (other.fp4_flops > 0)
    )
    return rates + 2.0 * units + (one.link != other.link)


def physics_model(
    shape: ModelShape,
    accelerator: Accelerator,
    profile: Profile | None = None,
    tensor_parallel: int = 1,
    expert_parallel: int = 1,
    ranks: Ranks | None = None,
) -> Physics:
    """A `physics` step-time model; without a profile, with the accelerator's bundled one."""
    chosen = profile if profile is not None else profile_for(accelerator)
    parameters = chosen.physics_parameters()
    return Physics(
        shape,
        accelerator,
        parameters,
        tensor_parallel,
        expert_parallel,
        chosen.bounds(),
        ranks,
    )


def read_profile(path: Path) -> Profile:
    """Reads the profile in a file; reports each fault in one sentence."""
    where = str(path)
    data = read_bounded(path, LARGEST_FILE_BYTES, subject="the profile")
    try:
        document = json.loads(data.decode())
    except (ValueError, RecursionError) as error:
        raise InputError("the file is not JSON", where=where, allowed="a profile") from error
    return _checked(document, where)


def _checked(document: Any, where: str) -> Profile:
    if not isinstance(document, dict):
        raise InputError("the file holds no JSON object", where=where, allowed="a profile")
    if document.get("format") != FORMAT:
        what = f"format is {document.get('format')!r}"
        raise InputError(
            what, where=where, allowed=f"{FORMAT}, as `windtunnel calibrate` writes it"
        )
    fields = set(Profile.__struct_fields__) | {"format"}
    unknown = sorted(set(document) - fields)
    if unknown:
        raise InputError(
            f"unknown field {unknown[0]!r}",
            where=where,
            allowed=", ".join(sorted(fields)),
            hint=nearest(unknown[0], fields),
        )
    body = {key: value for key, value in document.items() if key != "format"}
    if isinstance(body.get("parameters"), dict):
        given = dict(body["parameters"])
        known = {
            name: given.pop(name, rule.start)
            for name, rule in PARAMETERS.items()
            if name in given or name in ADDED
        }
        body["parameters"] = {**known, **given}
    try:
        profile = msgspec.convert(body, Profile)
    except msgspec.ValidationError as error:
        raise InputError(str(error), where=where) from error
    resolve_accelerator(profile.accelerator)
    faults = [*_parameter_faults(profile, where), *_range_faults(profile, where)]
    if faults:
        raise one_sentence_per(faults)
    return profile


def _parameter_faults(profile: Profile, where: str) -> list[InputError]:
    faults = [
        InputError(f"parameter {name!r} is missing", where=where)
        for name in PARAMETERS
        if name not in profile.parameters
    ]
    for name, value in profile.parameters.items():
        rule = PARAMETERS.get(name)
        if rule is None:
            hint = nearest(name, PARAMETERS)
            faults.append(InputError(f"unknown parameter {name!r}", where=where, hint=hint))
        elif not (math.isfinite(value) and rule.low <= value <= rule.high):
            allowed = f"{rule.low:g} to {rule.high:g}: {rule.meaning}"
            faults.append(
                InputError(f"parameter {name!r} is {value:g}", where=where, allowed=allowed)
            )
    return faults


def _range_faults(profile: Profile, where: str) -> list[InputError]:
    faults = []
    for name, value in profile.measured.items():
        if name not in RANGES or value < 0:
            what = f"measured range {name!r} is {value}"
            allowed = ", ".join(RANGES) + ", each 0 or more"
            faults.append(InputError(what, where=where, allowed=allowed))
    return faults
