"""The section `plan`: what it comes to, that a run does without it, and every fault in it."""

import pytest

from windtunnel.core.errors import WindtunnelError
from windtunnel.search.settings import CountRange, PlanSettings
from windtunnel.twin.scenario.load import load_text

SCENARIO = """\
name: shop
model: llama-3.1-8b
workload:
  - name: chat
    slo: critical
    count: 20
    arrivals: {process: poisson, rate: 10/s}
    prompt_tokens: 100
    output_tokens: 20
slo:
  critical: {ttft: 500ms}
serving:
  pools:
    - {name: main, replicas: 2, accelerator: h200}
"""


def planning(section: str) -> PlanSettings:
    found = load_text(SCENARIO + f"plan: {section}\n").sections.plan
    assert found is not None
    return found


def test_what_is_written_comes_to_a_plan() -> None:
    found = planning(
        "{slo: [critical], attained: 0.9, accelerators: [h100, l40s], prices: {l40s: 0.8}, "
        "replicas: {max: 6}, prefill_decode: {prefill: {max: 2}, decode: {min: 2, max: 3}}, "
        "engine: {max_num_seqs: [64, 128]}, routers: [{policy: weighted, staleness: 20ms}], "
        "autoscalers: [{policy: predictive, interval: 10s}]}"
    )
    assert found.slo == ["critical"]
    assert (found.attained, found.confidence) == (0.9, 0.95)
    assert found.accelerators == ["h100", "l40s"]
    assert found.prices_by_name == {"l40s": 0.8}
    assert found.replicas == CountRange(min=1, max=6)
    split = found.prefill_decode
    assert split is not None
    assert (split.prefill, split.decode) == (CountRange(max=2), CountRange(min=2, max=3))
    assert found.engine.max_num_seqs == [64, 128]
    assert found.written_routers == [{"policy": "weighted", "staleness": 0.02}]
    assert found.written_autoscalers == [{"policy": "predictive", "interval": 10.0}]


def test_shares_are_percentages_or_fractions() -> None:
    percent = planning("{replicas: {max: 3}, attained: 57%, confidence: 99.9%}")
    fraction = planning("{replicas: {max: 3}, attained: 0.57, confidence: 0.999}")
    assert percent == fraction
    assert (percent.attained, percent.confidence) == (0.57, 0.999)


def test_a_run_does_without_it() -> None:
    plain, planned = load_text(SCENARIO), load_text(SCENARIO + "plan: {replicas: {max: 3}}\n")
    assert plain.sections.plan is None
    assert plain.sha256 == planned.sha256


@pytest.mark.parametrize(
    ("section", "says"),
    [
        ("{replicas: {min: 5, max: 4}}", "5 is more than max, which is 4"),
        ("{accelerators: [h2000]}", "'h2000' is not in the catalog"),
        ("{accelerators: [h200, h200-sxm]}", "plan.accelerators[1]: this is already listed"),
        ("{accelerators: [h200], prices: {l4: 1}}", "not among the accelerators to try"),
        ("{slo: [critcal]}", "did you mean 'critical'"),
        ("{slo: [batch]}", "'batch' has no targets"),
        ("{together: false}", "there is nothing to try"),
        ("{together: false, replicas: {max: 2}}", "no servers that it could count"),
        ("{fixed: false}", "there is nothing to try"),
        ("{routers: [{policy: least-load}]}", "did you mean 'least-loaded'"),
        ("{autoscalers: [{policy: predictiv}]}", "did you mean 'predictive'"),
        (
            "{autoscalers: [{policy: predictive, pools: {mian: {max: 3}}}]}",
            "plan.autoscalers[0].pools.mian: there is no such pool",
        ),
        ("{engine: {max_num_seqs: [512], max_num_batched_tokens: [256]}}", "the largest is 256"),
        ("{tensor_parallel: [1, 2, 1]}", "plan.tensor_parallel[2]: this is already listed"),
        ("{attained: 1.5}", "1.5 is too large"),
        ("{attained: 95}", "95 is too large; allowed: a share above 0%, up to 100%, such as 95%"),
        ("{attained: 101%}", "plan.attained: '101%' is too large"),
        ("{attained: 0%}", "plan.attained: '0%' is too small"),
        ("{attained: most}", "plan.attained: 'most' is not a share; allowed: a share above 0%"),
        ("{attained: 95ms}", "'95ms' is not a share; allowed: a share above 0%, up to 100%"),
        ("{attained: true}", "plan.attained: true is not a share"),
        ("{confidence: 50%}", "'50%' is too small; allowed: a share from 60% to 99.99%"),
        ("{confidence: 0.2}", "0.2 is too small"),
        ("{accelerator: [h200]}", "did you mean 'accelerators'"),
    ],
)
def test_faults(section: str, says: str) -> None:
    with pytest.raises(WindtunnelError) as caught:
        planning(section)
    assert says in str(caught.value)
    assert "plan" in str(caught.value)


PRICED = SCENARIO + "plan: {accelerators: [l40s, h100, h200], prices: {l40s: 0.9, h100-sxm: 2.6}}\n"


def test_prices_of_what_an_override_leaves_out_are_not_used() -> None:
    found = load_text(PRICED, sets=["plan.accelerators=[h100-sxm, h200]"]).sections.plan
    assert found is not None
    assert found.accelerators == ["h100-sxm", "h200"]
    assert found.prices == {"h100-sxm": 2.6}
    anything = PRICED.replace("accelerators: [l40s, h100, h200], ", "")
    found = load_text(anything, sets=["plan.accelerators=[h200]"]).sections.plan
    assert found is not None
    assert found.prices == {}


@pytest.mark.parametrize(
    ("sets", "says"),
    [
        (["plan.accelerators=[h200]", "plan.prices.l40s=1"], "not among the accelerators to try"),
        (
            ["plan.accelerators=[h200]", "plan.prices={l40s: 1}"],
            "not among the accelerators to try",
        ),
        (["plan.prices.l4=1"], "not among the accelerators to try"),
        (["plan.accelerators=[h2000]"], "'h2000' is not in the catalog"),
    ],
)
def test_prices_that_somebody_asks_for_in_vain(sets: list[str], says: str) -> None:
    with pytest.raises(WindtunnelError, match=says):
        load_text(PRICED, sets=sets)
    with pytest.raises(WindtunnelError, match="'l40x' is not in the catalog"):
        load_text(PRICED.replace("l40s: 0.9", "l40x: 0.9"), sets=["plan.accelerators=[h200]"])


def test_step_times_that_know_no_accelerator() -> None:
    text = SCENARIO.replace(
        "accelerator: h200", "step_time: {model: linear, fixed: 5ms}, engine: {kv_blocks: 500}"
    )
    with pytest.raises(WindtunnelError, match="would be the same for all of them"):
        load_text(text + "plan: {accelerators: [h200]}\n")
