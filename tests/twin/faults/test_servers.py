"""Faults of servers, with numbers worked by hand."""

import pytest

from tests.twin.faults.runs import ends, faulty, plain
from windtunnel.core.errors import InputError
from windtunnel.twin.scenario.load import load_text


def test_a_slow_machine_takes_its_factor_longer_until_it_is_well() -> None:
    # 100 steps of 10 ms from 1 s on, of which those from 1.5 s to 1.9 s take 20 ms.
    slow = "at: 1500ms, kind: slow-machine, factor: 2, for: 400ms"
    _, events = faulty(plain(slow))
    # 50 steps by 1.5 s, 20 slow ones by 1.9 s, 30 more.
    assert ends(events) == [pytest.approx(2.2)]


def test_slowness_that_overlaps_multiplies() -> None:
    faults = (
        "at: 1500ms, kind: slow-machine, factor: 2, for: 400ms",
        "at: 1700ms, kind: slow-machine, factor: 5, for: 400ms",
    )
    _, events = faulty(plain(*faults))
    # 50 steps by 1.5 s, 10 of 20 ms by 1.7 s, 2 of 100 ms by 1.9 s, 4 of 50 ms by 2.1 s, 34 more.
    assert ends(events) == [pytest.approx(2.44)]


def test_a_crashed_engine_starts_again_and_its_requests_with_it() -> None:
    result, events = faulty(plain("at: 1500ms, kind: engine-crash"))
    assert [event.kind for event in events] == [
        "replica.ready",
        "request.routed",
        "fault.began",
        "replica.gone",
        "request.retried",
        "replica.pending",
        "replica.starting",
        "replica.ready",
        "request.routed",
        "request.ended",
    ]
    assert ends(events) == [pytest.approx(4.5)]
    replicas = result["pools"]["main"]["replicas"]
    assert (replicas["lost"], replicas["started"], replicas["retried"]) == (1, 1, 1)
    assert replicas["lost_tokens"] == 59  # 10 of the first step, 1 of each of the 49 others
    # Paid for: 1.5 s of the first, and the second from its start on.
    assert result["pools"]["main"]["replica_seconds"] == pytest.approx(1.5 + 3.0)
    assert result["pools"]["main"]["ready_seconds"] == pytest.approx(1.5 + 1.0)


@pytest.mark.parametrize(("attempts", "completed"), [(0, 0), (1, 0), (2, 1), (3, 1)])
def test_requests_begin_anew_as_often_as_the_policy_says(attempts: int, completed: int) -> None:
    faults = ("at: 1500ms, kind: engine-crash", "at: 4s, kind: engine-crash")
    result, _ = faulty(plain(*faults), f"serving.retries.attempts={attempts}")
    assert result["requests"]["completed"] == completed
    assert result["requests"]["dropped"] == 1 - completed
    if not completed:
        assert result["reasons"]["dropped"] == {"its server was lost": 1}


def test_all_servers_of_a_pool_or_one_by_its_number() -> None:
    crash = "at: 1s, kind: engine-crash"
    result, _ = faulty(plain(f"{crash}, select: {{count: all}}", replicas=3))
    assert result["faults"][0]["subjects"] == ["main-0", "main-1", "main-2"]
    result, _ = faulty(plain(f"{crash}, select: {{pool: main, server: 1}}", replicas=3))
    assert result["faults"][0]["subjects"] == ["main-1"]
    result, _ = faulty(plain(f"{crash}, select: {{count: 2}}", replicas=3))
    assert len(result["faults"][0]["subjects"]) == 2


def test_a_crash_loop_waits_longer_every_time_until_it_is_mended() -> None:
    loop = "at: 500ms, kind: crash-loop, after: 1s, backoff: {first: 1s, most: 2s}, for: 10s"
    result, events = faulty(plain(loop, load="500ms", output=300), "serving.retries.attempts=9")
    states = [
        (event.time, event.kind.removeprefix("replica."))
        for event in events
        if event.kind in ("replica.gone", "replica.starting", "replica.ready")
    ]
    assert states[1:] == [
        (0.5, "gone"),
        (1.5, "starting"),  # after 1 s
        (2.0, "ready"),
        (3.0, "gone"),
        (5.0, "starting"),  # after 2 s
        (5.5, "ready"),
        (6.5, "gone"),
        (8.5, "starting"),  # no longer than that
        (9.0, "ready"),
        (10.0, "gone"),
        (12.0, "starting"),
        (12.5, "ready"),  # it would crash at 13.5 s, and is mended at 10.5 s
    ]
    assert result["requests"]["completed"] == 1
    assert result["simulated_seconds"] == pytest.approx(15.5)
    assert result["pools"]["main"]["replicas"]["lost"] == 4


def test_who_waits_for_a_server_that_crashes_for_ever_is_given_up_in_the_end() -> None:
    loop = "at: 500ms, kind: crash-loop, after: 0s, backoff: {first: 0s, most: 0s}, for: 300d"
    result, _ = faulty(plain(loop, load="500ms", count=3))
    assert result["requests"]["dropped"] == 3


