"""The precisions in a Hugging Face configuration: its dtype and its `quantization_config`."""

from __future__ import annotations

import re
from fnmatch import translate

import msgspec

from windtunnel.core.errors import InputError
from windtunnel.models.catalog.shapes import PLAIN_BYTES, ModelShape

__all__ = ["Precisions", "precisions_of_name", "read_precisions", "with_kept"]

MXFP4_GROUP = 32
MXFP4_BYTES = 4.25 / 8  # four bits, and an eight-bit scale for every 32 of them
NVFP4_BYTES = 4.5 / 8  # four bits, and an eight-bit scale for every 16

_PLAIN_TYPES = ("float32", "float16", "bfloat16", "float", "half", "fp32", "fp16", "bf16", "auto")
_EIGHT_BIT_TYPES = ("float8_e4m3fn", "float8_e5m2", "fp8")
LARGEST_GROUP = 1 << 20
_BITS = (1, 2, 3, 4, 5, 6, 8, 16)
_METHODS = "awq, gptq, compressed-tensors, fp8, mxfp4, nvfp4, bitsandbytes, or a number of bits"


class Precisions(msgspec.Struct, frozen=True, kw_only=True):
    """Stored bytes per weight, and the precision of the matrix multiplications."""

    weight_bytes: float = PLAIN_BYTES
    expert_weight_bytes: float = PLAIN_BYTES
    matmul_precision: str = "bf16"
    kv_bytes: float = PLAIN_BYTES  # of a cached number


def _everywhere(weight_bytes: float, matmul_precision: str) -> Precisions:
    return Precisions(
        weight_bytes=weight_bytes,
        expert_weight_bytes=weight_bytes,
        matmul_precision=matmul_precision,
    )


def read_precisions(values: dict[str, object], where: str, name: str) -> Precisions:
    """Precisions from the configuration's fields, or else from a name like `...-w4a16` or
    `...-fp8`."""
    plain = _plain(values, where)
    quantization = values.get("quantization_config")
    if quantization is None:
        quantization = values.get("compression_config")
    if quantization is None:
        return precisions_of_name(name)[1] or plain
    config = _object(quantization, "quantization_config", where)
    where = f"{where}: quantization_config"
    found = _from_config(config, where)
    return msgspec.structs.replace(found, kv_bytes=_kv_bytes(config, where))


def _kv_bytes(config: dict[str, object], where: str) -> float:
    """Bytes per cached number that the checkpoint asks for, in the field of ModelOpt or of
    compressed-tensors."""
    field = "kv_cache_quant_algo"
    algorithm = config.get(field)
    if algorithm not in {None, "", "FP8", "fp8"}:
        raise InputError(f"{field} is {algorithm!r:.60}", where=where, allowed="FP8, or null")
    scheme = config.get("kv_cache_scheme")
    bits = None
    if isinstance(scheme, dict):
        bits = _bits(scheme.get("num_bits"), "num_bits of the kv_cache_scheme", where)
    elif scheme not in {None, "", "static", "dynamic"}:
        raise InputError(f"kv_cache_scheme is {scheme!r:.60}", where=where, allowed="an object")
    if bits not in {None, 8, 16}:
        what = f"num_bits of the kv_cache_scheme is {bits}"
        raise InputError(what, where=where, allowed="8 or 16")
    return 1.0 if algorithm or bits == 8 else PLAIN_BYTES


