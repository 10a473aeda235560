"""The shapes of drafters: an EAGLE-3 head, layers for multi-token prediction, a small model."""

from __future__ import annotations

import msgspec

from windtunnel.core.errors import InputError
from windtunnel.models.catalog.models import resolve_model
from windtunnel.models.catalog.shapes import ModelShape

__all__ = ["Drafter", "drafter_of"]

EAGLE_VOCAB = 32_000  # published EAGLE-3 heads draft from the most frequent tokens alone
EAGLE_GROUP = 8  # query heads to a key-value head, where the model's own are compressed


class Drafter(msgspec.Struct, frozen=True):
    """A drafter's shape, and the bytes of its weights that it does not share with the model."""

    shape: ModelShape
    own_weight_bytes: float


def drafter_of(method: str, target: ModelShape, model: str | None) -> Drafter | None:
    """The drafter of a method for a model; None if the host finds drafts in the prompt."""
    if method == "ngram":
        return None
    if method == "draft_model":
        assert model is not None, "a scenario without one is refused when it is loaded"
        shape = resolve_model(model)
        if shape.vocab > target.vocab * 1.05 or shape.vocab < target.vocab * 0.95:
            what = f"{shape.name} has {shape.vocab:,} tokens, and {target.name} {target.vocab:,}"
            raise InputError(what, allowed="a drafter of the same vocabulary")
        return Drafter(shape, shape.total_weight_bytes)
    if method == "mtp":
        if not target.mtp_layers:
            what = f"{target.name} has no layers for multi-token prediction"
            raise InputError(what, allowed="eagle3, ngram or draft_model")
        return _mtp(target)
    return _eagle(target)


def _mtp(target: ModelShape) -> Drafter:
    """One more layer of the model, preceded by a projection of two vectors into one.

    The input table and output head are the model's own.
    """
    layer = msgspec.structs.replace(
        target,
        name=f"{target.name}-mtp",
        layers=1,
        dense_prefix_layers=0,
        moe_layer_step=1,
        window_layers=0,
        index_layers=0,
        recurrent_layers=0,
        bare_layers=0,
        encoder_params=0,
    )
    shared = layer.embedding_params * layer.embedding_bytes
    projection = 2 * target.hidden**2 * target.embedding_bytes
    return Drafter(layer, layer.total_weight_bytes - shared + projection)


def _eagle(target: ModelShape) -> Drafter:
    """One dense 16-bit decoder layer of the model's width, and a small output head."""
    kv_heads = target.kv_heads
    if target.is_latent:
        kv_heads = max(1, target.heads // EAGLE_GROUP)
    layer = ModelShape(
        name=f"{target.name}-eagle3",
        layers=1,
        hidden=target.hidden,
        heads=target.heads,
        kv_heads=kv_heads,
        head_dim=target.head_dim,
        ffn=max(target.ffn, target.experts_per_token * target.expert_ffn),
        vocab=min(EAGLE_VOCAB, target.vocab),
        max_context=target.max_context,
        tied_embeddings=True,
    )
    # The vectors of three layers become one, which attention takes with the token's own.
    into = 3 * target.hidden**2 + target.hidden * target.head_dim * (target.heads + 2 * kv_heads)
    return Drafter(layer, layer.total_weight_bytes + into * layer.weight_bytes)
