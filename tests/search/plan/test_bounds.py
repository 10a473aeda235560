"""Bounds are optimists: whatever they rule out, no simulation brings back."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windtunnel.search.plan.candidates.bounds import TOO_LONG, TPOT_FLOOR, TTFT_FLOOR
from windtunnel.search.plan.candidates.choices import choices_of
from windtunnel.search.plan.candidates.demand import demands_of, traits_of
from windtunnel.search.plan.candidates.space import ServerKind, kinds_of
from windtunnel.search.plan.goal import Goal
from windtunnel.search.point import Origin
from windtunnel.twin.run import simulate
from windtunnel.twin.scenario.load import load_text

SCENARIO = """\
name: bounded
{duration}
workload:
  - name: chat
    slo: critical
    count: 60
    arrivals: {{process: {process}, rate: {rate}/s}}
    prompt_tokens: {{distribution: uniform, min: 1, max: {prompt}}}
    output_tokens: {{distribution: uniform, min: 1, max: {output}}}
    {prefix}
slo:
  critical: {targets}
serving:
  pools:
    - name: main
      replicas: 1
      engine: {{kv_blocks: {blocks}, max_num_seqs: {seqs}, max_num_batched_tokens: {budget},
               prefix_caching: {caching}}}
      step_time: {{model: linear, fixed: {fixed}ms, per_prefill_token: {token}us,
                   per_decode: {decode}us, per_context_token: {context}ns}}
  router: {{policy: least-loaded}}
"""


def kind_of(text: str, attained: float) -> ServerKind:
    origin = Origin(text, "bounded.yaml")
    base = origin.plan()
    demands = demands_of(base, ("critical",))
    (kind,) = kinds_of(origin, base, choices_of(base), demands, Goal(("critical",), attained, 0.95))
    return kind


@settings(deadline=None, max_examples=40)
@given(
    process=st.sampled_from(["poisson", "constant"]),
    rate=st.sampled_from([1, 5, 20, 100]),
    prompt=st.sampled_from([1, 40, 400]),
    output=st.sampled_from([1, 20, 120]),
    prefix=st.sampled_from(["", "prefix: {tokens: 100, groups: 2}"]),
    targets=st.sampled_from(
        ["{ttft: 30ms}", "{tpot: 12ms}", "{e2e: 1s}", "{ttft: 200ms, tpot: 8ms}", "{ttft: 2s}"]
    ),
    blocks=st.sampled_from([4, 40, 400]),
    seqs=st.sampled_from([1, 8, 64]),
    budget=st.sampled_from([64, 512]),
    caching=st.sampled_from(["true", "false"]),
    fixed=st.sampled_from([1, 8]),
    token=st.sampled_from([1, 50, 400]),
    decode=st.sampled_from([1, 200]),
    context=st.sampled_from([0, 300]),
    duration=st.sampled_from(["", "duration: 3s"]),
    attained=st.sampled_from([0.5, 0.9, 0.99]),
)
def test_what_is_ruled_out_fails_in_simulation(attained: float, **parts: object) -> None:
    text = SCENARIO.format(**parts)
    kind = kind_of(text, attained)
    plan = load_text(text)
    for replicas in (1, 2, 4):
        ruled = kind.ruled is not None or replicas < kind.fewest
        if not ruled:
            continue
        pools = [plan.pools[0].model_copy(update={"replicas": replicas})]
        result = simulate(plan.with_pools(pools))
        assert result["slo"]["critical"]["attained"] < attained, (replicas, kind)


def filled(**changes: object) -> str:
    parts: dict[str, object] = {
        "process": "constant",
        "rate": 10,
        "prompt": 100,
        "output": 20,
        "prefix": "",
        "targets": "{ttft: 1s, tpot: 50ms}",
        "blocks": 1000,
        "seqs": 64,
        "budget": 512,
        "caching": "false",
        "fixed": 5,
        "token": 100,
        "decode": 100,
        "context": 0,
        "duration": "",
    }
    return SCENARIO.format(**(parts | changes))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"targets": "{ttft: 1ms}"}, TTFT_FLOOR),
        ({"targets": "{tpot: 2ms}"}, TPOT_FLOOR),
        ({"targets": "{e2e: 20ms}"}, "e2e-floor"),
        ({"blocks": 3}, TOO_LONG),
    ],
)
def test_floors_have_their_reason(changes: dict[str, object], reason: str) -> None:
    ruled = kind_of(filled(**changes), 0.9).ruled
    assert ruled is not None
    assert ruled.reason == reason
    assert ruled.share > 0.1


def test_work_asks_for_servers() -> None:
    """Prompts of 50 tokens at 2 ms each, forty a second: four seconds of work in each second."""
    text = filled(rate=40, token=2000, fixed=1).replace("count: 60", "count: 2000")
    kind = kind_of(text, 0.95)
    assert kind.ruled is None
    assert 3 <= kind.fewest <= 4


@pytest.mark.parametrize(
    "loop",
    [
        "session: {turns: 3, think: 1s}",
        "rate_curve: [[0s, 1], [10s, 4]]",
    ],
)
def test_traffic_that_tells_little_of_itself(loop: str) -> None:
    plan = load_text(filled(prefix=loop))
    demands = demands_of(plan, ("critical",))
    if "session" in loop:
        assert not traits_of(plan).open_loop
        assert demands == []
    else:
        assert not traits_of(plan).steady
        assert len(demands) == 1  # short enough to be read whole
