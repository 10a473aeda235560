"""Writes docs/reference/catalog.md from the catalogs of models and accelerators.

Run it after a change of either: `python docs/catalog_reference.py`. A test holds the page to it.
"""

from pathlib import Path

from windtunnel.models.catalog.accelerators import ACCELERATORS, GIB, GIGA, TERA, Accelerator
from windtunnel.models.catalog.models import MODELS, source_of
from windtunnel.models.catalog.shapes import ModelShape
from windtunnel.models.step_time.profile import Profile, profile_for

PAGE = Path(__file__).parent / "reference" / "catalog.md"
KIB = 1024

INTRODUCTION = """\
# Catalog

The names that `model` and `accelerator` of a scenario know. Case does not matter, nor does what
publishers add to a name: `meta-llama/Llama-3.1-8B-Instruct` is `llama-3.1-8b`, `NVIDIA H200` is
`h200`. Quantised checkpoints are named as they are published: `Qwen/Qwen3-32B-FP8`,
`nvidia/Llama-3.3-70B-Instruct-NVFP4`, `qwen2.5-7b-awq`, `llama-3.1-8b-w4a16`.
"""

MODELS_TEXT = """\
Not in the list? Give the path of a Hugging Face `config.json`, or of the folder that holds one.
`NAME-tpN-slice` is one GPU's part of a model under tensor parallelism over N. Names of the same
shape are known too: `deepseek-r1`, `qwen3-235b-a22b-thinking-2507`, `kimi-k2-thinking`, `glm-4.6`.

Parameters are counted from the shape, in billions; *active* are those that one token is
multiplied with: not the input table, and of a mixture only the chosen experts. KV bytes per token
are those of the whole model over all layers, in the cache's precision, without what sliding
windows save. Context is the longest sequence, and what `max_model_len` is where it is left out.
"""

ACCELERATORS_TEXT = """\
Peaks are the vendors' dense figures; a dash means that there is no such unit, and numbers are
converted to bf16. Memory is what the driver reports where that is known. The link is per GPU and
direction. Prices are examples of on-demand prices in 2025 and 2026, per accelerator and hour; set
your own. The profile is what the `physics` step-time model takes when a scenario names none:

- *whole steps*: fitted to whole inference steps that were measured on this accelerator;
- *operators*: fitted to timings of single operators, no whole step was measured;
- *scaled*: not measured; it has the fractions of the peaks that the nearest measured one reaches;
- *generic*: nothing similar has been measured. Its efficiencies lie between those of
  measured kinds; take care.

[Step-time models](../explanation/step-time-models.md) has the errors. `windtunnel profile` and
`windtunnel calibrate` make a profile of your own.
"""


def page() -> str:
    """The whole page."""
    models = [
        "| model | parameters | active | KV bytes per token | context | shape from |",
        "|---|--:|--:|--:|--:|---|",
    ]
    models += [_model_row(shape) for shape in MODELS.values()]
    accelerators = [
        "| accelerator | GiB | GB/s | bf16 TFLOP/s | fp8 TFLOP/s | link, GB/s | $/h | profile "
        "| figures from |",
        "|---|--:|--:|--:|--:|---|--:|---|---|",
    ]
    accelerators += [_accelerator_row(each) for each in ACCELERATORS.values()]
    parts = [
        INTRODUCTION,
        f"## {len(MODELS)} models\n",
        MODELS_TEXT,
        "\n".join(models) + "\n",
        f"## {len(ACCELERATORS)} accelerators\n",
        ACCELERATORS_TEXT,
        "\n".join(accelerators) + "\n",
    ]
    return "\n".join(parts)


def _model_row(shape: ModelShape) -> str:
    cells = [
        f"`{shape.name}`",
        f"{shape.params / GIGA:.2f}",
        f"{shape.active_params / GIGA:.2f}",
        f"{shape.kv_bytes_per_token:,.0f}",
        f"{shape.max_context // KIB:,} Ki",
        source_of(shape.name),
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
        accelerator.source,
    ]
    return f"| {' | '.join(cells)} |"


def _basis(profile: Profile) -> str:
    """What a profile was fitted to."""
    if profile.scaled_from:
        return f"scaled from `{profile.scaled_from}`"
    if not profile.calibrated:
        return "generic"
    kind = "whole steps" if "shapes" in profile.errors else "operators"
    return f"`{profile.name}`, {kind}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
