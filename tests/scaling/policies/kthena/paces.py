"""How fast sizes may change, written in one line."""

from windtunnel.scaling.policies.kthena.settings import Behavior, PaceDown, PaceUp


def pace_up(
    instances: int, percent: int, period_s: float, window_s: float, select: str = "Or"
) -> PaceUp:
    return PaceUp(
        instances=instances,
        percent=percent,
        period_s=period_s,
        window_s=window_s,
        select=select,
    )


def pace_down(
    instances: int, percent: int, period_s: float, window_s: float, select: str = "Or"
) -> PaceDown:
    return PaceDown(
        instances=instances,
        percent=percent,
        period_s=period_s,
        window_s=window_s,
        select=select,
    )


FREE_UP = pace_up(1000, 1000, 0.0, 0.0)
FREE_DOWN = pace_down(1000, 1000, 0.0, 0.0)
AT_ONCE = Behavior(up=FREE_UP, down=FREE_DOWN)
