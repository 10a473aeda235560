"""A run without a duration ends when its requests do, and loses none, whatever goes wrong in it."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.sinks import MemorySink
from tests.twin.scaled import Script
from tests.twin.test_termination import check_counts, draw_case
from windtunnel.scaling.decision import Decision
from windtunnel.scaling.snapshot import Snapshot
from windtunnel.twin.run import run
from windtunnel.twin.scenario.load import load_text

TIMES = (
    "at: 0s",
    "at: 300ms",
    "at: 1s",
    "every: {mean: 200ms}",
    "every: {mean: 50ms, from: 100ms, until: 2s, most: 8}",
    "when: {metric: queue, above: 1, interval: 50ms, most: 3}",
    "when: {metric: ready, below: 1, for: 100ms, interval: 30ms}",
)
LENGTHS = ("", ", for: 100ms", ", for: 2s")
KINDS = (
    "kind: slow-machine, factor: 1.2",
    "kind: slow-machine, factor: 1.1, select: {count: all}",
    "kind: metric-blackout",
    "kind: metric-lag, by: 300ms",
    "kind: clock-skew, ahead: 5s",
    "kind: clock-skew, behind: 1s",
    "kind: controller-restart, controller: autoscaler",
    "kind: controller-restart, controller: gateway",
    "kind: kv-leak, rate: 5/s",
    "kind: kv-leak, rate: 100/s, select: {count: all}",
    "kind: rate-limit-storm, share: 0.5",
)
OTHERS = (
    "kind: engine-crash",
    "kind: engine-crash, select: {count: all}",
    "kind: router-partition, for: 100ms",
    "kind: router-partition, select: {count: all}, for: 80ms",
    "kind: crash-loop, after: 100ms, backoff: {first: 0s, most: 1s}, for: 2s",
    "kind: crash-loop, after: 0s, backoff: {first: 30ms}, for: 500ms, select: {count: all}",
)


class Skewed(Script):
    """A script that does not mind a clock which is behind."""

    def tick(self, snapshot: Snapshot, now_s: float) -> list[Decision]:
        return super().tick(snapshot, max(now_s, snapshot.taken_s))


@st.composite
def broken(draw: st.DrawFn) -> tuple[str, Script]:
    """A scenario of any kind with up to four faults of any kind; in the end each pool has one."""
    text, names = draw_case(draw, "policy: saturation")
    lines = []
    for _ in range(draw(st.integers(1, 4))):
        time = draw(st.sampled_from(TIMES))
        what = draw(
            st.tuples(st.sampled_from(KINDS), st.sampled_from(LENGTHS)).map("".join)
            | st.sampled_from(OTHERS)
        )
        lines.append(f"  - {{{time}, {what}}}\n")
    sizes = st.fixed_dictionaries({name: st.integers(0, 3) for name in names})
    ticks = draw(st.lists(sizes, max_size=6))
    return text + "faults:\n" + "".join(lines), Skewed(*ticks, dict.fromkeys(names, 1))


@settings(max_examples=40)
@given(broken())
def test_every_run_ends_and_nobody_is_lost(case: tuple[str, Script]) -> None:
    text, script = case
    sink = MemorySink()
    plan = load_text(text)
    result = run(plan, events=sink, check=True, scaler=script).result
    check_counts(result, sink.events)
    ended = [event.time for event in sink.events if event.kind == "request.ended"]
    if not result["requests"]["unfinished"]:
        assert result["simulated_seconds"] <= max(ended) + 0.5
    else:  # nobody would ever have helped them
        ways = set(result["reasons"]["unfinished"])
        assert ways <= {
            "the run ended before a server was ready",
            "the run ended in the queue of the gateway",
        }


BLIND = """\
name: blind
workload:
  - {name: chat, count: 3, arrivals: {process: constant, rate: 10/s}, prompt_tokens: 20,
     output_tokens: 5}
serving:
  pools:
    - {name: main, replicas: 0, engine: {kv_blocks: 12}, step_time: {model: linear, fixed: 5ms}}
scaling: {policy: saturation, interval: 100ms, pools: {main: {min: 0, max: 2}}}
faults:
  - {at: 0s, kind: metric-blackout, readers: [autoscaler]%s}
"""


def test_an_autoscaler_that_sees_nothing_for_ever_is_not_waited_for() -> None:
    result = run(load_text(BLIND % "")).result
    assert result["requests"]["unfinished"] == 3
    assert result["scaling"]["ticks"] < 15_000


def test_an_autoscaler_that_will_see_again_is_waited_for() -> None:
    result = run(load_text(BLIND % ", for: 40m")).result
    assert result["requests"]["completed"] == 3
    assert result["simulated_seconds"] > 2400.0
