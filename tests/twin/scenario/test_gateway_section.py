"""What may stand under `serving.admission`, what it comes to, and what is said of the rest."""

import math

import pytest

from tests.twin.scenario.scenario_texts import SMALL
from windtunnel.admission.gateway.flow_control import FlowControl
from windtunnel.admission.gateway.settings import (
    AlwaysSettings,
    ConcurrencySettings,
    FlowControlSettings,
    GatewaySettings,
    NeverSettings,
    SaturationShedSettings,
    TierShedSettings,
    TokenBucketSettings,
    UtilizationSettings,
)
from windtunnel.core.errors import InputError
from windtunnel.settings.section import plain_data
from windtunnel.twin.compose import compose
from windtunnel.twin.scenario.load import load_text

TWO = SMALL.replace(
    "workload:\n",
    """\
slo:
  critical: {ttft: 1s}
workload:
  - {name: night, tenant: acme, slo: batch, count: 5, arrivals: {process: constant, rate: 1/s},
     prompt_tokens: 10, output_tokens: 10}
  - {name: now, tenant: bolt, slo: critical, count: 5, arrivals: {process: constant, rate: 1/s},
     prompt_tokens: 10, output_tokens: 10}
""",
)
"""Three tenants, `acme`, `bolt` and `default`, of priorities -1, 4 and 3."""


def plan(admission: str, *sets: str, text: str = TWO) -> GatewaySettings:
    return load_text(text, sets=[f"serving.admission={admission}", *sets]).gateway


def flow(more: str, *sets: str) -> FlowControlSettings:
    found = plan("{policy: flow-control" + more + "}", *sets)
    assert isinstance(found, FlowControlSettings)
    return found


def built(more: str, *sets: str) -> FlowControl:
    """What a run makes of it."""
    admission = "serving.admission={policy: flow-control" + more + "}"
    gateway = compose(load_text(TWO, sets=[admission, *sets])).services[0].gateway
    assert gateway is not None
    found = gateway.driver.gateway
    assert isinstance(found, FlowControl)
    return found


def sentence(admission: str, *sets: str, text: str = TWO) -> str:
    with pytest.raises(InputError) as caught:
        plan(admission, *sets, text=text)
    return str(caught.value).partition(": serving.admission")[2]


def noted(admission: str, *sets: str, text: str = TWO) -> str:
    """What is said of settings that change nothing."""
    found = load_text(text, sets=[f"serving.admission={admission}", *sets]).notes
    return "\n".join(one.partition("serving.admission")[2] for one in found)


def test_left_out_everybody_is_let_in() -> None:
    found = load_text(SMALL).gateway
    assert found == AlwaysSettings(policy="always")
    assert found.admits_all
    assert plan("{policy: always}").admits_all
    assert not plan("{policy: always, budgets: {acme: 1}}").admits_all


def test_each_policy_has_its_values() -> None:
    bucket = plan("{policy: token-bucket, capacity: 1e4, refill: 60000/min}")
    assert isinstance(bucket, TokenBucketSettings)
    assert (bucket.capacity, bucket.refill_per_s) == (10_000.0, 1000.0)
    tier = plan("{policy: tier-shed, threshold: 30, min_priority: 2}")
    assert isinstance(tier, TierShedSettings)
    assert (tier.threshold, tier.min_priority) == (30, 2)
    lowest = plan("{policy: tier-shed, threshold: 0}")
    assert isinstance(lowest, TierShedSettings)
    assert (lowest.threshold, lowest.min_priority) == (0, 0)
    for more, values in (("", (5.0, 0.8)), (", queue_depth: 2.5, kv_utilization: 1", (2.5, 1.0))):
        shed = plan("{policy: saturation" + more + "}")
        assert isinstance(shed, SaturationShedSettings)
        assert (shed.queue_depth, shed.kv_utilization) == values


def test_budgets_go_with_any_policy() -> None:
    found = plan("{policy: saturation, budgets: {acme: 0.25}, over_budget: reject-all}")
    assert (found.budgets, found.reject_all) == ({"acme": 0.25}, True)
    assert plan("{policy: always, budgets: {acme: 0.25}}").reject_all is False


