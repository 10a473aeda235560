"""The limits of a server, by its options."""

from typing import Any

from windtunnel.engine.limits import EngineLimits, TierLimits, WindowGroups
from windtunnel.engine.settings import EngineSettings, LoraSettings


def engine_limits(
    kv_blocks: int,
    max_model_len: int = 1 << 40,
    tiers: list[TierLimits] | None = None,
    windows: WindowGroups | None = None,
    ranks: int = 1,
    **options: Any,
) -> EngineLimits:
    settings = EngineSettings(**options)
    return EngineLimits(settings, kv_blocks, max_model_len, tiers, windows, ranks=ranks)


def adapters(slots: int, load_s: float = 0.0, step_cost: float = 0.0) -> LoraSettings:
    """Adapters that cost nothing unless said otherwise."""
    return LoraSettings(slots=slots, load_s=load_s, step_cost=step_cost)
