"""Reads a Hugging Face `config.json` into a ModelShape, or says in one sentence what is wrong.

The file is not ours: it may be huge, for another kind of model, or nonsense. Each number is checked
for type and range, and values that determine speed or memory are never guessed.
"""

from __future__ import annotations

import codecs
import json
from pathlib import Path
from typing import Any, TypeVar

from windtunnel.core.errors import InputError, nearest
from windtunnel.core.system.files import read_bounded
from windtunnel.models.catalog.hf_quantization import Precisions, read_precisions, with_kept
from windtunnel.models.catalog.shapes import (
    GATED_DELTA_NET,
    MAMBA2,
    PLAIN_BYTES,
    ModelShape,
    encoder_params,
)

__all__ = ["parse_hf_config", "read_hf_config"]

QUANTIZATION_FILE = "hf_quant_config.json"  # where ModelOpt writes it, beside the configuration
MAX_FILE_BYTES = 4 * 1024 * 1024
MAX_LAYERS = 4096
MAX_WIDTH = 1 << 22  # of any matrix: hidden, MLP, vocabulary
MAX_HEADS = 1 << 14
MAX_EXPERTS = 1 << 14
MAX_CONTEXT = 1 << 30

_EXPERTS = (
    "num_experts",
    "moe_num_experts",
    "n_routed_experts",
    "num_local_experts",
    "num_routed_experts",
)
_EXPERTS_PER_TOKEN = (
    "num_experts_per_tok",
    "experts_per_token",
    "moe_topk",
    "moe_top_k",
    "top_k",
    "top_k_experts",
)
_MOE_STEP = (
    "interleave_moe_layer_step",
    "decoder_sparse_step",
    "moe_layer_freq",
    "moe_layer_interval",
)
_MTP_LAYERS = ("num_nextn_predict_layers", "num_mtp_modules", "mtp_num_hidden_layers")
_SHARED_FFN = (
    "shared_expert_intermediate_size",
    "moe_shared_expert_intermediate_size",
    "shared_intermediate_size",
)
_CONTEXT = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "n_ctx")
_EXPERT_FFN = ("moe_intermediate_size", "expert_intermediate_size")

# Model types whose MLP has no gate, so two matrices instead of three.
_UNGATED = ("gpt2", "gpt_bigcode", "gpt_neox", "gptj", "opt", "falcon", "bloom", "mpt", "phi")
_UNGATED_MORE = ("starcoder2", "nemotron", "nemotron_h", "codegen", "persimmon")

# Model types with layers whose cache and speed are not modelled.
_NOT_MODELLED = (
    "mamba",
    "jamba",
    "bamba",
    "zamba",
    "rwkv",
    "falcon_h1",
    "kimi_linear",
    "kimi_k3",
    "minimax_text",
    "minimax_m1",
    "minimax_m3",
    "deepseek_v4",
    "gemma3n",
    "gemma4_assistant",  # drafters that read the cache of their model
    "gemma4_unified_assistant",
    "lfm2",
    "plamo2",
    "xlstm",
    "nemotron-nas",
    "longcat",
)
_NOT_MODELLED_MORE = ("recurrent_gemma", "t5", "bart", "whisper", "bert")
_DIFFUSION = ("llada", "dream", "sdar", "diffusion_gemma")  # text is not generated token by token

# Fields of layers that are not modelled, whatever the model type is called.
_FIELDS_NOT_MODELLED = {
    "compress_ratios": "compressed sparse attention",
    "sparse_attention_config": "block-sparse attention",
    "sparse_config": "block-sparse attention",
    "linear_attn_config": "linear attention beside latent attention",
    "attn_type_list": "lightning attention",
    "layer_group_size": "lightning attention",
    "full_attn_idxs": "convolutions instead of attention",
    "block_configs": "layers of different sizes",
    "hybrid_layer_pattern": "windowed layers with heads of their own",
    "swa_num_attention_heads": "windowed layers with heads of their own",
    "attention_other_setting": "windowed layers with heads of their own",
    "num_key_value_heads_per_layer": "layers with different heads",
    "num_kv_shared_layers": "layers that share their keys and values",
    "hidden_size_per_layer_input": "embeddings in every layer",
    "zero_expert_num": "experts that compute nothing",
}

