"""A fault in one part of a file hides none in another, and each is told with its line."""

import re
from pathlib import Path

import pytest

from windtunnel.core.errors import InputError
from windtunnel.live.batch.settings import load_columns
from windtunnel.live.gateway.settings import read_settings
from windtunnel.settings.checking import checked
from windtunnel.settings.faults import Fault
from windtunnel.twin.kubernetes.settings import load_cluster_text
from windtunnel.twin.scenario.load import document_of, load_document
from windtunnel.twin.scenario.sections import Scenario

FILE = """\
model: llama-3.1-8b
duration: 60s
workload:
  - name: chat
    arrivals: {process: poisson, rate: 2/s}
    prompt_tokens: 100
    output_tokens: 10
  - name: code
    arrivals: {process: poisson, rate: 1/s}
    prompt_tokens: 100
    output_tokens: 10
slo:
  gold: {ttft: 1s}
serving:
  pools:
    - name: a
      accelerator: h100
      clique: c
      replicas: 2
    - name: b
      accelerator: h100
      clique: c
      replicas: 2
  router: {policy: least-loaded}
  admission: {policy: always}
scaling:
  policy: hpa
  metrics: [{name: "vllm:gpu_cache_usage_perc", target: 0.7}]
  pools:
    a: {min: 1, max: 4}
    b: {min: 1, max: 4}
fleet:
  pools:
    - name: m
      accelerator: h100
      accelerators: 8
      machines: {min: 1, max: 4}
      price_per_hour: 20
faults:
  - {kind: engine-crash, at: 10s}
"""

POOL_A, POOL_B = "serving.pools[0]", "serving.pools[1]"
MIN_A = ("    a: {min: 1, max: 4}", "    a: {min: 5, max: 4}", "scaling.pools.a.min")
UNKNOWN_SCALED = ("    b: {min: 1, max: 4}", "    c: {min: 1, max: 4}", "scaling.pools.c")
DUPLICATE = (
    "  router:",
    "    - name: a\n      accelerator: h100\n      clique: c\n  router:",
    "serving.pools[2].name",
)
MODEL = ("model: llama-3.1-8b", "model: llama-9", "model")
PROFILE = (
    "    - name: a\n",
    "    - name: a\n      step_time: {model: physics, profile: h999}\n",
    f"{POOL_A}.step_time.profile",
)
ACCELERATOR = (
    "    - name: b\n      accelerator: h100\n",
    "    - name: b\n      accelerator: h999\n",
    f"{POOL_B}.accelerator",
)
DURATION = ("duration: 60s", "duration: soon", "duration")
RATE = ("rate: 2/s", "rate: fast", "workload[0].arrivals.rate")
TOKENS = ("tokens: 10\n  - name: code", "tokens: -3\n  - name: code", "workload[0].output_tokens")
SLO = ("  - name: code\n", "  - name: code\n    slo: golt\n", "workload[1].slo")
ROUTER = (
    "router: {policy: least-loaded}",
    "router: {policy: lest-loaded}",
    "serving.router.policy",
)
POLICY = ("  policy: hpa", "  policy: hpaa", "scaling.policy")
UNKNOWN_KEY = ("  gold: {ttft: 1s}", "  gold: {tfft: 1s}", "slo.gold.tfft")
FAULT_POOL = (
    "{kind: engine-crash, at: 10s}",
    "{kind: engine-crash, at: 10s, select: {pool: z}}",
    "faults[0].select.pool",
)
FAULT_KIND = ("kind: engine-crash", "kind: engine-crush", "faults[0].kind")
MANIFEST = ("faults:\n", "gangs:\n  manifests: [nowhere.yaml]\nfaults:\n", "gangs.manifests[0]")
MACHINES = (
    "machines: {min: 1, max: 4}",
    "machines: {min: 9, max: 4}",
    "fleet.pools[0].machines.min",
)
FLEET_KIND = (
    "      accelerator: h100\n      accelerators",
    "      accelerators",
    "fleet.pools[0].accelerator",
)
REPLICAS = (
    "      replicas: 2\n    - name: b",
    "      replicas: two\n    - name: b",
    f"{POOL_A}.replicas",
)
NAME_B = ("    - name: b\n", "    - name: 5\n", f"{POOL_B}.name")
TRACE = (
    "slo:\n",
    "  - name: past\n    trace: {path: nowhere.jsonl, format: mooncake}\nslo:\n",
    "workload[2].trace.path",
)
ROWS = (
    "slo:\n",
    "  - name: past\n    trace: {path: rows.csv}\nslo:\n",
    "workload[2].trace.path",
)
AT_ONCE = (
    "slo:\n",
    "  - name: past\n    trace: {path: once.csv, rate: 2/s}\nslo:\n",
    "workload[2].trace.rate",
)
NO_TABLE = (
    "    - name: b\n",
    "    - name: b\n      step_time: {model: table}\n",
    f"{POOL_B}.step_time.path",
)
LOST_TABLE = (
    "    - name: b\n",
    "    - name: b\n      step_time: {model: table, path: lost.jsonl}\n",
    f"{POOL_B}.step_time.path",
)
DEGREE_A = ("    - name: a\n", "    - name: a\n      tensor_parallel: 3\n", POOL_A)
DEGREE = ("    - name: b\n", "    - name: b\n      tensor_parallel: 2\n", POOL_B)
SAME_SOURCE = ("  - name: code\n", "  - name: chat\n", "workload[1].name")
ENGINE = (
    "    - name: b\n",
    "    - name: b\n      engine: {max_num_seqs: 0}\n",
    f"{POOL_B}.engine.max_num_seqs",
)
VERSION = (
    "    - name: b\n",
    "    - name: b\n      engine: {version: 0.19}\n",
    f"{POOL_B}.engine.version",
)
RELEASE = (
    "    - name: a\n",
    "    - name: a\n      engine: {version: '9'}\n",
    f"{POOL_A}.engine.version",
)
WINDOW = ("slo:\n", "measure: {from: 50s, to: 20s}\nslo:\n", "measure.to")
METRIC = ("vllm:gpu_cache", "vllm:cpu_cache", "scaling.metrics[0].name")

