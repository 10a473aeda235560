"""The accelerators that servers run on: peak rates, memory, links and an example price.

Peaks are the vendors' dense figures (never the "with sparsity" ones) with 32-bit accumulation, at
boost clock. Memory is what the driver reports, which is often less than the number on the box.
"""

from __future__ import annotations

import msgspec

from windtunnel.core.errors import InputError, nearest

__all__ = ["ACCELERATORS", "Accelerator", "resolve_accelerator"]

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
    link: str  # what joins the GPUs of one machine: nvlink, infinity-fabric, pcie
    link_bytes_per_s: float  # per GPU and direction, over all its links
    compute_units: int  # streaming multiprocessors, or AMD's compute units
    price_per_hour: float  # US dollars: an example of 2025 on-demand list prices, to be overridden

    def peak_flops(self, precision: str) -> float:
        """The matrix rate in `precision`; without such units numbers are converted to bf16."""
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

_Link = tuple[str, float]
_Row = tuple[str, float, float, float, float, float, float, float, float, _Link, int, float]

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
    ("b200",            75,  1125,   2250,   4500,   4500,   9000,178.35, 8000, _NV5,  148,  5.50),
    ("gb200",           80,  1250,   2500,   5000,   5000,  10000,   185, 8000, _NV5,  152, 10.50),
    ("l4",            30.3,  60.5,    121,  242.5,  242.5,      0,  22.5,  300, _PCI4,  58,  0.70),
    ("l40s",          91.6,   183,    362,    733,    733,      0,    45,  864, _PCI4, 142,  1.00),
    ("a10g",            35,    35,     70,      0,    140,      0,  22.5,  600, _PCI4,  80,  1.00),
    ("rtx-4090",      82.6,  82.6,  165.2,  330.3,  660.6,      0,    24, 1008, _PCI4, 128,  0.60),
    ("rtx-pro-6000",   126, 251.9,  503.8, 1007.6, 1007.6, 2015.2,  95.6, 1792, _PCI5, 188,  1.80),
    ("mi300x",       163.4, 653.7, 1307.4, 2614.9, 2614.9,      0,   192, 5300, _FAB,  304,  2.50),
    ("mi325x",       163.4, 653.7, 1307.4, 2614.9, 2614.9,      0,   256, 6000, _FAB,  304,  3.00),
)
# fmt: on

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
    "4090": "rtx-4090",
    "rtxpro6000": "rtx-pro-6000",
    "rtx-pro-6000-blackwell": "rtx-pro-6000",
}


def is_accelerator(name: str) -> bool:
    """Whether the catalog has one of that name or alias."""
    key = _key(name)
    return _ALIASES.get(key, key) in ACCELERATORS


def _key(name: str) -> str:
    key = "-".join(name.lower().replace("_", " ").replace("-", " ").split())
    return key.removeprefix("nvidia-").removeprefix("amd-").removeprefix("instinct-")


def resolve_accelerator(name: str) -> Accelerator:
    """The accelerator of that catalog name or alias; case, spaces and underscores do not matter."""
    key = _key(name)
    found = ACCELERATORS.get(_ALIASES.get(key, key))
    if found is not None:
        return found
    raise InputError(
        f"accelerator {name!r} is not in the catalog",
        allowed=", ".join(ACCELERATORS),
        hint=nearest(key, [*ACCELERATORS, *_ALIASES]),
    )