# Fields of recurrent layers, which say nothing of where those layers are.
_RECURRENT_FIELDS = (
    "linear_num_value_heads",
    "mamba_num_heads",
    "mamba_n_heads",
    "mamba_d_state",
    "ssm_state_size",
)

# Model types in which every layer has the window, if there is one.
_ALL_WINDOWED = ("mistral", "ministral", "mixtral", "phi3", "phimoe", "starcoder2")

# In these every n-th layer is without a window.
_WINDOW_PATTERNS = {"gemma3": 6, "gemma2": 2, "gpt_oss": 2, "llama4": 4, "cohere2": 4}

_WINDOWED = ("sliding_attention", "chunked_attention")
_SPARSE = "deepseek_sparse_attention"
_FULL = ("full_attention", "attention", _SPARSE)
_RECURRENT = {"linear_attention": GATED_DELTA_NET, "mamba": MAMBA2}
"""Layer types that keep a state, and their kind in the families that have them."""
_LETTERS = {"mamba": "M", "moe": "E", "attention": "*", "mlp": "-"}
"""Kinds in `layers_block_type`, and their letters in `hybrid_override_pattern`."""

_STATE_BYTES = {
    "float32": 4.0,
    "bfloat16": PLAIN_BYTES,
    "float16": PLAIN_BYTES,
    "auto": PLAIN_BYTES,
}

# Fields that files of a family omit because its own code fills them in.
_FAMILY_DEFAULTS: dict[str, dict[str, object]] = {
    "gemma3": {
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "vocab_size": 262208,
        "max_position_embeddings": 131072,
        "tie_word_embeddings": True,
    },
}

# Rope scalings whose factor is already in max_position_embeddings.
_SCALING_INCLUDED = ("su", "longrope", "llama3", "gemma3", "mrope", "default", "proportional")


Value = TypeVar("Value")


class _Fields:
    """One JSON object, read field by field; an error names the file, the field and its value."""

    def __init__(self, values: dict[str, object], where: str) -> None:
        self.values = values
        self.where = where

    def fault(self, field: str, what: str, allowed: str, hint: str | None = None) -> InputError:
        return InputError(f"{field} {what}", where=self.where, allowed=allowed, hint=hint)

    def integer(self, names: tuple[str, ...], limit: int, least: int = 1) -> int | None:
        """The first of these fields that is present and not null."""
        allowed = f"a whole number from {least} to {limit}"
        for name in names:
            value = self.values.get(name)
            if value is None:
                continue
            if isinstance(value, float) and value.is_integer():
                value = int(value)
            if isinstance(value, bool) or not isinstance(value, int):
                raise self.fault(name, f"is {shown(value)}", allowed)
            if not least <= value <= limit:
                raise self.fault(name, f"is {shown(value)}", allowed)
            return value
        return None

    def required(self, names: tuple[str, ...], limit: int) -> int:
        value = self.integer(names, limit)
        if value is None:
            others = [key for key, found in self.values.items() if found is not None]
            hint = nearest(names[0], others) or "is this the config.json of a language model?"
            allowed = f"a whole number from 1 to {limit}"
            raise self.fault(names[0], "is missing", allowed, hint)
        return value

    def typed(self, name: str, kind: type[Value], allowed: str) -> Value | None:
        """A field of one JSON type, or null."""
        value = self.values.get(name)
        if value is None or isinstance(value, kind):
            return value
        raise self.fault(name, f"is {shown(value)}", allowed)

    def flag(self, name: str, *, default: bool) -> bool:
        value = self.typed(name, bool, "true or false")
        return default if value is None else value

    def table(self, name: str) -> _Fields | None:
        value = self.typed(name, dict, "an object or null")
        return None if value is None else _Fields(value, f"{self.where}: {name}")

    def text(self, name: str) -> str:
        return (self.typed(name, str, "a string or null") or "").lower()

    def factor(self, name: str) -> float:
        value = self.values.get(name)
        if value is None:
            return 1.0
        allowed = f"a number from 1 to {MAX_CONTEXT}"
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.fault(name, f"is {shown(value)}", allowed)
        if not 1 <= value <= MAX_CONTEXT:
            raise self.fault(name, f"is {shown(value)}", allowed)
        return float(value)

    def entries(self, name: str) -> list[object] | None:
        return self.typed(name, list, "a list or null")