_LAYERS = (
    "model.layers",
    "model.language_model.layers",
    "language_model.model.layers",
    "backbone.layers",
)
_ATTENTION = (
    ("self_attn.q_proj", "self_attn.qkv_proj", "mixer.q_proj"),
    ("self_attn.o_proj", "mixer.o_proj"),
)
_LATENT = (("self_attn.q_b_proj",), ("self_attn.kv_b_proj",), ("self_attn.o_proj",))
_RECURRENT = (
    ("linear_attn.in_proj_qkv", "linear_attn.in_proj_qkvz", "mixer.in_proj"),
    ("linear_attn.out_proj", "mixer.out_proj"),
)
_MLP = (
    ("mlp.gate_proj", "mlp.gate_up_proj", "mixer.up_proj"),
    ("mlp.down_proj", "mixer.down_proj"),
)
_SHARED = (
    (
        "mlp.shared_experts.down_proj",
        "mlp.shared_expert.down_proj",
        "mixer.shared_experts.down_proj",
    ),
)
_EXPERTS = (
    (
        "mlp.experts.0.down_proj",
        "block_sparse_moe.experts.0.w2",
        "mixer.experts.0.down_proj",
    ),
)
_EXPERTS_BESIDE_MLP = (("experts.0.down_proj", "moe.experts.0.down_proj"),)  # Gemma 4
"""Modules that stand for all matrices of their kind, each under the names that models give it."""
MOST_PATTERNS = 256
MOST_REPEATS = 4
"""Limits on regular expressions, whose time grows with the power of their repeats: a file's are
matched against every layer."""
_REPEAT = re.compile(r"(?<!\\)[*+{]")
_NESTED = re.compile(r"\)[*+{]")


def with_kept(
    shape: ModelShape, values: dict[str, object], where: str, pattern: str | None = None
) -> ModelShape:
    """The shape with the matrices that its quantised checkpoint leaves in 16 bits.

    Where the file counts MLPs as layers, `pattern` has a letter for each.
    """
    given = values.get("quantization_config") or values.get("compression_config")
    config = _object(given, "quantization_config", where)
    kept = _Kept(config, f"{where}: quantization_config")
    if not kept.any:
        return shape

    def weight_bytes(
        modules: tuple[tuple[str, ...], ...], narrow: float, letters: str = "ME*-"
    ) -> float:
        kinds = pattern or "*" * shape.layers
        numbers = [n for n, kind in enumerate(kinds) if not pattern or kind in letters]
        places = [(number, names) for number in numbers for names in modules]
        if not places:
            return narrow
        wide = sum(
            any(kept.has(f"{root}.{number}.{name}") for root in _LAYERS for name in names)
            for number, names in places
        )
        return narrow + (PLAIN_BYTES - narrow) * wide / len(places)

    attention = _LATENT if shape.is_latent else _ATTENTION
    beside = values.get("enable_moe_block") is True
    parts = (
        (shape.all_attention_params, attention, "*"),
        (shape.recurrent_layers * shape.recurrent_params, _RECURRENT, "M"),
        (shape.dense_layers * shape.dense_mlp_params, _MLP, "-"),
        (shape.moe_layers * shape.shared_params, _MLP if beside else _SHARED, "E"),
    )
    whole = sum(params for params, _, _ in parts)
    in_all = sum(
        params * weight_bytes(modules, shape.weight_bytes, letters)
        for params, modules, letters in parts
    )
    return msgspec.structs.replace(
        shape,
        weight_bytes=in_all / whole,
        expert_weight_bytes=weight_bytes(
            _EXPERTS_BESIDE_MLP if beside else _EXPERTS, shape.expert_weight_bytes, "E"
        ),
    )


class _Kept:
    """The modules of a checkpoint that stay in 16 bits, as the quantising tools list them."""

    def __init__(self, config: dict[str, object], where: str) -> None:
        self._names: set[str] = set()
        patterns = []
        for field in ("ignore", "exclude_modules", "modules_to_not_convert", "ignored_layers"):
            names = config.get(field)
            if names is not None and not isinstance(names, list):
                raise InputError(f"{field} is {names!r:.60}", where=where, allowed="a list")
            for name in names or ():
                if not isinstance(name, str):
                    what = f"{field} holds {name!r:.60}"
                    raise InputError(what, where=where, allowed="names of modules")
                if name.startswith("re:"):
                    patterns.append(name[3:])
                elif "*" in name:
                    patterns.append(translate(name))
                else:
                    self._names.add(name)
        for field in ("dynamic", "extra_config"):
            for name, changes in _object(config.get(field), field, where).items():
                wide = isinstance(changes, dict) and changes.get("bits") == 16
                if not wide and not name.startswith("-:"):
                    what = f"{field} changes the precision of {name!r:.60}"
                    raise InputError(what, where=where, allowed="one precision, or 16 bits")
                if field == "dynamic":
                    patterns.append(name.removeprefix("-:").removeprefix("+:"))
                else:
                    self._names.add(name)
        self.any: bool = bool(patterns or self._names)
        if len(patterns) > MOST_PATTERNS:
            what = f"{len(patterns):,} patterns of modules that stay in 16 bits"
            raise InputError(what, where=where, allowed=f"at most {MOST_PATTERNS}")
        self._patterns = [_bounded(pattern, where) for pattern in patterns]

    def has(self, name: str) -> bool:
        """Whether a module stays: by a pattern, or if a list has some consecutive parts of it."""
        parts = name.split(".")
        ends = range(1, len(parts) + 1)
        return any(pattern.match(name) for pattern in self._patterns) or any(
            ".".join(parts[start:end]) in self._names for end in ends for start in range(end)
        )