TOGETHER = {
    "manifest, value": (MANIFEST, TOKENS),
    "manifest, bounds, model": (MANIFEST, MIN_A, MODEL),
    "manifest, duplicate pool, router": (MANIFEST, DUPLICATE, ROUTER),
    "bounds of a pool with an unknown profile": (MIN_A, PROFILE),
    "bounds, unknown model": (MIN_A, MODEL),
    "bounds, unknown accelerator, duration": (MIN_A, ACCELERATOR, DURATION),
    "duplicate pool, rate": (DUPLICATE, RATE),
    "duplicate pool, profile": (DUPLICATE, PROFILE),
    "unknown pool in scaling, tokens": (UNKNOWN_SCALED, TOKENS),
    "unknown pool in a fault, duration": (FAULT_POOL, DURATION),
    "unknown pool in a fault, in scaling, and a key": (FAULT_POOL, UNKNOWN_SCALED, UNKNOWN_KEY),
    "class of service, router": (SLO, ROUTER),
    "class of service, policy, machines": (SLO, POLICY, MACHINES),
    "policy, bounds": (POLICY, MIN_A),
    "policy, model": (POLICY, MODEL),
    "kind of fault, bounds": (FAULT_KIND, MIN_A),
    "machines, replicas, accelerator": (MACHINES, REPLICAS, ACCELERATOR),
    "missing accelerator of machines, bounds": (FLEET_KIND, MIN_A),
    "name of a pool, bounds, class of service": (NAME_B, MIN_A, SLO),
    "trace, tokens, model": (TRACE, TOKENS, MODEL),
    "trace, bounds": (TRACE, MIN_A),
    "two sources of a name, engine, window": (SAME_SOURCE, ENGINE, WINDOW),
    "engine, profile": (ENGINE, PROFILE),
    "version without quotes": (VERSION,),
    "version without quotes, rate": (VERSION, RATE),
    "version without quotes, release": (VERSION, RELEASE),
    "release, tokens": (RELEASE, TOKENS),
    "release, window": (RELEASE, WINDOW),
    "window, metric, duplicate pool": (WINDOW, METRIC, DUPLICATE),
    "metric, rate, trace": (METRIC, RATE, TRACE),
    "rows of a trace, manifest of a gang": (ROWS, MANIFEST),
    "rows of a trace, model": (ROWS, MODEL),
    "rows of a trace, value": (ROWS, DURATION),
    "rate of a trace, value": (AT_ONCE, DURATION),
    "profile, degree": (PROFILE, DEGREE_A),
    "table without a path, degree": (NO_TABLE, DEGREE),
    "table that is not there, degree": (LOST_TABLE, DEGREE),
    "table that is not there, model": (LOST_TABLE, MODEL),
    "all over": (MANIFEST, MIN_A, RATE, MODEL, FAULT_POOL, WINDOW, ROUTER),
}


