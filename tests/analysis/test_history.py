"""Who asked for a replica, and whose place it takes, from the log of a run."""

from io import StringIO
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from windtunnel.analysis.explain.blame import why_short
from windtunnel.analysis.explain.history import ControlHistory, LoggedEvent
from windtunnel.analysis.explain.limits import limits_on
from windtunnel.analysis.explain.missing import CapacityWait
from windtunnel.analysis.explain.overview import important
from windtunnel.analysis.explain.pool_sizes import PoolSizes, SizeChange
from windtunnel.analysis.explain.request import ExplainedRequest, RankedCause
from windtunnel.analysis.explain.steps import moment, took
from windtunnel.core.vocabulary import LOST_IN_FAULT, RECLAIMED, TERMINATIONS
from windtunnel.report.terminal.explain import show


def replica(time: float, state: str, server: int, reason: str = "", **data: Any) -> LoggedEvent:
    about = {"pool": "main", "replica": server, **data}
    return LoggedEvent(time, f"replica.{state}", f"server/{server}", reason, about)


def scaling(kind: str, time: float, id_: str, current: int, target: int) -> LoggedEvent:
    numbers = {"current": current, "target": target, "recommended": target}
    data = {"id": id_, "seen": time - 1.0, **numbers, "limits": [], "metrics": {}}
    return LoggedEvent(time, f"scaling.{kind}", "pool/main", "Full.", data)


def fault(
    time: float, *subjects: str, until: float | None = None, kind: str = "machine-loss"
) -> LoggedEvent:
    data = {"kind": kind, "subjects": list(subjects), "until": until}
    return LoggedEvent(time, "fault.began", "fault/0", f"at {time:.0f} s", data)


def run_of(log: ControlHistory, result: dict[str, Any]) -> Any:
    """A run whose requests take 20 s on a server."""
    latency = {"e2e": {"mean": 30.0}, "queue": {"mean": 10.0}}
    pools = [{"name": "main", "engine": {"kv_blocks": 100}}]
    scenario = {"faults": [], "serving": {"pools": pools}}
    return SimpleNamespace(history=log, result=result | {"latency": latency}, scenario=scenario)


BEGINNING = [
    replica(0.0, "ready", server, "the run begins", machines=[f"big-{server}"])
    for server in range(2)
]


def test_a_decision_has_asked_for_as_many_as_it_said() -> None:
    log = ControlHistory(
        [
            *BEGINNING,
            scaling("decided", 10.0, "scaling-1", 2, 3),
            scaling("applied", 12.0, "scaling-1", 2, 3),
            replica(12.0, "pending", 2),
            scaling("decided", 20.0, "scaling-2", 3, 4),
            scaling("applied", 20.0, "scaling-2", 3, 4),
            replica(21.0, "pending", 3),
        ]
    )
    assert [life.by for life in log.lives] == ["", "", "scaling-1", "scaling-2"]


@pytest.mark.parametrize(
    ("without", "names"),
    [({"behavior": 6, "bounds": 12}, ["bounds"]), ({"behavior": 6, "bounds": 6}, ["bounds"])],
)
def test_a_limit_that_made_no_difference_is_no_cause(
    without: dict[str, int], names: list[str]
) -> None:
    decided = scaling("decided", 10.0, "scaling-1", 6, 6)
    sizes = {"behavior": (44, 12), "bounds": (12, 6)}
    limits = [
        {
            "name": name,
            "before": before,
            "after": after,
            "without": without[name],
            "reason": "Because.",
        }
        for name, (before, after) in sizes.items()
    ]
    decided.data.update(recommended=44, limits=limits)
    log = ControlHistory([*BEGINNING, decided])
    steps = limits_on(log, CapacityWait("main", 11.0, 20.0, "", 5.0))
    assert [step.says.split(" to ")[0].split()[-1] for step in steps] == names


def test_who_comes_after_a_loss_takes_the_place_of_the_lost_however_often_it_is_tried() -> None:
    log = ControlHistory(
        [
            *BEGINNING,
            replica(30.0, "gone", 1, "its machine was lost"),
            replica(30.0, "pending", 2, "the run begins"),
            replica(70.0, "gone", 2, "its machine was removed before it had drained"),
            replica(70.0, "pending", 3, "the run begins"),
            replica(90.0, "ready", 3),
        ]
    )
    assert [life.instead_of and life.instead_of.title for life in log.lives] == [
        None,
        None,
        "main 1",
        "main 1",
    ]
    assert log.in_states("main", 80.0)["pending"] == [log.lives[3]]
    assert {state: len(lives) for state, lives in log.in_states("main", 95.0).items()} == {
        "pending": 0,
        "starting": 0,
        "ready": 2,
        "draining": 0,
    }


