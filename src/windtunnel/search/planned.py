"""A plan from Python: the same answer as the command's, as a table."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from windtunnel.search.cache import Cache
from windtunnel.search.library import origin_of
from windtunnel.search.planner import (
    DEPLOYMENT,
    USUAL_BUDGET,
    USUAL_SEEDS,
    Question,
    answer,
)
from windtunnel.search.table import Table
from windtunnel.search.workers import LOCAL, Workers
from windtunnel.settings.document import Plain

SHOWN = ("label", "cost_per_hour", "attained", "low", "reason", "why")


class Planned(Table):
    """A row for each candidate, or for each load that was tried; and the answer."""

    def __init__(self, found: Mapping[str, Any]) -> None:
        rows: Sequence[Mapping[str, Any]] = found.get("candidates", found.get("curve", ()))
        columns = list(rows[0]) if rows else []
        shown = SHOWN if found["find"] == DEPLOYMENT else columns
        super().__init__(columns, rows, caption=f"plan of {found['name']}", shown=shown)
        self.found = dict(found)

    @property
    def best(self) -> dict[str, Any] | None:
        """The answer: a candidate, the load that is carried, or the knee; None: there is none."""
        key = {DEPLOYMENT: "best", "load": "carried"}.get(self.found["find"], "knee")
        row: dict[str, Any] | None = self.found[key]
        return row

    @property
    def runners_up(self) -> list[dict[str, Any]]:
        """The next cheapest kinds of deployment that passed the same test."""
        return list(self.found.get("runners_up", ()))

    @property
    def closest(self) -> dict[str, Any] | None:
        """Who came closest, where no candidate is good enough."""
        row: dict[str, Any] | None = self.found.get("closest")
        return row

    @property
    def not_tried(self) -> list[str]:
        """What a reader might take for tried."""
        return list(self.found["not_tried"])


def plan(
    scenario: str | Path,
    *,
    find: str = DEPLOYMENT,
    sets: Mapping[str, Plain] | None = None,
    slo: Sequence[str] | None = None,
    attained: float | None = None,
    confidence: float | None = None,
    seed: int | None = None,
    seeds: int = USUAL_SEEDS,
    budget: float = USUAL_BUDGET,
    on: str = LOCAL,
    jobs: int | None = None,
    cache: str | Path | None = None,
) -> Planned:
    """The cheapest deployment of a scenario file that keeps its SLO, or what its servers carry.

    `sets` may say what to choose from, as in `{"plan.accelerators": ["h200", "l40s"]}`. Everything
    else is as for the command of the same name.
    """
    question = Question(
        find=find,
        attained=attained,
        confidence=confidence,
        slo=None if slo is None else tuple(slo),
        seeds=seeds,
        budget=budget,
        seed=seed,
    )
    origin = origin_of(scenario, sets)
    with Workers(on=on, jobs=jobs, cache=None if cache is None else Cache(Path(cache))) as workers:
        return Planned(answer(origin, question, workers, lambda *_: None))
