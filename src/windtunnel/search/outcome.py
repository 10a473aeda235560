"""What comes of one run of a search: its figures, or why there are none."""

from collections.abc import Iterator

import msgspec

from windtunnel.core.errors import WindtunnelError
from windtunnel.search.measure import Metrics, measure
from windtunnel.twin.run import run
from windtunnel.twin.scenario.plan import ScenarioPlan


class Measured(msgspec.Struct, frozen=True, tag=True):
    """A run that ended, and its figures."""

    metrics: Metrics


class Failed(msgspec.Struct, frozen=True, tag=True):
    """A run that did not, and why: one sentence."""

    sentence: str


Outcome = Measured | Failed
Answers = Iterator[tuple[int, Outcome]]
"""Outcomes as they come, with the numbers of their plans."""


def measured(plan: ScenarioPlan) -> Outcome:
    """One point, in whatever process this is."""
    try:
        return Measured(measure(run(plan).result))
    except WindtunnelError as error:
        return Failed(str(error))
    except MemoryError:
        return Failed("there was not enough memory for this run (fewer --jobs leave more to each)")
    except Exception as error:  # noqa: BLE001 - one point that hits a fault of ours is one point
        return Failed(f"this run met a fault of Windtunnel: {type(error).__name__}: {error}")