def test_a_fault_that_took_a_server_is_the_root_until_the_server_is_replaced() -> None:
    log = ControlHistory(
        [
            *BEGINNING,
            fault(30.0, "big-1", until=30.0),
            LoggedEvent(30.0, "machine.failed", "machine/big-1", "burnt", {"kind": "big"}),
            replica(30.0, "gone", 1, "its machine was lost"),
            replica(30.0, "pending", 2, "the run begins"),
            replica(60.0, "starting", 2, machines=["big-2"]),
            replica(90.0, "ready", 2, machines=["big-2"]),
        ]
    )
    result = {"scaling": None}
    during = why_short(
        run_of(log, result), CapacityWait("main", 50.0, 95.0, "main 0", 50.0), "a wait"
    )
    assert (during.root.layer, during.root.ids) == ("fault", ["fault-1"])
    said = " ".join(step.says for step in during.steps)
    assert "main 1 was lost: its machine was lost (big-1 failed at 30 s: burnt)" in said
    assert "main 2 was the first: pending for 30.0 s, starting for 30.0 s" in said
    assert "for the other 5.0 s it stayed queued on main 0" in said
    later = why_short(
        run_of(log, result), CapacityWait("main", 100.0, 120.0, "main 0", 100.0), "a wait"
    )
    assert "a fixed number of servers" in later.root.says


@pytest.mark.parametrize(
    ("kind", "subject", "failed_s", "error"),
    [
        ("rack-loss", "big-rack-0", 30.0, LOST_IN_FAULT),
        ("zone-loss", "zone", 30.0, LOST_IN_FAULT),
        ("spot-reclaim", "big-1", 40.0, RECLAIMED),
    ],
)
def test_a_fault_of_a_rack_a_zone_or_of_later_took_the_servers_on_its_machines(
    kind: str, subject: str, failed_s: float, error: str
) -> None:
    log = ControlHistory(
        [
            *BEGINNING,
            fault(10.0, "other", until=10.0),
            fault(30.0, subject, until=30.0, kind=kind),
            LoggedEvent(failed_s, "machine.failed", "machine/big-1", error, {"kind": "big"}),
            replica(failed_s, "gone", 1, "its machine was lost"),
            replica(failed_s, "pending", 2, "the run begins"),
            replica(60.0, "starting", 2, machines=["big-2"]),
            replica(90.0, "ready", 2, machines=["big-2"]),
        ]
    )
    chain = why_short(
        run_of(log, {"scaling": None}), CapacityWait("main", 50.0, 80.0, "main 0", 50.0), "a wait"
    )
    assert (chain.root.layer, chain.root.ids) == ("fault", ["fault-2"])
    assert [life.is_struck_by(log.faults["fault-2"]) for life in log.lives] == [False, True, False]


def test_a_server_that_is_never_replaced_is_missing_until_the_end() -> None:
    log = ControlHistory(
        [
            *BEGINNING,
            fault(30.0, "main-1", until=30.0, kind="engine-crash"),
            replica(30.0, "gone", 1, "its engine crashed"),
        ]
    )
    assert [(one.start_s, one.whole, one.least) for one in log.sizes("main").shortages] == [
        (30.0, 2, 1)
    ]
    for start_s, layer in ((20.0, "pool"), (500.0, "fault")):
        wait = CapacityWait("main", start_s, start_s + 5.0, "main 0", start_s)
        assert why_short(run_of(log, {"scaling": None}), wait, "a wait").root.layer == layer


def test_a_pool_is_short_of_what_it_had_until_it_has_it_or_the_autoscaler_wants_less() -> None:
    ready = [SizeChange(0.0, 1, 1)] * 4
    lost = SizeChange(10.0, -1, -1, taken=True)
    back = [SizeChange(10.0, present=1), SizeChange(50.0, ready=1)]
    found = {
        "lost": PoolSizes([*ready, lost]),
        "back": PoolSizes([*ready, lost, *back]),
        "fewer": PoolSizes([*ready, lost, SizeChange(30.0, wanted=3)]),
        "limited": PoolSizes([*ready, SizeChange(30.0, wanted=6), SizeChange(40.0, wanted=4)]),
    }
    spans = {
        name: [(one.start_s, one.end_s) for one in sizes.shortages] for name, sizes in found.items()
    }
    inf = float("inf")
    assert spans == {
        "lost": [(10.0, inf)],
        "back": [(10.0, 50.0)],
        "fewer": [(10.0, 30.0)],
        "limited": [(30.0, 40.0)],
    }
    assert [(one.start_s, one.end_s) for one in found["limited"].late] == [(0.0, 30.0)]
    assert found["back"].share_ready(0.0, 20.0) == pytest.approx(7 / 8)
    assert found["back"].short_at(49.0) is not None
    assert found["back"].short_at(50.0) is None


