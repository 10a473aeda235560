"""The precisions in a Hugging Face configuration: its dtype and its `quantization_config`."""

from __future__ import annotations

import re

import msgspec

from windtunnel.core.errors import InputError

__all__ = ["Precisions", "read_precisions"]

PLAIN_BYTES = 2.0  # what is not quantised: servers load even 32-bit checkpoints as 16-bit
MXFP4_BYTES = 4.25 / 8  # four bits, and an eight-bit scale for every 32 of them
NVFP4_BYTES = 4.5 / 8  # four bits, and an eight-bit scale for every 16

_PLAIN_TYPES = ("float32", "float16", "bfloat16", "float", "half", "fp32", "fp16", "bf16", "auto")
_EIGHT_BIT_TYPES = ("float8_e4m3fn", "float8_e5m2", "fp8")
_BITS = (1, 2, 3, 4, 5, 6, 8, 16)
_METHODS = "awq, gptq, compressed-tensors, fp8, mxfp4, nvfp4, bitsandbytes, or a number of bits"


class Precisions(msgspec.Struct, frozen=True, kw_only=True):
    """Stored bytes per weight, and the precision the matrix multiplications run in."""

    weight_bytes: float = PLAIN_BYTES
    expert_weight_bytes: float = PLAIN_BYTES
    matmul_precision: str = "bf16"


def _everywhere(weight_bytes: float, matmul_precision: str) -> Precisions:
    return Precisions(
        weight_bytes=weight_bytes,
        expert_weight_bytes=weight_bytes,
        matmul_precision=matmul_precision,
    )


def read_precisions(values: dict[str, object], where: str, name: str) -> Precisions:
    """From the configuration's fields, or else from a name such as `...-w4a16` or `...-fp8`."""
    plain = _plain(values, where)
    quantization = values.get("quantization_config")
    if quantization is None:
        quantization = values.get("compression_config")
    if quantization is None:
        return _from_name(name) or plain
    config = _object(quantization, "quantization_config", where)
    return _from_config(config, f"{where}: quantization_config")


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
    """The algorithm where a tool that knows several names it, else the tool."""
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
        return _everywhere(NVFP4_BYTES, "fp4")
    if "fp8" in method:
        return _everywhere(1.0, "fp8")
    if method == "compressed-tensors":
        return _compressed(config, where)
    if method == "bitsandbytes":
        return _everywhere(0.5 if _flag(config, "load_in_4bit", where) else 1.0, "bf16")
    bits = config.get("bits", config.get("w_bit"))
    if bits is not None:
        return _everywhere(_bits(bits, "bits", where) / 8, "bf16")
    raise InputError(
        f"quant_method {method!r:.60} has no bits, so the weights' size is unknown",
        where=where,
        allowed=_METHODS,
    )


def _compressed(config: dict[str, object], where: str) -> Precisions:
    """compressed-tensors describes groups of layers; the first with weights stands for all."""
    groups = _object(config.get("config_groups"), "config_groups", where)
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
            return _everywhere(NVFP4_BYTES, "fp4" if input_bits == 4 else "bf16")
        if bits == 8 and input_bits == 8:
            return _everywhere(1.0, "fp8" if is_float else "int8")
        return _everywhere(bits / 8, "bf16")
    return Precisions()


def _bits(value: object, field: str, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value not in _BITS:
        allowed = ", ".join(str(bits) for bits in _BITS)
        raise InputError(f"{field} is {value!r:.60}", where=where, allowed=allowed)
    return value


def _from_name(name: str) -> Precisions | None:
    """Some publishers say it in the name alone."""
    lower = name.lower()
    found = re.search(r"w([0-9]{1,2})a([0-9]{1,2})", lower)
    if found and int(found[1]) in _BITS:
        both_eight = found[1] == "8" and found[2] == "8"
        return _everywhere(int(found[1]) / 8, "int8" if both_eight else "bf16")
    if re.search(r"(^|[-_.])fp8($|[-_.])", lower):
        return _everywhere(1.0, "fp8")
    return None