def test_flow_control_by_default() -> None:
    found = flow("")
    assert found == FlowControlSettings(
        policy="flow-control",
        order="priority",
        limit=1.0,
        shedding=True,
        eviction=False,
        detector=UtilizationSettings(kind="utilization", queue_depth=5.0, kv_utilization=0.8),
    )
    assert (found.most_queued, found.most_queued_per_band) == (1_000_000, 1_000_000)
    assert found.longest_queued_s == math.inf
    assert built("").priorities == [4, 3, -1]


def test_all_that_flow_control_can_be_told() -> None:
    found = flow(
        ", order: priority, max_waiting: 50, max_waiting_per_band: 20, ttl: 30s, limit: 0.6,"
        " shedding: false, eviction: true, weights: {acme: 2, bolt: 0.5},"
        " detector: {kind: concurrency, max_per_server: 64}"
    )
    assert found == FlowControlSettings(
        policy="flow-control",
        order="priority",
        max_waiting=50,
        max_waiting_per_band=20,
        ttl_s=30.0,
        limit=0.6,
        shedding=False,
        eviction=True,
        weights={"acme": 2.0, "bolt": 0.5},
        detector=ConcurrencySettings(kind="concurrency", max_per_server=64),
    )
    assert flow(", detector: {kind: never}").detector == NeverSettings(kind="never")
    assert flow(", max_waiting: 7").most_queued_per_band == 1_000_000


def test_a_detector_looks_as_often_as_there_is_something_new() -> None:
    looks = ", detector: {kind: utilization, queue_depth: 2, kv_utilization: 0.9%s}"
    stale = "serving.router.staleness=%s"
    assert built(looks % "").detector.look_every_s == 0.05
    assert built(looks % "", stale % "200ms").detector.look_every_s == 0.2
    assert built(looks % "", stale % "0s").detector.look_every_s == 0.05
    assert built(looks % ", interval: 1s").detector.look_every_s == 1.0
    assert built(looks % ", interval: 1ms", stale % "0s").detector.look_every_s == 0.001


def test_signals_have_an_age_wherever_somebody_looks_at_them() -> None:
    stale = "serving.router.staleness=1s"
    for looks in ("{policy: saturation}", "{policy: flow-control}"):
        assert plan(looks, stale).reads_signals
    for blind in ("{policy: tier-shed, threshold: 1}", "{policy: always}"):
        (note,) = load_text(TWO, sets=[f"serving.admission={blind}", stale]).notes
        assert "staleness: round-robin has no use for it" in note


FLOW = "{policy: flow-control, "
FAULTS = {
    "{}": ".policy: missing; allowed: always, token-bucket, tier-shed, saturation, flow-control",
    "{policy: tier-shedding}": ".policy: 'tier-shedding' is not known here; allowed: always, "
    "token-bucket, tier-shed, saturation, flow-control (did you mean 'tier-shed'?)",
    "{policy: token-bucket, refill: 1/s}": ".capacity: missing",
    "{policy: token-bucket, capacity: 0, refill: 1/s}": ".capacity: 0 is too small",
    "{policy: always, capacity: 5}": ".capacity: unknown key; allowed: policy, budgets,",
    "{policy: saturation, threshold: 5}": ".threshold: unknown key",
    "{policy: saturation, kv_utilization: 1.5}": ".kv_utilization: 1.5 is too large",
    "{policy: tier-shed, threshold: -1}": ".threshold: -1 is too small",
    "{policy: always, budgets: {amce: 0.5}}": ".budgets.amce: no source has the tenant 'amce'; "
    "allowed: acme, bolt, default (did you mean 'acme'?)",
    "{policy: always, budgets: {acme: 1.5}}": ".budgets.acme: 1.5 is too large",
    "{policy: always, budgets: {}}": ".budgets: no tenant is named",
    "{policy: always, budgets: {acme: 1}, over_budget: drop}": ".over_budget: 'drop' is not known",
    FLOW + "order: lifo}": ".order: 'lifo' is not known here; allowed: priority, fifo, ",
    FLOW + "ttl: 0s}": ".ttl: '0s' is too small",
    FLOW + "limit: 1.2}": ".limit: 1.2 is too large",
    FLOW + "weights: {}}": ".weights: no tenant is named",
    FLOW + "weights: {bold: 2}}": ".weights.bold: no source has the tenant 'bold'",
    FLOW + "weights: {bolt: 0}}": ".weights.bolt: 0 is too small",
    FLOW + "order: round-robin, eviction: true}": ".eviction: with the order 'round-robin' "
    "another request may take the freed place; allowed: only with order: priority",
    FLOW + "max_waiting: 5, max_waiting_per_band: 6}": ".max_waiting_per_band: 6 is more than "
    "max_waiting, which is 5",
    FLOW + "detector: {kind: utilisation}}": ".detector.kind: 'utilisation' is not known here; "
    "allowed: concurrency, utilization, never (did you mean 'utilization'?)",
    FLOW + "detector: {kind: never, queue_depth: 5}}": ".detector.queue_depth: unknown key",
}