def test_a_need_that_cannot_be_met_is_the_root_of_who_waits_for_it() -> None:
    why = "PRIORITY_STARVED: short of 8 nvidia.com/gpu"
    data = {"id": "fleet-3", "cluster": "main", "row": "main.4", "pool": "main"}
    log = ControlHistory(
        [
            *BEGINNING,
            scaling("decided", 10.0, "scaling-1", 2, 3),
            scaling("applied", 10.0, "scaling-1", 2, 3),
            replica(10.0, "pending", 2, "Full.", gangs=["main-0"]),
            LoggedEvent(20.0, "fleet.short", "need/main/main.4", why, data),
            LoggedEvent(80.0, "fleet.met", "need/main/main.4"),
        ]
    )
    result: dict[str, Any] = {"scaling": {}}
    chain = why_short(
        run_of(log, result), CapacityWait("main", 30.0, 60.0, "main 0", 30.0), "a wait"
    )
    assert (chain.root.layer, chain.root.ids) == ("fleet", ["fleet-3"])
    assert log.short(90.0) == []


def test_a_gang_is_unschedulable_until_its_server_is_placed_again_or_gone() -> None:
    says = "0 fit on the 0 usable nodes of 1"
    log = ControlHistory(
        [
            replica(0.0, "pending", 0, gangs=["web-0"]),
            replica(0.0, "starting", 0),
            replica(30.0, "gone", 0, "its machine was lost"),
            replica(30.0, "pending", 1, gangs=["web-0"]),
            replica(30.0, "pending", 2, gangs=["web-1"]),
            LoggedEvent(31.0, "gang.Unschedulable", "PodGang/web-0", says, {"id": "gang-1"}),
            LoggedEvent(31.0, "gang.Unschedulable", "PodGang/web-1", says, {"id": "gang-2"}),
            LoggedEvent(31.0, "gang.Unschedulable", "PodGang/other", says, {"id": "gang-3"}),
            replica(60.0, "starting", 1),  # placed again: nothing else is logged
            replica(70.0, "gone", 2, "no longer wanted"),
            replica(80.0, "gone", 1, "its machine was lost"),
            replica(80.0, "pending", 3, gangs=["web-0"]),
        ]
    )
    at = {
        time_s: [one.name for one in log.unplaced(time_s)]
        for time_s in (30.0, 59.0, 60.0, 75.0, 90.0)
    }
    assert at == {
        30.0: [],
        59.0: ["web-0", "web-1", "other"],
        60.0: ["web-1", "other"],
        75.0: ["other"],
        90.0: ["other"],
    }


@pytest.mark.parametrize(("since_s", "layer"), [(15.0, "fault"), (25.0, "fleet")])
def test_a_fault_is_blamed_for_missing_machines_only_if_the_fleet_had_none_since(
    since_s: float, layer: str
) -> None:
    data = {"id": "fleet-1", "cluster": "main", "row": "main.4", "pool": "main"}
    log = [
        replica(10.0, "pending", 2, "Full.", gangs=["main-0"]),
        LoggedEvent(20.0, "fleet.short", "need/main/main.4", "NO_MATCHING_SUPPLY", data),
        fault(since_s, "fleet", kind="quota-exhaustion"),
    ]
    history = ControlHistory([*BEGINNING, *sorted(log, key=lambda one: one.time)])
    chain = why_short(
        run_of(history, {"scaling": None}), CapacityWait("main", 30.0, 60.0, "", 30.0), "a wait"
    )
    assert chain.root.layer == layer


def test_an_empty_pool_is_blamed_on_the_decision_that_emptied_it_not_on_the_last_that_kept_it() -> (
    None
):
    emptied = scaling("decided", 2.0, "scaling-2", 1, 0)
    log = ControlHistory(
        [
            replica(0.0, "ready", 0, "the run begins"),
            scaling("kept", 1.0, "scaling-1", 1, 1),
            emptied,
            replica(2.0, "gone", 0, "drained"),
            *(scaling("kept", 2.0 + n, f"scaling-{2 + n}", 0, 0) for n in range(1, 50)),
        ]
    )
    run = run_of(log, {"scaling": {}})
    root = why_short(run, CapacityWait("main", 10.0, 51.0, "", 10.0), "a wait").root
    assert (root.time, root.layer, root.ids) == (2.0, "autoscaler", ["scaling-2"])
    assert root.says == "scaling-2 at 2 s left main without a server (1 -> 0): Full."


