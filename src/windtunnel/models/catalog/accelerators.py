"""The accelerators that servers run on: peak rates, memory, links and an example price.

Peaks are the vendors' dense figures (never those "with sparsity") with 32-bit accumulation, at
boost clock. Memory is what the driver or vLLM reports, where known, which is often less than the
nominal size. Each row names the source of its figures.
"""

from __future__ import annotations

import re

import msgspec

from windtunnel.core.errors import InputError, nearest

__all__ = ["ACCELERATORS", "Accelerator", "catalog_price", "resolve_accelerator"]

GIB = 1024.0**3
TERA = 1e12
GIGA = 1e9

PRECISIONS = ("fp32", "tf32", "bf16", "fp8", "int8", "fp4")


class Accelerator(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU. A rate of zero means the hardware has no such unit."""

    name: str
    fp32_flops: float  # FLOP/s outside the matrix units
    tf32_flops: float
    bf16_flops: float  # fp16 runs at the same rate on all of these
    fp8_flops: float
    int8_flops: float
    fp4_flops: float
    memory_bytes: float
    hbm_bytes_per_s: float
    link: str  # between the GPUs of one machine: nvlink, infinity-fabric, pcie and so on
    link_bytes_per_s: float  # per GPU and direction, over all its links
    compute_units: int  # streaming multiprocessors, or AMD's compute units
    price_per_hour: float | None  # US dollars: an example of on-demand prices, to be overridden
    source: str  # of the figures

    def peak_flops(self, precision: str) -> float:
        """The matrix rate in `precision`; without such units that of bf16, to which numbers are
        converted."""
        rate = {
            "fp32": self.fp32_flops,
            "tf32": self.tf32_flops,
            "bf16": self.bf16_flops,
            "fp16": self.bf16_flops,
            "fp8": self.fp8_flops,
            "int8": self.int8_flops,
            "fp4": self.fp4_flops,
        }.get(precision)
        if rate is None:
            what = f"precision {precision!r} is not known"
            raise InputError(what, where=f"accelerator {self.name}", allowed=", ".join(PRECISIONS))
        return rate or self.bf16_flops


_PCI4 = ("pcie", 32.0)
_PCI5 = ("pcie", 64.0)
_NV3 = ("nvlink", 300.0)
_NV4 = ("nvlink", 450.0)
_NV5 = ("nvlink", 900.0)
_FAB = ("infinity-fabric", 448.0)  # seven links of 64 GB/s
_FAB4 = ("infinity-fabric", 576.0)

_ICI5E = ("ici", 200.0)
_ICI6E = ("ici", 400.0)
_ICI = ("ici", 600.0)
_ETH = ("ethernet", 600.0)
_NEURON2 = ("neuronlink", 640.0)
_NEURON3 = ("neuronlink", 1280.0)

_Link = tuple[str, float]
_Row = tuple[str, float, float, float, float, float, float, float, float, _Link, int, float | None]

# fmt: off
# Rates are in TFLOP/s.
#    name              fp32   tf32    bf16     fp8    int8     fp4    GiB  GB/s  link units  $/h
_TABLE: tuple[_Row, ...] = (
    ("a100-40",       19.5,   156,    312,      0,    624,      0,    40, 1555, _NV3,  108,  1.30),
    ("a100-80",       19.5,   156,    312,      0,    624,      0,    80, 2039, _NV3,  108,  1.80),
    ("h100-sxm",      66.9, 494.7,  989.4, 1978.9, 1978.9,      0, 79.19, 3350, _NV4,  132,  3.00),
    ("h100-pcie",     51.2,   378,    756,   1513,   1513,      0,  79.6, 2039, _PCI5, 114,  2.50),
    ("h200",          66.9, 494.7,  989.4, 1978.9, 1978.9,      0, 140.4, 4800, _NV4,  132,  3.80),
    ("h20",             44,    74,    148,    296,    296,      0,  95.6, 4000, _NV4,   78,  1.90),
    ("h20-141",         44,    74,    148,    296,    296,      0, 140.4, 4800, _NV4,   78,  None),
    ("b200",            75,  1125,   2250,   4500,   4500,   9000, 178.35, 8000, _NV5,  148,  5.50),
    ("gb200",           80,  1250,   2500,   5000,   5000,  10000,   185, 8000, _NV5,  152, 10.50),
    ("l4",            30.3,  60.5,    121,  242.5,  242.5,      0,  22.5,  300, _PCI4,  58,  0.70),
    ("l40s",          91.6,   183,    362,    733,    733,      0,    45,  864, _PCI4, 142,  1.00),
    ("a10g",            35,    35,     70,      0,    140,      0,  22.5,  600, _PCI4,  80,  1.00),
    ("rtx-4090",      82.6,  82.6,  165.2,  330.3,  660.6,      0,    24, 1008, _PCI4, 128,  0.60),
    ("rtx-pro-6000",   126, 251.9,  503.8, 1007.6, 1007.6, 2015.2,  95.6, 1792, _PCI5, 188,  1.80),
    ("mi300x",       163.4, 653.7, 1307.4, 2614.9, 2614.9,      0,   192, 5300, _FAB,  304,  2.50),
    ("mi325x",       163.4, 653.7, 1307.4, 2614.9, 2614.9,      0,   256, 6000, _FAB,  304,  3.00),
    ("gh200",         66.9, 494.7,  989.4, 1978.9, 1978.9,      0,  95.6, 4000, _NV4,  132,  3.20),
    ("b300",            75,  1125,   2250,   4500,      0,  13500, 267.7, 7750, _NV5,  160,  6.60),
    ("gb300",           80,  1250,   2500,   5000,      0,  15000, 277.5, 8000, _NV5,  160, 12.60),
    ("rtx-5090",     104.8, 104.8,  209.5,    419,    838,   1676,  31.4, 1792, _PCI5, 170,  0.90),
    ("mi350x",       144.2,     0,   2306,   4613,   4613,   9227, 287.98, 8000, _FAB4, 256,  3.40),
    ("mi355x",       157.3,     0,   2516,   5033,   5033,  10066, 287.98, 8000, _FAB4, 256,  3.60),
    ("tpu-v5e",          0,     0,    197,      0,    393,      0,    16,  820, _ICI5E, 1, 1.20),
    ("tpu-v5p",          0,     0,    459,      0,    918,      0,    95, 2765, _ICI, 2, 4.20),
    ("tpu-v6e",          0,     0,    918,    918,   1836,      0,    32, 1640, _ICI6E, 1, 2.70),
    ("tpu7x",            0,     0,   2307,   4614,      0,      0,   192, 7370, _ICI, 2, None),
    ("gaudi-3",          0,     0,   1835,   1835,      0,      0, 119.2, 3670, _ETH, 64, None),
    ("trainium2",        0,     0,    667,   1299,      0,      0,    96, 2900, _NEURON2, 8, None),
    ("trainium3",        0,     0,    671,   2517,      0,   2517,   144, 4900, _NEURON3, 8, None),
)
# fmt: on

_SOURCES = {  # by the start of a name
    "mi": "AMD data sheet",
    "mi35": "InferenceX table of GPUs; memory as PyTorch reports it",
    "h20-141": "vLLM's recipes; memory and bandwidth as of the H200",
    "b300": "InferenceX table of GPUs; memory as vLLM reports it",
    "gb300": "InferenceX table of GPUs; memory as aiconfigurator has it",
    "h100-sxm": "NVIDIA data sheet; memory as vLLM reports it",
    "b200": "NVIDIA data sheet; memory as vLLM reports it",
    "rtx-5090": "NVIDIA data sheet; memory as vLLM reports it",
    "tpu": "Google Cloud documentation",
    "tpu7x": "Google Cloud documentation; bandwidth and link as announced",
    "gaudi": "Intel at Hot Chips 2024",
    "trainium": "AWS Neuron documentation",
}


def _source(name: str) -> str:
    starts = [start for start in _SOURCES if name.startswith(start)]
    return _SOURCES[max(starts, key=len)] if starts else "NVIDIA data sheet"


ACCELERATORS: dict[str, Accelerator] = {
    name: Accelerator(
        name=name,
        fp32_flops=fp32 * TERA,
        tf32_flops=tf32 * TERA,
        bf16_flops=bf16 * TERA,
        fp8_flops=fp8 * TERA,
        int8_flops=int8 * TERA,
        fp4_flops=fp4 * TERA,
        memory_bytes=gib * GIB,
        hbm_bytes_per_s=hbm * GIGA,
        link=link[0],
        link_bytes_per_s=link[1] * GIGA,
        compute_units=units,
        price_per_hour=price,
        source=_source(name),
    )
    for name, fp32, tf32, bf16, fp8, int8, fp4, gib, hbm, link, units, price in _TABLE
}

_ALIASES = {
    "a100": "a100-80",
    "a100-sxm": "a100-80",
    "a100-80gb": "a100-80",
    "a100-40gb": "a100-40",
    "h100": "h100-sxm",
    "h100-80gb": "h100-sxm",
    "h100-sxm5": "h100-sxm",
    "h200-sxm": "h200",
    "b200-sxm": "b200",
    "b300-sxm": "b300",
    "5090": "rtx-5090",
    "tpu-v7": "tpu7x",
    "tpu-v7x": "tpu7x",
    "gaudi3": "gaudi-3",
    "trn2": "trainium2",
    "trn3": "trainium3",
    "4090": "rtx-4090",
    "rtxpro6000": "rtx-pro-6000",
    "rtx-pro-6000-blackwell": "rtx-pro-6000",
}


_MAKERS = re.compile(r"^(nvidia-|amd-|intel-|google-|aws-|geforce-|instinct-)+")


def is_accelerator(name: str) -> bool:
    """Whether the catalog has an accelerator of that name or alias."""
    key = _key(name)
    return _ALIASES.get(key, key) in ACCELERATORS


def _key(name: str) -> str:
    key = "-".join(name.lower().replace("_", " ").replace("-", " ").split())
    return _MAKERS.sub("", key)


def catalog_price(name: str, count: int) -> float | None:
    """Dollars per hour for this many accelerators; None if the catalog has no price."""
    try:
        price = resolve_accelerator(name).price_per_hour
    except InputError:
        return None
    return None if price is None else count * price


def resolve_accelerator(name: str) -> Accelerator:
    """The accelerator with that catalog name or alias; ignores case, spaces and underscores."""
    key = _key(name)
    found = ACCELERATORS.get(_ALIASES.get(key, key))
    if found is not None:
        return found
    raise InputError(
        f"accelerator {name!r} is not in the catalog",
        allowed=", ".join(ACCELERATORS),
        hint=nearest(key, ACCELERATORS, _ALIASES),
    )