@pytest.mark.parametrize("admission", FAULTS)
def test_a_fault_has_its_sentence(admission: str) -> None:
    assert sentence(admission).startswith(FAULTS[admission])


@pytest.mark.parametrize(
    ("admission", "told"),
    [
        (FLOW + "limit: 0.5}", ".limit: all requests have the same priority"),
        (FLOW + "eviction: true}", ".eviction: no request has a priority below 0"),
        (
            "{policy: saturation}",
            ".policy: no request has a priority below 0, so that 'saturation'",
        ),
        (
            "{policy: always, budgets: {default: 0.5}}",
            ".budgets: no request has a priority below 0, so that none is rejected",
        ),
        (FLOW + "order: slo-deadline}", ".order: no class of a source has a ttft target"),
        (
            FLOW + "order: fifo, weights: {default: 2}}",
            ".weights: the order 'fifo' has no use",
        ),
        ("{policy: always, over_budget: shed}", ".over_budget: there are no budgets"),
        (
            FLOW + "detector: {kind: utilization, interval: 10ms}}",
            ".detector.interval: less than the 50 ms after which signals are refreshed",
        ),
    ],
)
def test_options_that_this_traffic_leaves_without_a_use(admission: str, told: str) -> None:
    assert told in noted(admission, text=SMALL)


def test_budgets_that_hold_for_all_need_nothing_to_shed() -> None:
    strict = "{policy: always, budgets: {default: 0.5}, over_budget: reject-all}"
    assert plan(strict, text=SMALL).reject_all


def test_null_is_left_out() -> None:
    parts = "  router: {policy: weighted}\n  admission: {policy: tier-shed, min_priority: 5}\n"
    sets = ["serving.admission=null", "serving.router=null"]
    found = load_text(SMALL + parts, sets=sets)
    assert found.sha256 == load_text(SMALL).sha256
    assert found.gateway.admits_all


def test_members_of_a_population_are_tenants() -> None:
    sets = ["workload.0.population={members: 12, tenants: per-member}"]
    found = plan("{policy: always, budgets: {acme-0: 0.5, acme-11: 0.1}}", *sets)
    assert found.budgets == {"acme-0": 0.5, "acme-11": 0.1}
    for name in ("acme", "acme-12", "acme-01", "acme-x"):
        told = sentence(f"{{policy: always, budgets: {{{name}: 1}}}}", *sets)
        assert told.startswith(f".budgets.{name}: no source has the tenant {name!r}; allowed: ")
        assert "acme-0, acme-11, bolt, default" in told


def test_a_trace_may_have_any_tenant_and_any_class() -> None:
    sets = ["workload=[{trace: {path: some.csv}}]"]
    assert plan("{policy: always, budgets: {anybody: 0.5}}", *sets).budgets == {"anybody": 0.5}
    assert flow(", limit: 0.5, eviction: true", *sets).eviction
    sets = ["workload=[{trace: {path: some.csv}, tenant: acme, slo: standard}]"]
    assert "no source has the tenant" in sentence("{policy: always, budgets: {bolt: 1}}", *sets)
    assert "the same priority" in noted("{policy: flow-control, limit: 0.5}", *sets)


def test_deadlines_of_a_class_that_nobody_has_are_none() -> None:
    told = noted(FLOW + "order: slo-deadline}", "slo={batch: {}, sheddable: {ttft: 1s}}")
    assert ".order: no class of a source has a ttft" in told
    assert flow(", order: slo-deadline").order == "slo-deadline"


def test_a_plan_survives_being_written_down() -> None:
    """`scenario.json` has it, and reports read it again."""
    found = plan("{policy: flow-control, ttl: 5s, weights: {acme: 2}, budgets: {bolt: 0.5}}")
    assert FlowControlSettings.model_validate(plain_data(found)) == found