def recycling(times: int) -> ControlHistory:
    """A lost server whose gang is terminated every minute, before its replacement is ready."""
    log = [
        replica(0.0, "ready", 0, "the run begins", machines=["big-1"]),
        fault(5.0, "big-1", until=30.0),
        LoggedEvent(5.0, "machine.failed", "machine/big-1", LOST_IN_FAULT, {"kind": "big"}),
        replica(5.0, "gone", 0, "its machine was lost"),
        replica(5.0, "pending", 1, "the run begins"),
    ]
    for n in range(times):
        at_s, server = 60.0 * (n + 1), n + 1
        gang = {"id": f"gang-{n}", "pools": ["main"]}
        log += [
            replica(at_s - 30.0, "starting", server),
            LoggedEvent(at_s, f"gang.{TERMINATIONS[0]}", "PodCliqueSet/web", "breached", gang),
            replica(at_s, "gone", server, "its pods are being terminated"),
            replica(at_s, "pending", server + 1, "the run begins"),
        ]
    return ControlHistory(log)


def test_gangs_that_are_terminated_again_and_again_are_the_root_of_the_longer_wait() -> None:
    for times, layer, ids in ((30, "gang", ["gang-0", "gang-29"]), (3, "fault", ["fault-1"])):
        end_s = 60.0 * times + 1.0
        run = run_of(recycling(times), {"scaling": None})
        root = why_short(run, CapacityWait("main", 6.0, end_s, "", 5.0), "a wait").root
        assert (root.layer, root.ids) == (layer, ids)
        if layer == "gang":
            told = "web was terminated 30 times from 1 min to 30 min, each time before its servers "
            assert root.says == f"{told}were ready: breached"


def test_many_decisions_alike_are_one_line_with_their_number() -> None:
    def told(times: int) -> list[tuple[str, list[str]]]:
        log = []
        for n in range(times):
            gang = {"id": f"gang-{n}", "pools": ["main"]}
            kind = f"gang.{TERMINATIONS[0]}"
            log.append(LoggedEvent(60.0 * n, kind, "PodCliqueSet/web", "breached", gang))
            log.append(scaling("decided", 60.0 * n + 4.0, f"scaling-{n}", 1, 0))
        return [(step.says, step.ids) for step in important(ControlHistory(log))]

    assert told(40) == [
        ("web: breached (40 times alike, the last at 39 min)", ["gang-0", "gang-39"]),
        (
            "main: 1 -> 0. Full. (40 times alike, the last at 39 min 4 s)",
            ["scaling-0", "scaling-39"],
        ),
    ]
    assert [ids for _, ids in told(2)] == [["gang-0"], ["scaling-0"], ["gang-1"], ["scaling-1"]]


def test_a_fault_that_comes_again_and_again_is_one_line_without_the_times_it_hit_nothing() -> None:
    def began(n: int, subjects: list[str]) -> LoggedEvent:
        data = {"kind": "spot-reclaim", "until": None, "subjects": subjects}
        return LoggedEvent(60.0 * n, "fault.began", "fault/0", "by chance", data)

    log = [began(n, [f"spot-{n}"] if n % 2 else []) for n in range(10)]
    (step,) = important(ControlHistory(log))
    assert step.says == "spot-reclaim of spot-1 (5 times alike, the last at 9 min)"
    assert step.ids == ["fault-2", "fault-10"]


def test_many_causes_of_a_request_are_summed() -> None:
    causes = [RankedCause("drain", 1.0, 1.0, f"drain {n}", "autoscaler", []) for n in range(20)]
    explained = ExplainedRequest(0, "request 0", "completed", 1.0, 20.0, [], [], 0, causes, [])
    console = Console(file=StringIO(), width=80)
    show(explained, "", console)
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    rows = [line.split() for line in lines if line.startswith(("drain", "12 more"))]
    assert rows == [["drain", "1.0", "s", "5%"]] * 8 + [["12", "more", "12.0", "s", "60%"]]


def test_moments_and_durations_are_exact_enough_to_be_compared() -> None:
    assert [moment(time_s) for time_s in (0.0, 7.94, 60.0, 75.2, 3725.3)] == [
        "0 s",
        "7.9 s",
        "1 min",
        "1 min 15 s",
        "1 h 2 min 5 s",
    ]
    assert [took(seconds) for seconds in (0.0, 0.0123, 7.94, 132.6, 725.0)] == [
        "0 s",
        "12.3 ms",
        "7.9 s",
        "132.6 s",
        "12 min 5 s",
    ]


def test_a_hidden_server_that_is_lost_or_hidden_twice_is_missing_once() -> None:
    log = ControlHistory(
        [
            *BEGINNING,
            fault(10.0, "main-0", "main-1", until=40.0, kind="router-partition"),
            fault(20.0, "main-1", until=50.0, kind="router-partition"),
            replica(30.0, "gone", 0, "its engine crashed"),
        ]
    )
    sizes = log.sizes("main")
    times = (5.0, 15.0, 25.0, 35.0, 45.0, 55.0)
    assert [sizes.ready_at(time_s) for time_s in times] == [2, 0, 0, 0, 0, 1]