def _bounded(pattern: str, where: str) -> re.Pattern[str]:
    what = f"a module that stays in 16 bits is {pattern!r:.60}"
    if len(_REPEAT.findall(pattern)) > MOST_REPEATS or _NESTED.search(pattern):
        allowed = f"a regular expression with at most {MOST_REPEATS} repeats, none of a group"
        raise InputError(what, where=where, allowed=allowed)
    try:
        return re.compile(pattern)
    except re.error as error:
        raise InputError(f"{what}, no regular expression: {error}", where=where) from error


def _object(value: object, field: str, where: str) -> dict[str, object]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise InputError(f"{field} is {value!r:.60}", where=where, allowed="an object or null")
    return value


def _flag(config: dict[str, object], field: str, where: str) -> bool:
    value = config.get(field)
    if value is not None and not isinstance(value, bool):
        raise InputError(f"{field} is {value!r:.60}", where=where, allowed="true, false or null")
    return value is True


def _plain(values: dict[str, object], where: str) -> Precisions:
    field = "torch_dtype" if values.get("torch_dtype") is not None else "dtype"
    dtype = values.get(field)
    name = dtype.removeprefix("torch.") if isinstance(dtype, str) else dtype
    if name is None or name in _PLAIN_TYPES:
        return Precisions()
    if name in _EIGHT_BIT_TYPES:
        return _everywhere(1.0, "fp8")
    allowed = ", ".join(_PLAIN_TYPES + _EIGHT_BIT_TYPES)
    raise InputError(f"{field} is {dtype!r:.60}", where=where, allowed=allowed)


def _method(config: dict[str, object], where: str) -> str:
    """The algorithm if the tool names one of several, else the tool."""
    for field in ("quant_algo", "quant_method"):
        method = config.get(field)
        if method is not None and not isinstance(method, str):
            raise InputError(f"{field} is {method!r:.60}", where=where, allowed=_METHODS)
        if method:
            return method.lower().replace("_", "-")
    return ""


def _from_config(config: dict[str, object], where: str) -> Precisions:
    method = _method(config, where)
    if method == "mxfp4":  # applied to the experts alone; activations stay 16-bit
        return Precisions(expert_weight_bytes=MXFP4_BYTES)
    if "fp4" in method:
        inputs = "bf16" if "a16" in method else "fp8" if "a8" in method else "fp4"
        return _everywhere(MXFP4_BYTES if "mxfp4" in method else NVFP4_BYTES, inputs)
    if "fp8" in method:
        return _everywhere(1.0, "fp8")
    if method == "compressed-tensors":
        return _compressed(config, where)
    if method == "bitsandbytes":
        return _everywhere(0.5 if _flag(config, "load_in_4bit", where) else 1.0, "bf16")
    bits = config.get("bits", config.get("w_bit"))
    if bits is not None:
        return _everywhere(_grouped(_bits(bits, "bits", where), config, where), "bf16")
    raise InputError(
        f"quant_method {method!r:.60} has no bits, so the weights' size is unknown",
        where=where,
        allowed=_METHODS,
    )


