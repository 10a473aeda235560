"""What may be written under `faults:`, and what is said of the rest."""

import pytest

from tests.twin.faults.runs import plain
from windtunnel.core.errors import InputError
from windtunnel.twin.scenario.load import load_text


@pytest.mark.parametrize(
    ("fault", "sentences"),
    [
        ("at: 1s, kind: engine-crahs", ["faults[0].kind", "engine-crash", "did you mean"]),
        ("at: 1s", ["faults[0].kind", "missing"]),
        ("kind: engine-crash", ["it has no time", "one of at, every and when"]),
        (
            "at: 1s, every: {mean: 2s}, kind: engine-crash",
            ["at and every are written", "one of at, every and when"],
        ),
        ("at: 11s, kind: engine-crash", ["faults[0].at", "the run has ended by then", "10 s"]),
        (
            "at: 1s, kind: partial-scrape, share: 0.5, select: {count: 2}",
            ["faults[0].share", "select.count says which servers already"],
        ),
        (
            "at: 1s, kind: partial-scrape, share: 1, select: {pool: main, server: 0}",
            ["faults[0].share", "select.server says which servers already"],
        ),
        ("at: 1s, kind: partial-scrape, share: 0", ["faults[0].share", "too small"]),
        (
            "at: 1s, kind: partial-scrape, readers: [autoscaler]",
            ["faults[0].readers", "there is no autoscaler"],
        ),
        ("at: 1s, kind: slow-machine, for: 0s", ["faults[0].for", "too small"]),
        ("at: 1s, kind: slow-machine, factor: 1", ["faults[0].factor", "too small"]),
        ("at: 1s, kind: engine-crash, for: 1s", ["faults[0].for", "unknown key"]),
        (
            "at: 1s, kind: engine-crash, select: {pool: mian}",
            ["faults[0].select.pool", "there is no pool 'mian'", "did you mean 'main'"],
        ),
        (
            "at: 1s, kind: engine-crash, select: {pool: main, server: 1}",
            ["faults[0].select.server", "the pool has 1"],
        ),
        (
            "at: 1s, kind: engine-crash, select: {server: 0}",
            ["faults[0].select.server", "no pool that it counts in"],
        ),
        (
            "at: 1s, kind: engine-crash, select: {pool: main, server: 0, count: 2}",
            ["faults[0].select.count", "one server is named"],
        ),
        (
            "at: 1s, kind: engine-crash, select: {zone: a}",
            ["faults[0].select.zone", "unknown key"],
        ),
        (
            "every: {mean: 1s, from: 5s, until: 5s}, kind: engine-crash",
            ["faults[0].every.until", "is not after"],
        ),
        ("every: {mean: 1s, from: 50s}, kind: engine-crash", ["faults[0].every.from", "ended"]),
        (
            "when: {metric: queu, above: 1}, kind: engine-crash",
            ["faults[0].when.metric", "did you mean 'queue'"],
        ),
        ("when: {metric: queue}, kind: engine-crash", ["faults[0].when", "neither above nor"]),
        (
            "when: {metric: queue, above: 1, below: 2}, kind: engine-crash",
            ["faults[0].when", "above and below are both written"],
        ),
        ("at: 1s, kind: crash-loop", ["faults[0].for", "missing"]),
        (
            "at: 1s, kind: crash-loop, for: 1s, backoff: {first: 5s, most: 1s}",
            ["faults[0].backoff.most", "less than `first`"],
        ),
        ("at: 1s, kind: metric-lag", ["faults[0].by", "missing"]),
        (
            "at: 1s, kind: metric-blackout, readers: [autoscaler]",
            ["faults[0].readers", "there is no autoscaler"],
        ),
        (
            "at: 1s, kind: metric-blackout, readers: [routers, routers]",
            ["faults[0].readers", "twice"],
        ),
        (
            "at: 1s, kind: clock-skew, ahead: 1s",
            ["faults[0].controller", "there is no autoscaler"],
        ),
        (
            "at: 1s, kind: clock-skew, controller: gateway, ahead: 1s",
            ["faults[0].controller", "admits every request", "serving.admission"],
        ),
        (
            "at: 1s, kind: clock-skew, controller: gangs, ahead: 1s",
            ["faults[0].controller", "there are no gangs"],
        ),
        ("at: 1s, kind: clock-skew", ["faults[0]", "one of ahead and behind"]),
        (
            "at: 1s, kind: clock-skew, ahead: 1s, behind: 1s",
            ["faults[0]", "ahead and behind are both written"],
        ),
        (
            "at: 1s, kind: controller-restart, controller: autoscaler",
            ["faults[0].controller", "there is no autoscaler"],
        ),
        (
            "at: 1s, kind: controller-restart, controller: gangs, for: 1s",
            ["faults[0].controller", "there are no gangs", "faults[0].for", "back at once"],
        ),
        (
            "at: 1s, kind: controller-restart, controller: fleet",
            ["faults[0].controller", "the scenario has no `fleet`"],
        ),
        ("at: 1s, kind: kv-leak", ["faults[0].rate", "missing"]),
        ("at: 1s, kind: rate-limit-storm, share: 0", ["faults[0].share", "too small"]),
        ("when: {metric: queue, below: 0}, kind: engine-crash", ["nothing is ever below 0"]),
        (
            "when: {metric: arrivals, pool: main, above: 1}, kind: engine-crash",
            ["faults[0].when.pool", "arrivals has no pool"],
        ),
        (
            "when: {metric: queue, pool: other, above: 1}, kind: engine-crash",
            ["faults[0].when.pool", "there is no pool 'other'"],
        ),
    ],
)
def test_what_cannot_be_is_said(fault: str, sentences: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        load_text(plain(fault, duration="10s"))
    for sentence in sentences:
        assert sentence in str(caught.value)


def test_two_faults_of_one_name() -> None:
    fault = "at: 1s, kind: engine-crash, name: same"
    with pytest.raises(InputError, match=r"faults\[1\].name: 'same' is already the name"):
        load_text(plain(fault, fault))


def test_a_name_may_not_be_the_place_of_another() -> None:
    with pytest.raises(InputError, match="already the name"):
        load_text(plain("at: 1s, kind: engine-crash, name: '1'", "at: 1s, kind: engine-crash"))


def test_retries_without_faults_are_noted() -> None:
    text = plain("at: 1s, kind: engine-crash")
    sets = ["faults=[]", "serving.retries={attempts: 2}", "serving.startup=null"]
    (note,) = load_text(text, sets=sets).notes
    assert "no server is lost" in note
    (note,) = load_text(text, sets=["faults=[]"]).notes
    assert "serving.startup: no server comes or goes" in note
