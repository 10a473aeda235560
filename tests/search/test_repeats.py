"""Many runs: the same answers from one process or several, and a clean end whatever happens."""

import signal
from collections.abc import Callable
from typing import Any

import pytest

from tests.core.system.test_processes import no_children
from tests.twin import wants
from tests.twin.runs import BUSY, one_server
from windtunnel.core.errors import WindtunnelError
from windtunnel.report.files.folder import result_bytes
from windtunnel.search.repeats.runs import Repeat, run_all
from windtunnel.twin.run import simulate
from windtunnel.twin.scenario.load import load_text

pytestmark = pytest.mark.xdist_group("workers")


def seeds(text: str, count: int) -> list[Repeat]:
    return [Repeat(load_text(text, seed=seed)) for seed in range(count)]


def test_one_process_or_two_give_the_same_bytes_in_the_same_order() -> None:
    counts: list[tuple[int, int]] = []

    def note(count: int, total: int) -> None:
        counts.append((count, total))

    repeats = seeds(BUSY, 3)
    repeats.append(Repeat(repeats[0].plan, {"main": 1.2}))
    here = run_all(repeats, wants.whole, note, workers=1)
    there = run_all(repeats, wants.whole, note, workers=2)
    assert [result_bytes(one) for one in here] == [result_bytes(one) for one in there]
    assert [one["seed"] for one in here] == [0, 1, 2, 0]
    assert here[0] == simulate(repeats[0].plan)
    assert here[0]["latency"] != here[3]["latency"]
    assert counts == [(1, 4), (2, 4), (3, 4), (4, 4)] * 2
    assert run_all(repeats, wants.whole, note) == here
    assert no_children()


@pytest.mark.parametrize(
    ("want", "sentence", "code"),
    [
        (wants.refuse, "one: it is too blue; allowed: green (try green)", 2),
        (wants.refuse_twice, "a: too blue\nb: too red", 2),
        (wants.break_down, "one: two is three", 3),
        (wants.die, "a worker process ended before its run did (memory may be short", 3),
    ],
)
def test_what_goes_wrong_in_a_worker_is_said_here(
    want: Callable[[dict[str, Any]], None], sentence: str, code: int
) -> None:
    with pytest.raises(WindtunnelError) as raised:
        run_all(seeds(one_server(), 2), want, lambda *_: None, workers=2)
    assert str(raised.value).startswith(sentence)
    assert raised.value.exit_code == code
    assert no_children()


def test_an_interrupt_ends_the_workers() -> None:
    endless = [Repeat(load_text(one_server(count=10**9, rate="100/s")))] * 2
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 3.0)
        with pytest.raises(KeyboardInterrupt):
            run_all(endless, wants.whole, lambda *_: None, workers=2)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
    assert no_children()


def test_scaled_steps_scale_a_run_that_nothing_else_paces() -> None:
    plan = load_text(one_server(rate="1000/s", count=20))
    (once, twice) = run_all(
        [Repeat(plan), Repeat(plan, {"main": 2.0})], wants.whole, lambda *_: None
    )
    # All arrive within 20 ms, before the second step ends: from there on everything takes twice.
    assert twice["latency"]["itl"]["p50"] == pytest.approx(
        2 * once["latency"]["itl"]["p50"], rel=0.02
    )
    alone = load_text(one_server())
    once, twice = run_all(
        [Repeat(alone), Repeat(alone, {"main": 2.0})], wants.whole, lambda *_: None
    )
    for kind in ("ttft", "tpot", "e2e"):
        assert twice["latency"][kind]["mean"] == pytest.approx(2 * once["latency"][kind]["mean"])