def _compressed(config: dict[str, object], where: str) -> Precisions:
    """Precisions in compressed-tensors, which describes groups of layers."""
    groups = _object(config.get("config_groups"), "config_groups", where)
    found = []
    for name, value in groups.items():
        group = _object(value, f"config_groups.{name:.40}", where)
        weights = _object(group.get("weights"), "weights", f"{where}: {name:.40}")
        inputs = _object(
            group.get("input_activations"), "input_activations", f"{where}: {name:.40}"
        )
        if group.get("weights") is None:
            continue
        bits = _bits(weights.get("num_bits"), "num_bits of the weights", where)
        input_bits = inputs.get("num_bits")
        if input_bits is not None:
            _bits(input_bits, "num_bits of the input_activations", where)
        is_float = weights.get("type") == "float"
        if bits == 4 and is_float:
            precision = "fp4" if input_bits == 4 else "fp8" if input_bits == 8 else "bf16"
            size = MXFP4_BYTES if weights.get("group_size") == MXFP4_GROUP else NVFP4_BYTES
            found.append(_everywhere(size, precision))
        elif bits == 8 and input_bits == 8:
            found.append(_everywhere(1.0, "fp8" if is_float else "int8"))
        else:
            found.append(_everywhere(_grouped(bits, weights, where), "bf16"))
    if any(one != found[0] for one in found):
        what = "config_groups have weights of different precisions"
        raise InputError(what, where=where, allowed="one precision, and layers left in 16 bits")
    return found[0] if found else Precisions()


def _grouped(bits: int, config: dict[str, object], where: str) -> float:
    """Bytes per weight, including its share of the group's 16-bit scale and of any zero point."""
    group = config.get("group_size", config.get("q_group_size"))
    if group is None or group == -1:
        return bits / 8
    if isinstance(group, bool) or not isinstance(group, int) or not 1 <= group <= LARGEST_GROUP:
        allowed = f"-1, or 1 to {LARGEST_GROUP}"
        raise InputError(f"group_size is {group!r:.60}", where=where, allowed=allowed)
    zero = bits if config.get("zero_point") or config.get("symmetric") is False else 0
    return (bits + (16 + zero) / group) / 8


def _bits(value: object, field: str, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value not in _BITS:
        allowed = ", ".join(str(bits) for bits in _BITS)
        raise InputError(f"{field} is {value!r:.60}", where=where, allowed=allowed)
    return value


_AWQ_BYTES = 4.25 / 8  # four bits, and a scale and a zero point for every 128
_GPTQ_BYTES = 4.125 / 8  # four bits, and a scale for every 128

_INT4 = _everywhere(_GPTQ_BYTES, "bf16")
_FP8 = _everywhere(1.0, "fp8")
_NAMED: tuple[tuple[str, Precisions], ...] = (
    (r"fp8[-_.](kv|kv[-_.]?cache)", msgspec.structs.replace(_FP8, kv_bytes=1.0)),
    (r"fp8([-_.](dynamic|block|static|tensor))?", _FP8),
    (r"mxfp4", Precisions(expert_weight_bytes=MXFP4_BYTES)),
    (r"nvfp4|fp4", _everywhere(NVFP4_BYTES, "fp4")),
    (r"(quantized[-_.])?w8a8", _everywhere(1.0, "int8")),
    (r"(quantized[-_.])?w8a16|gptq[-_.]int8|int8|bnb[-_.]8bit", _everywhere(1.0, "bf16")),
    (r"awq([-_.]int4)?", _everywhere(_AWQ_BYTES, "bf16")),
    (r"(quantized[-_.])?w4a16([-_.]g128)?|gptq([-_.]int4)?|int4|bnb[-_.]4bit", _INT4),
    (r"bf16", Precisions()),
)


def precisions_of_name(name: str) -> tuple[str, Precisions | None]:
    """A name without its precision suffix (`-FP8`, `-AWQ`, `-w4a16`), and that precision."""
    lower = name.lower()
    for pattern, found in _NAMED:
        suffix = re.search(rf"(^|[-_.])({pattern})$", lower)
        if suffix is None:
            continue
        if "mxfp4" in suffix[2] and lower.startswith("amd/"):
            found = _everywhere(MXFP4_BYTES, "fp4")  # noqa: PLW2901
        if suffix[2].startswith(("fp8", "nvfp4", "fp4")) and lower.startswith("nvidia/"):
            # NVIDIA's own FP8 and FP4 checkpoints use an FP8 cache.
            found = msgspec.structs.replace(found, kv_bytes=1.0)  # noqa: PLW2901
        return name[: suffix.start()], found
    return name, None