def shown(value: object) -> str:
    """A value in readable form, truncated."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def read_hf_config(path: Path) -> ModelShape:
    """Reads the shape from the `config.json` at `path`."""
    where = str(path)
    values = _decoded(path)
    beside = path.with_name(QUANTIZATION_FILE)
    if isinstance(values, dict) and "quantization_config" not in values and beside.is_file():
        modelopt = _decoded(beside)
        if isinstance(modelopt, dict):
            values["quantization_config"] = modelopt.get("quantization")
    name = path.parent.name if path.name == "config.json" and path.parent.name else path.stem
    return parse_hf_config(values, where=where, name=name)


def _decoded(path: Path) -> Any:
    raw = read_bounded(path, MAX_FILE_BYTES, subject="the model configuration")
    try:
        return json.loads(raw.removeprefix(codecs.BOM_UTF8), parse_constant=_constant)
    except (ValueError, RecursionError) as error:
        raise InputError(f"is not JSON: {error}", where=str(path)) from error


def _constant(text: str) -> float:
    """Accepts Infinity, which is not JSON: files with Mamba layers have it as a limit of time
    steps."""
    if text == "NaN":
        raise ValueError("NaN is not a number")
    return float(text)


def parse_hf_config(values: object, *, where: str, name: str) -> ModelShape:
    """The shape in a decoded configuration; `where` names its origin in errors."""
    if not isinstance(values, dict):
        what = f"holds {shown(values)}"
        raise InputError(what, where=where, allowed="a JSON object with the fields of a model")
    fields = _merged(_Fields(values, where))
    _refuse_other_architectures(fields)
    layers = _layers(fields)
    hidden = fields.required(("hidden_size", "n_embd", "d_model", "dim"), MAX_WIDTH)
    heads = fields.required(("num_attention_heads", "n_head", "n_heads"), MAX_HEADS)
    kv_heads = _kv_heads(fields, heads)
    vocab = fields.required(("vocab_size",), MAX_WIDTH)
    latent = _latent(fields)
    precisions = read_precisions(fields.values, where, name)
    recurrent = _recurrent(fields, layers)
    layers = recurrent.pop("layers", layers)
    mixture = _mixture(fields, layers - recurrent.get("bare_layers", 0))
    shape = {
        "layers": layers,
        "hidden": hidden,
        "heads": heads,
        "kv_heads": heads if latent else kv_heads,
        "head_dim": latent.get("qk_nope_dim") or _head_dim(fields, hidden, heads),
        "ffn": _dense_ffn(fields, hidden, mixture),
        "vocab": vocab,
        "max_context": _max_context(fields),
        "mlp_matrices": 2 if fields.text("model_type") in _UNGATED + _UNGATED_MORE else 3,
        **latent,
        **mixture,
        **_windows(fields, layers),
        **_full_heads(fields, heads),
        **recurrent,
        "encoder_params": _encoder(fields),
        "mtp_layers": fields.integer(_MTP_LAYERS, layers, least=0) or 0,
    }
    found = _shape(name, fields, shape, precisions)
    return with_kept(found, fields.values, where, _pattern(fields))


def _layers(fields: _Fields) -> int:
    """The number of layers, as the file counts them."""
    pattern = _pattern(fields)
    if pattern:
        return len(pattern)
    return fields.required(("num_hidden_layers", "n_layer", "n_layers", "num_layers"), MAX_LAYERS)


def _shape(name: str, fields: _Fields, sizes: dict[str, int], precisions: Precisions) -> ModelShape:
    kind, state_bytes = _state_numbers(fields, sizes)
    try:
        return ModelShape(
            name=name,
            tied_embeddings=fields.flag("tie_word_embeddings", default=_tied_by_default(fields)),
            weight_bytes=precisions.weight_bytes,
            expert_weight_bytes=precisions.expert_weight_bytes,
            matmul_precision=precisions.matmul_precision,
            kv_bytes=precisions.kv_bytes,
            gated_attention=fields.flag(
                "attn_output_gate", default=fields.text("model_type").startswith("qwen3_next")
            ),
            recurrence=kind,
            state_bytes=state_bytes,
            **sizes,
        )
    except InputError as error:
        raise InputError(error.what, where=fields.where, allowed=error.allowed) from error


def _merged(fields: _Fields) -> _Fields:
    """Merges in the language model of a multimodal configuration, whose fields take precedence."""
    values = fields.values
    for key in ("text_config", "llm_config", "language_config"):
        inner = fields.table(key)
        if inner is not None:
            values = {**values, **inner.values}
            break
    merged = _Fields(values, fields.where)
    for family, defaults in _FAMILY_DEFAULTS.items():
        if merged.text("model_type").startswith(family):
            merged = _Fields({**defaults, **values}, fields.where)
    return merged


def _refuse_other_architectures(fields: _Fields) -> None:
    model_type = fields.text("model_type")
    allowed = "a model of attention, gated DeltaNet or Mamba-2 layers with MLPs or experts"
    not_modelled = _NOT_MODELLED + _NOT_MODELLED_MORE + _DIFFUSION
    if model_type == "minimax" or model_type.startswith(not_modelled):  # M2 is, 01 is not
        what = f"{model_type!r} has layers that are not modelled"
        raise fields.fault("model_type", what, allowed)
    if fields.flag("is_encoder_decoder", default=False):
        what = f"{model_type!r} is not a decoder-only transformer"
        raise fields.fault("model_type", what, allowed)
    for kind in fields.entries("layer_types") or ():
        if kind not in (*_FULL, *_WINDOWED, *_RECURRENT):
            allowed = ", ".join((*_FULL, *_WINDOWED, *_RECURRENT))
            raise fields.fault("layer_types", f"holds {shown(kind)}", allowed)
        if kind == _SPARSE and not fields.values.get("index_topk"):
            raise fields.fault("layer_types", f"holds {kind} without index_topk", "both")
    for field, what in _FIELDS_NOT_MODELLED.items():
        value = fields.values.get(field)
        if value and not (field == "attn_type_list" and _all_full(value)):
            raise fields.fault(field, f"is {shown(value)}, for {what}: not modelled", allowed)


def _all_full(attention: object) -> bool:
    """Whether the attention of MiniMax models is full in all layers, as since M2."""
    return isinstance(attention, list) and all(kind == 1 for kind in attention)


def _tied_by_default(fields: _Fields) -> bool:
    """Whether embeddings are tied if the file does not say so: the default of these families."""
    return fields.text("model_type").startswith(("gemma", "gpt2", "opt", "bloom", "falcon"))


def _kv_heads(fields: _Fields, heads: int) -> int:
    names = ("num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num")
    if fields.text("model_type") == "falcon":
        if fields.flag("new_decoder_architecture", default=False):
            return fields.integer(("num_kv_heads",), heads) or heads
        return 1 if fields.flag("multi_query", default=True) else heads
    if fields.flag("multi_query", default=False) and not any(map(fields.values.get, names)):
        return 1
    kv_heads = fields.integer(names, heads) or heads
    if heads % kv_heads:
        allowed = f"a divisor of num_attention_heads, {heads}"
        raise fields.fault("num_key_value_heads", f"is {kv_heads}", allowed)
    return kv_heads


def _head_dim(fields: _Fields, hidden: int, heads: int) -> int:
    head_dim = fields.integer(("head_dim", "attention_head_dim", "kv_channels"), MAX_WIDTH)
    if head_dim is not None:
        return head_dim
    if hidden % heads:
        what = f"is {heads} but hidden_size is {hidden} and there is no head_dim"
        raise fields.fault("num_attention_heads", what, f"a divisor of {hidden}, or a head_dim")
    return hidden // heads


def _full_heads(fields: _Fields, heads: int) -> dict[str, int]:
    """Heads of full-attention layers, in families where windowed layers have others (Gemma 4).

    The number counts only where keys serve as values, as in vLLM.
    """
    kv_heads = fields.integer(("num_global_key_value_heads",), heads) or 0
    return {
        "full_kv_heads": kv_heads if fields.flag("attention_k_eq_v", default=False) else 0,
        "full_head_dim": fields.integer(("global_head_dim",), MAX_WIDTH) or 0,
    }


def _latent(fields: _Fields) -> dict[str, int]:
    """Latent attention, present if the file has a rank for the compressed keys and values."""
    rank = fields.integer(("kv_lora_rank",), MAX_WIDTH, least=0)
    if not rank:
        if fields.values.get("index_topk"):
            raise fields.fault("index_topk", "is given without kv_lora_rank", "both, or neither")
        return {}
    return {
        "kv_lora_rank": rank,
        "q_lora_rank": fields.integer(("q_lora_rank",), MAX_WIDTH, least=0) or 0,
        "qk_rope_dim": fields.required(("qk_rope_head_dim",), MAX_WIDTH),
        "qk_nope_dim": fields.required(("qk_nope_head_dim",), MAX_WIDTH),
        "v_head_dim": fields.required(("v_head_dim",), MAX_WIDTH),
        **_indexer(fields),
    }


def _indexer(fields: _Fields) -> dict[str, int]:
    """Sparse attention, present if the file says how many tokens its indexer picks."""
    picked = fields.integer(("index_topk",), MAX_CONTEXT, least=0)
    if not picked:
        return {}
    return {
        "index_topk": picked,
        "index_heads": fields.required(("index_n_heads",), MAX_HEADS),
        "index_dim": fields.required(("index_head_dim",), MAX_WIDTH),
        "index_layers": _indexers(fields),
    }


def _indexers(fields: _Fields) -> int:
    """How many layers have an indexer, while others share what it picked; 0: all."""
    kinds = fields.entries("indexer_types")
    if kinds is None:
        if (fields.integer(("index_topk_freq",), MAX_LAYERS) or 1) > 1:
            what = "is above 1 without indexer_types"
            raise fields.fault("index_topk_freq", what, "a list of full and shared indexers")
        return 0
    for kind in kinds:
        if kind not in ("full", "shared"):
            raise fields.fault("indexer_types", f"holds {shown(kind)}", "full, shared")
    own = kinds.count("full")
    if not own:
        raise fields.fault("indexer_types", "has no full indexer", "at least one")
    return 0 if own == len(kinds) else own


def _encoder(fields: _Fields) -> int:
    """Parameters of a vision encoder; one in an unknown format is ignored, since encoders are
    small."""
    vision = fields.table("vision_config")
    if vision is None:
        return 0
    layers = vision.integer(("num_hidden_layers", "depth"), MAX_LAYERS) or 0
    return encoder_params(layers, vision.integer(("hidden_size",), MAX_WIDTH) or 0)


def _mixture(fields: _Fields, layers: int) -> dict[str, int]:
    """Experts; fewer than two mean a dense model, as in files of families that have both."""
    experts = fields.integer(_EXPERTS, MAX_EXPERTS, least=0) or 0
    if experts < 2 or not fields.flag("enable_moe_block", default=True):
        return {}
    ffn_names = ("intermediate_size", "ffn_hidden_size")
    expert_ffn = fields.integer(_EXPERT_FFN, MAX_WIDTH) or fields.required(ffn_names, MAX_WIDTH)
    per_token = fields.required(_EXPERTS_PER_TOKEN, experts)
    pattern = fields.values.get("moe_layer_freq")
    kinds = fields.entries("mlp_layer_types")
    if kinds is not None:
        pattern = [kind != "dense" for kind in kinds]
    if isinstance(pattern, list):  # one entry per layer, 1 where it has experts
        prefix, step = sum(1 for entry in pattern[:layers] if not entry), 1
    else:
        prefix_names = ("first_k_dense_replace", "moe_layer_start_index")
        prefix = fields.integer(prefix_names, layers, least=0) or 0
        prefix = prefix or min(layers, len(fields.entries("mlp_only_layers") or ()))
        step = fields.integer(_MOE_STEP, layers) or 1
    return {
        "experts": experts,
        "experts_per_token": per_token,
        "expert_ffn": expert_ffn,
        "shared_ffn": _shared_ffn(fields, expert_ffn),
        "dense_prefix_layers": prefix,
        "moe_layer_step": step,
    }


def _shared_ffn(fields: _Fields, expert_ffn: int) -> int:
    width = fields.integer(_SHARED_FFN, MAX_WIDTH, least=0)
    if width is not None:
        return width
    if fields.flag("enable_moe_block", default=False):  # an MLP beside the experts of each layer
        return fields.required(("intermediate_size",), MAX_WIDTH)
    names = (
        "n_shared_experts",
        "num_shared_experts",
        "moe_num_shared_experts",
        "num_shared_expert",
    )
    shared = fields.integer(names, MAX_EXPERTS, least=0)
    if shared is None and fields.text("model_type").startswith("llama4"):
        shared = 1
    return (shared or 0) * expert_ffn


def _recurrent(fields: _Fields, layers: int) -> dict[str, int]:
    """Recurrent layers: from a pattern of letters, the list of layer types, or an interval.

    Where the file counts MLPs as layers, a layer here is a mixer with the MLP that follows, if any.
    """
    pattern = _pattern(fields)
    if pattern is not None:
        return _patterned(fields, pattern)
    kinds = fields.entries("layer_types")
    interval = fields.integer(("full_attention_interval",), MAX_LAYERS)
    if kinds is not None:
        found = [kind for kind in kinds if kind in _RECURRENT]
        number, mamba = len(found), "mamba" in found
        if len(set(found)) > 1:
            raise fields.fault("layer_types", "holds linear_attention and mamba", "one of them")
    elif interval:
        number, mamba = layers - layers // interval, False
    else:
        unplaced = [field for field in _RECURRENT_FIELDS if fields.values.get(field)]
        if unplaced:
            what = "is given, but not which layers are recurrent"
            raise fields.fault(unplaced[0], what, "layer_types, or hybrid_override_pattern")
        return {}
    if not number:
        return {}
    return {"recurrent_layers": number, **(_mamba(fields) if mamba else _delta_net(fields))}


def _pattern(fields: _Fields) -> str | None:
    """What each layer is, in files that count MLPs as layers: M, E, * or -."""
    kinds = fields.entries("layers_block_type")
    if kinds is None:
        return fields.typed("hybrid_override_pattern", str, "a string of M, E, * and -")
    for kind in kinds:
        if str(kind) not in _LETTERS:
            raise fields.fault("layers_block_type", f"holds {shown(kind)}", ", ".join(_LETTERS))
    return "".join(_LETTERS[str(kind)] for kind in kinds)


def _patterned(fields: _Fields, pattern: str) -> dict[str, int]:
    wrong = sorted(set(pattern) - set("ME*-"))
    if wrong or not pattern:
        what = f"is {shown(pattern)}"
        raise fields.fault("hybrid_override_pattern", what, "one of M, E, * and - for each layer")
    mixers, mlps = sum(map(pattern.count, "M*")), sum(map(pattern.count, "E-"))
    if mlps > mixers or ("E" in pattern and "-" in pattern):
        what = f"is {shown(pattern)}"
        allowed = "MLPs or experts, not both, and no more of them than of M and *"
        raise fields.fault("hybrid_override_pattern", what, allowed)
    found = {"layers": mixers, "bare_layers": mixers - mlps, "recurrent_layers": pattern.count("M")}
    latent = fields.integer(("moe_latent_size",), MAX_WIDTH, least=0) or 0
    return {**found, "expert_hidden": latent, **(_mamba(fields) if "M" in pattern else {})}


def _delta_net(fields: _Fields) -> dict[str, int]:
    return {
        "state_heads": fields.required(("linear_num_value_heads",), MAX_HEADS),
        "state_head_dim": fields.required(("linear_value_head_dim",), MAX_WIDTH),
        "state_key_heads": fields.required(("linear_num_key_heads",), MAX_HEADS),
        "state_key_dim": fields.required(("linear_key_head_dim",), MAX_WIDTH),
        "convolution": fields.integer(("linear_conv_kernel_dim",), MAX_HEADS) or 4,
    }


def _mamba(fields: _Fields) -> dict[str, int]:
    return {
        "state_heads": fields.required(("mamba_num_heads", "mamba_n_heads"), MAX_HEADS),
        "state_head_dim": fields.required(("mamba_head_dim", "mamba_d_head"), MAX_WIDTH),
        "state_key_heads": fields.required(("n_groups", "mamba_n_groups"), MAX_HEADS),
        "state_key_dim": fields.required(("ssm_state_size", "mamba_d_state"), MAX_WIDTH),
        "convolution": fields.integer(("conv_kernel", "mamba_d_conv"), MAX_HEADS) or 4,
    }


def _state_numbers(fields: _Fields, sizes: dict[str, int]) -> tuple[str, float]:
    """The kind of recurrence, and the bytes per number of its state in vLLM."""
    if not sizes.get("recurrent_layers"):
        return "", _STATE_BYTES["float32"]
    kind = GATED_DELTA_NET if "linear_num_value_heads" in fields.values else MAMBA2
    default = "float32" if fields.text("model_type") == "nemotron_h" else "auto"
    for name in ("mamba_ssm_cache_dtype", "mamba_ssm_dtype"):
        dtype = fields.text(name)
        if dtype and dtype not in _STATE_BYTES:
            raise fields.fault(name, f"is {shown(dtype)}", ", ".join(_STATE_BYTES))
        default = dtype or default
    return kind, _STATE_BYTES[default]


def _dense_ffn(fields: _Fields, hidden: int, mixture: dict[str, int]) -> int:
    """MLP width of the layers without experts; in Llama 4 the usual field is that of the
    experts."""
    if mixture:
        width = fields.integer(("intermediate_size_mlp", "intermediate_size"), MAX_WIDTH)
        return width or mixture["expert_ffn"]
    names = ("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size", "d_ff")
    if fields.text("model_type") in {"gpt2", "gpt_bigcode", "falcon"}:
        return fields.integer(names, MAX_WIDTH) or 4 * hidden
    return fields.required(names, MAX_WIDTH)


def _windows(fields: _Fields, layers: int) -> dict[str, int]:
    """The number of sliding-window layers, from the list of layer types or the pattern."""
    kinds = fields.entries("layer_types")
    if kinds is not None and len(kinds) != layers:
        what = f"has {len(kinds)} entries for {layers} layers"
        raise fields.fault("layer_types", what, "one for each layer, or null")
    window = fields.integer(("sliding_window", "attention_chunk_size"), MAX_CONTEXT, least=0)
    if not window:
        return {}
    if kinds is not None:
        local = sum(1 for kind in kinds if kind in _WINDOWED)
        return {"window": window, "window_layers": local}
    if window >= (fields.integer(_CONTEXT, MAX_CONTEXT) or 0):
        return {}
    pattern = fields.integer(("sliding_window_pattern", "_sliding_window_pattern"), layers)
    model_type = fields.text("model_type")
    if pattern is None:
        patterns = [n for family, n in _WINDOW_PATTERNS.items() if model_type.startswith(family)]
        pattern = patterns[0] if patterns else None
    if pattern is not None:
        return {"window": window, "window_layers": layers - layers // pattern}
    if not fields.flag("use_sliding_window", default=not model_type.startswith("qwen")):
        return {}
    full = fields.integer(("max_window_layers",), layers, least=0)
    if full is None and not model_type.startswith((*_ALL_WINDOWED, "qwen")):
        what = f"is {window}, but not which layers have it"
        raise fields.fault("sliding_window", what, "layer_types, or sliding_window_pattern")
    return {"window": window, "window_layers": layers - (full or 0)}


def _max_context(fields: _Fields) -> int:
    """The longest sequence, extended by rope scaling unless the file's length already includes
    it."""
    longest = fields.required(_CONTEXT, MAX_CONTEXT)
    scaling = fields.table("rope_scaling") or fields.table("rope_parameters")
    if scaling is None:
        return longest
    kind = scaling.text("rope_type") or scaling.text("type")
    factor = scaling.factor("factor")
    if not kind or kind in _SCALING_INCLUDED or scaling.values.get("factor") is None:
        return longest
    if fields.text("model_type").startswith("gemma3"):
        return longest
    if kind == "yarn":
        original = scaling.integer(("original_max_position_embeddings",), MAX_CONTEXT)
        longest = original or longest
    return min(MAX_CONTEXT, int(longest * factor))
