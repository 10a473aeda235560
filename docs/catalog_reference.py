"""Writes docs/reference/catalog.md from the catalogs of models and accelerators.

Run it after a change of either: `python docs/catalog_reference.py`. A test holds the page to it.
"""

from collections.abc import Mapping
from pathlib import Path

from windtunnel.models.catalog.accelerators import ACCELERATORS, GIB, GIGA, TERA, Accelerator
from windtunnel.models.catalog.models import MODELS, source_of
from windtunnel.models.catalog.shapes import ModelShape
from windtunnel.models.step_time.profile import Profile, profile_for

PAGE = Path(__file__).parent / "reference" / "catalog.md"
KIB = 1024

INTRODUCTION = """\
# Catalog

Names for `model` and `accelerator` in a scenario. Case and publishers' additions are ignored:
`meta-llama/Llama-3.1-8B-Instruct` is `llama-3.1-8b`, `NVIDIA H200` is `h200`. Quantised
checkpoints have their published names: `Qwen/Qwen3-32B-FP8`,
`nvidia/Llama-3.3-70B-Instruct-NVFP4`, `qwen2.5-7b-awq`, `llama-3.1-8b-w4a16`.
"""

MODELS_TEXT = """\
For others give the path of a Hugging Face `config.json`, or its folder. `NAME-tpN-slice` is one
GPU's part of a model under tensor parallelism over N. Names of the same shape work too:
`deepseek-r1`, `qwen3-235b-a22b-thinking-2507`, `kimi-k2-thinking`, `glm-4.6`.

Parameters are in billions; *active* are those used for one token. KV bytes per token count all
layers, in the cache's precision, without savings by sliding windows. Context is the
default of `max_model_len`.
"""

ACCELERATORS_TEXT = """\
Peaks are dense; without such a unit (a dash) numbers are converted to bf16. Memory is what the
driver reports, where known. The link is per GPU and direction. Prices are examples of on-demand
prices in 2025 and 2026; set your own. [*Profile*](../explanation/step-time-models.md#profiles) is
the default of the `physics` step-time model: a name if fitted to this accelerator, *scaled* from
the nearest measured one, or *generic* if nothing similar was measured.
"""
USUAL = ("NVIDIA data sheet", "AMD data sheet", "Google Cloud documentation")


def page() -> str:
    """The whole page."""
    models = [
        "| model | parameters | active | KV bytes per token | context, Ki |",
        "|---|--:|--:|--:|--:|",
    ]
    models += [_model_row(shape) for shape in MODELS.values()]
    accelerators = [
        "| accelerator | GiB | GB/s | bf16 TFLOP/s | fp8 TFLOP/s | link, GB/s | $/h | profile |",
        "|---|--:|--:|--:|--:|---|--:|---|",
    ]
    accelerators += [_accelerator_row(each) for each in ACCELERATORS.values()]
    shapes = {name: source_of(name).partition(", in ")[2] for name in MODELS}
    figures = {one.name: one.source for one in ACCELERATORS.values() if one.source not in USUAL}
    parts = [
        INTRODUCTION,
        f"## {len(MODELS)} models\n",
        MODELS_TEXT,
        "\n".join(models) + "\n",
        f"Shapes are from the publishers' `config.json`; others: {_by_source(shapes)}.\n",
        f"## {len(ACCELERATORS)} accelerators\n",
        ACCELERATORS_TEXT,
        "\n".join(accelerators) + "\n",
        f"Figures are the vendors'; others: {_by_source(figures)}.\n",
    ]
    return "\n".join(parts)


def _by_source(sources: Mapping[str, str]) -> str:
    """Names by where their figures are from; those without a word are left out."""
    found: dict[str, list[str]] = {}
    for name, source in sources.items():
        if source:
            found.setdefault(source, []).append(f"`{name}`")
    return "; ".join(f"{', '.join(names)} ({source})" for source, names in found.items())


def _model_row(shape: ModelShape) -> str:
    cells = [
        f"`{shape.name}`",
        f"{shape.params / GIGA:.2f}",
        f"{shape.active_params / GIGA:.2f}",
        f"{shape.kv_bytes_per_token:,.0f}",
        f"{shape.max_context // KIB:,}",
    ]
    return f"| {' | '.join(cells)} |"


def _accelerator_row(accelerator: Accelerator) -> str:
    price = accelerator.price_per_hour
    cells = [
        f"`{accelerator.name}`",
        f"{accelerator.memory_bytes / GIB:g}",
        f"{accelerator.hbm_bytes_per_s / GIGA:,.0f}",
        f"{accelerator.bf16_flops / TERA:,g}",
        f"{accelerator.fp8_flops / TERA:,g}" if accelerator.fp8_flops else "-",
        f"{accelerator.link} {accelerator.link_bytes_per_s / GIGA:g}",
        f"{price:.2f}" if price is not None else "-",
        _basis(profile_for(accelerator)),
    ]
    return f"| {' | '.join(cells)} |"


def _basis(profile: Profile) -> str:
    """What a profile was fitted to."""
    if profile.scaled_from:
        return f"scaled from `{profile.scaled_from}`"
    if not profile.calibrated:
        return "generic"
    return f"`{profile.name}`" + ", whole steps" * ("shapes" in profile.errors)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