@pytest.mark.parametrize("case", TOGETHER)
def test_all_faults_of_a_file_are_reported_at_once(case: str, tmp_path: Path) -> None:
    text = FILE
    for old, new, _ in TOGETHER[case]:
        assert text.count(old) >= 1, old
        text = text.replace(old, new, 1)
    header = "arrived,prompt_tokens,output_tokens\n"
    (tmp_path / "rows.csv").write_text(f"{header}0,9,9\n1,many,9\n")
    (tmp_path / "once.csv").write_text(f"{header}0,9,9\n0,9,9\n")
    with pytest.raises(InputError) as caught:
        load_document(document_of(text, str(tmp_path / "s.yaml"), (), None))
    told = [re.sub(r"^.*/s\.yaml", "s.yaml", str(one)) for one in caught.value.faults]
    assert all(re.match(r"s\.yaml:\d+: ", one) for one in told), told
    places = {one.split(": ")[1] for one in told}
    assert places == {path for _, _, path in TOGETHER[case]}, told


def test_rows_beside_a_wrong_limit_on_bad_rows_are_not_reported(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("arrived,prompt_tokens,output_tokens\n1,many,9\n")
    text = FILE.replace("slo:\n", "  - trace: {path: rows.csv, skip_bad: lots}\nslo:\n")
    with pytest.raises(InputError) as caught:
        load_document(document_of(text, str(tmp_path / "s.yaml"), (), None))
    assert [one.what for one in caught.value.faults] == ["'lots' is not a whole number"]


def test_faults_that_follow_from_a_wrong_value_are_not_reported() -> None:
    text = FILE.replace("    - name: b\n", "    - name: b b\n")
    with pytest.raises(InputError) as caught:
        load_document(document_of(text, "s.yaml", (), None))
    assert len(caught.value.faults) == 1  # not that `scaling.pools.b` is unknown
    text = FILE.replace("    - name: m\n      accelerator: h100", "    - name: m")
    with pytest.raises(InputError) as caught:
        load_document(document_of(text, "s.yaml", (), None))
    assert [one.what for one in caught.value.faults] == ["missing"]
    text = FILE.replace("duration: 60s", "durration: 60s")  # not that no source has a count
    with pytest.raises(InputError) as caught:
        load_document(document_of(text, "s.yaml", (), None))
    assert [one.where for one in caught.value.faults] == ["s.yaml:2: durration"]


def test_an_error_on_replaced_values_hides_no_fault() -> None:
    def rules(_: Scenario) -> list[Fault]:
        raise InputError("this is met in no file")

    document = document_of(FILE.replace(*TOKENS[:2]), "file.yaml", (), None)
    with pytest.raises(InputError, match=r"^file\.yaml:7: workload\[0\].output_tokens: -3 is"):
        checked(document, Scenario, rules)


def test_other_files_report_all_faults_at_once(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        load_cluster_text(
            "nodes:\n- {name: a, count: 0, capacity: {cpu: 1}}\n"
            "- {name: b, count: 1, capacity: {cpu: 1}}\n- {name: b, count: 1, capacity: {cpu: 1}}\n"
        )
    places = [one.where for one in caught.value.faults]
    assert places == ["cluster.yaml:2: nodes[0].count", "cluster.yaml:4: nodes[2].name"]
    columns = tmp_path / "columns.yaml"
    columns.write_text("columns:\n  a: {prompt: '{{ b'}\n  b: {prompt: x, apis: chat}\n")
    with pytest.raises(InputError) as caught:
        load_columns(columns)
    assert len(caught.value.faults) == 2
    gateway = tmp_path / "gateway.yaml"
    gateway.write_text("live: {listen: 8080, tls: {key: a.pem}}\ngateway: {policy: lawys}\n")
    with pytest.raises(InputError) as caught:
        read_settings(gateway, (), ())
    assert len(caught.value.faults) >= 2


def test_a_bad_manifest_of_an_autoscaler_hides_no_row_of_a_trace(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("arrived,prompt_tokens,output_tokens\n1,many,9\n")
    (tmp_path / "hpa.yaml").write_text("kind: HorizontalPodAutoscaler\n")
    text = (
        "model: llama-3.1-8b\nworkload: [{trace: {path: rows.csv}}]\n"
        "serving: {pools: [{name: a, accelerator: h100}]}\nscaling: {manifests: [hpa.yaml]}\n"
    )
    with pytest.raises(InputError) as caught:
        load_document(document_of(text, str(tmp_path / "s.yaml"), (), None))
    places = [one.where.rpartition(": ")[2] for one in caught.value.faults if one.where]
    assert set(places) == {"workload[0].trace.path", "scaling.manifests"}
