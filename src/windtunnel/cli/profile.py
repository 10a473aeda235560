"""`windtunnel profile`: measures step times on this machine's GPU, for `windtunnel calibrate`."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from windtunnel.cli.options import FiniteRange
from windtunnel.core.errors import InputError
from windtunnel.live.profile_gpu import DecoderShape, measure
from windtunnel.models.catalog.models import resolve_model


@click.command(short_help="Measure the step times of this machine's GPU.")
@click.option("--shapes", default="llama-3.1-8b", show_default=True, metavar="NAME,...",
              help="Dense models or slices, such as llama-3.1-70b-tp8-slice.")  # fmt: skip
@click.option("-o", "--output", default="step_times.jsonl", show_default=True, metavar="FILE",
              type=click.Path(path_type=Path), help="Output file.")  # fmt: skip
@click.option("--limit-minutes", type=FiniteRange(min=0, min_open=True), metavar="MINUTES",
              help="Stop after this long, with partial results.")  # fmt: skip
def profile(shapes: str, output: Path, limit_minutes: float | None) -> None:
    """Measure the step times of this machine's GPU.

    A model with random weights runs prefills, decodes and mixed steps of many sizes. Needs PyTorch
    (the extra `profile`) and a GPU; a full profile of an 8B model takes about two minutes.
    `windtunnel calibrate` fits the step-time model to the result.
    """
    decoders = [decoder_shape(name.strip()) for name in shapes.split(",")]
    limit_s = None if limit_minutes is None else 60.0 * limit_minutes
    written = measure(decoders, output, limit_s=limit_s, progress=partial(click.echo, err=True))
    click.echo(f"Wrote {written} measurements to {output}")


def decoder_shape(name: str) -> DecoderShape:
    """A catalog model in the form that the measurement needs; only dense models can be measured."""
    shape = resolve_model(name)
    if shape.is_mixture or shape.is_latent or shape.window_layers:
        what = f"{name} has experts, latent attention or windows, which are not measured"
        raise InputError(what, where="--shapes", allowed="dense models with plain attention")
    sizes = (
        shape.layers,
        shape.hidden,
        shape.heads,
        shape.kv_heads,
        shape.head_dim,
        shape.ffn,
        shape.vocab,
    )
    return DecoderShape(shape.name, sizes)
