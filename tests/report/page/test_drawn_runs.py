"""Whatever the fuzzer draws has a report, and an explanation of every request and decision."""

from pathlib import Path

import pytest

from windtunnel.analysis.explain.decision import explain_decision
from windtunnel.analysis.explain.moment import explain_moment
from windtunnel.analysis.explain.overview import overview
from windtunnel.analysis.explain.request import WORTH_S, explain_request
from windtunnel.analysis.explain.run import RunReader
from windtunnel.analysis.explain.steps import Cause
from windtunnel.analysis.run_folder import REQUESTS, batches_of
from windtunnel.fuzz.draw import draw
from windtunnel.fuzz.trial import loaded, with_limits
from windtunnel.report.files.folder import RunFolder
from windtunnel.twin.run import run

EVENTS = 10_000
"""Limit on the events of a run."""
MOST = 50
"""Limit on the requests, and on the decisions, that are explained."""
FOUND = [600000155]  # a server that is hidden from routers, and lost meanwhile


@pytest.mark.parametrize("seed", [*range(700, 724), *FOUND])
def test_a_drawn_run_is_explained(seed: int, tmp_path: Path) -> None:
    scenario = with_limits(draw(seed))
    scenario["progress"] = {**scenario["progress"], "events": EVENTS}
    with loaded(scenario, as_text=False) as plan, RunFolder(tmp_path / "run") as place:
        place.finish(run(plan, rows=place.rows(), decisions=place.control()))
    found = RunReader(tmp_path / "run")
    overview(found)
    for at_s in (0.0, found.end_s / 2, found.end_s):
        explain_moment(found, at_s)
    for name in list(found.history.decisions)[:MOST]:
        explain_decision(found, name)
    rows = [row for batch in batches_of(found.folder / REQUESTS) for row in batch.batch["id"]]
    for number in rows[:: len(rows) // MOST + 1]:
        one = explain_request(found, number.as_py())
        assert sum(cause.seconds for cause in one.causes) == pytest.approx(one.e2e, abs=WORTH_S)
        assert all(cause.seconds >= 0.0 for cause in one.causes)
        faulty = any(cause.cause == Cause.FAULT for cause in one.causes)
        assert found.history.faults or not faulty