def test_leaked_blocks_are_counted_and_shed_who_no_longer_fits() -> None:
    # 999 blocks of 16 tokens; an answer of 1,590 tokens to a prompt of 10 needs 100 of them. At 10
    # blocks a second 99 are left after 90 s; the first began at 1 s, and takes 15.9 s.
    leak = "at: 0s, kind: kv-leak, rate: 10/s"
    result, events = faulty(plain(leak, count=3, rate="0.0125/s", output=1590))
    # They come at 80 s, 160 s and 240 s: the first has ended by 96 s but for the leak.
    assert [event.data["outcome"] for event in events if event.kind == "request.ended"] == [
        "dropped",
        "dropped",
        "dropped",
    ]
    assert ends(events) == [90.0, 160.0, 240.0]
    assert set(result["reasons"]["dropped"]) == {"needs 100 KV blocks, 99 have not leaked"}
    assert result["pools"]["main"]["kv_leaked"] > 900


def test_a_leak_that_ends_and_one_that_a_restart_mends() -> None:
    leak = "at: 1s, kind: kv-leak, rate: 100/s, for: 3s"
    result, _ = faulty(plain(leak, count=9))
    assert result["pools"]["main"]["kv_leaked"] == 300
    assert result["requests"]["completed"] == 9
    assert result["pools"]["main"]["kv_peak"] > 0.3
    result, _ = faulty(plain(leak, "at: 5s, kind: engine-crash", count=9, output=1590))
    assert result["requests"]["completed"] == 9


def test_a_storm_turns_requests_back_and_they_are_sent_again() -> None:
    storm = "at: 500ms, kind: rate-limit-storm, for: 1900ms"
    result, events = faulty(plain(storm), "serving.retries={attempts: 3, backoff: 500ms}")
    # Sent at 1.0 s, again 0.5 s later, again 1 s after that: the storm was over at 2.4 s.
    retried = [event.time for event in events if event.kind == "request.retried"]
    assert retried == [1.0, 1.5]
    assert ends(events) == [pytest.approx(3.5)]
    replicas = result["pools"]["main"]["replicas"]
    assert (replicas["rate_limited"], replicas["retried"], replicas["lost"]) == (2, 0, 0)


def test_who_was_turned_back_too_often_is_rejected() -> None:
    result, _ = faulty(plain("at: 0s, kind: rate-limit-storm", count=4))
    assert result["requests"]["rejected"] == 4
    assert result["reasons"]["rejected"] == {"its server said that there are too many requests": 4}
    assert result["pools"]["main"]["replicas"]["rate_limited"] == 8
    assert result["simulated_seconds"] == 5.0  # the last came at 4 s, and was sent again at 5 s


def test_a_storm_refuses_its_share() -> None:
    storm = "at: 0s, kind: rate-limit-storm, share: 0.3"
    result, _ = faulty(
        plain(storm, count=200, rate="100/s", output=1), "serving.retries={attempts: 0}"
    )
    assert 40 < result["requests"]["rejected"] < 80


def test_a_client_may_leave_while_its_request_waits_to_be_sent_again() -> None:
    storm = "at: 0s, kind: rate-limit-storm"
    sets = ("workload.0.timeout=700ms", "serving.retries={attempts: 9, backoff: 400ms}")
    result, _ = faulty(plain(storm), *sets)
    assert result["reasons"]["timed_out"] == {"the client left before the next attempt": 1}


@pytest.mark.parametrize(("share", "crashed"), [("0.34", 2), ("0.5", 2), ("0.75", 3), ("1", 4)])
def test_a_share_of_servers_is_rounded_up(share: str, crashed: int) -> None:
    crash = f"at: 1500ms, kind: engine-crash, select: {{share: {share}}}"
    result, _ = faulty(plain(crash, replicas=4))
    assert len(result["faults"][0]["subjects"]) == crashed


def test_a_share_and_a_count_are_one_too_many() -> None:
    crash = "at: 1500ms, kind: engine-crash, select: {share: 0.5, count: 2}"
    with pytest.raises(InputError, match="count is written, too"):
        faulty(plain(crash, replicas=4))


@pytest.mark.parametrize(
    ("select", "replicas", "says"),
    [
        ("{count: 99}", 2, "99, but there are 2 servers: all are hit (write 2, or all)"),
        ("{count: 2, pool: main}", 1, "2, but there is 1 server: all are hit (write 1, or all)"),
        ("{count: 2}", 2, ""),
        ("{count: all}", 2, ""),
    ],
)
def test_more_servers_than_there_are_is_noted(select: str, replicas: int, says: str) -> None:
    fault = f"at: 1500ms, kind: slow-machine, factor: 2, for: 400ms, select: {select}"
    notes = load_text(plain(fault, replicas=replicas)).notes
    assert [one.partition("select.count: ")[2] for one in notes] == ([says] if says else [])
