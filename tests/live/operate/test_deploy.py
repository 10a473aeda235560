"""What `deploy/` has for the operator is what the code declares and publishes."""

import importlib.util
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from windtunnel.live.kubernetes.resources import LEASES
from windtunnel.live.operate.fleet.metrics import fleet_families
from windtunnel.live.operate.mirror import LEASE
from windtunnel.live.operate.program import (
    OperatorOptions,
    OperatorProgram,
    operator_families,
    usual_host,
)
from windtunnel.live.operate.rights import (
    CLUSTER,
    FEATURES,
    GANGS,
    HOME,
    HOOKS,
    OPERATOR,
    PLACE,
    WATCHED,
    rules,
)
from windtunnel.live.operate.scaling.metrics import scaling_families
from windtunnel.live.operate.webhooks import PATHS, Webhooks

DEPLOY = Path(__file__).parents[3] / "deploy"
CHART = DEPLOY / "helm" / "windtunnel"


def test_generated_files_follow_from_the_declarations() -> None:
    spec = importlib.util.spec_from_file_location("generate", DEPLOY / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    for path, text in generate.generated().items():
        assert path.read_text(encoding="utf-8") == text, "python deploy/generate.py writes it"


@pytest.fixture(scope="module")
def plain() -> dict[str, Any]:
    text = (DEPLOY / "operator.yaml").read_text(encoding="utf-8")
    return {one["kind"]: one for one in yaml.safe_load_all(text) if one}


def test_plain_manifests_have_the_rights_and_no_more(plain: dict[str, Any]) -> None:
    def flat(found: list[dict[str, Any]]) -> set[tuple[str, ...]]:
        return {
            (group, resource, verb, *one.get("resourceNames", []))
            for one in found
            for group in one["apiGroups"]
            for resource in one["resources"]
            for verb in one["verbs"]
        }

    features = (OPERATOR, GANGS, PLACE, HOOKS)
    assert set(features) <= set(FEATURES)
    assert flat(plain["ClusterRole"]["rules"]) == flat(rules(features, CLUSTER, WATCHED))
    assert flat(plain["Role"]["rules"]) == flat(rules(features, HOME))
    assert (LEASES.group, "leases", "update", LEASE) in flat(plain["Role"]["rules"])
    assert not any("*" in one for one in flat(plain["ClusterRole"]["rules"]))


def test_ports_paths_and_probes_are_those_of_the_operator(plain: dict[str, Any]) -> None:
    (container,) = plain["Deployment"]["spec"]["template"]["spec"]["containers"]
    ports = {one["name"]: one["containerPort"] for one in container["ports"]}
    assert ports["metrics"] == OperatorOptions().metrics_port
    assert usual_host({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}) == "0.0.0.0", "probes reach it"
    assert usual_host({}) == OperatorOptions().host == "127.0.0.1"
    assert f"--webhook-port={ports['webhook']}" in container["args"]
    assert "--host=0.0.0.0" in container["args"]
    called = [
        plain[f"{word}WebhookConfiguration"]["webhooks"][0]["clientConfig"]["service"]
        for word in ("Mutating", "Validating")
    ]
    assert tuple(one["path"] for one in called) == PATHS
    service = plain["Service"]
    assert {one["name"] for one in called} == {service["metadata"]["name"]}
    assert service["spec"]["publishNotReadyAddresses"], "ready only once it was reached"


def test_dashboard_and_alerts_ask_for_metrics_that_there_are() -> None:
    program: Any = OperatorProgram(OperatorOptions())
    program.webhooks = Webhooks(None, "", dict, lambda: 0.0)  # type: ignore[arg-type]
    program.loop = SimpleNamespace(passes=0)
    program.client = SimpleNamespace(requests_sent=0, requests_shed=0)
    program.mirror = SimpleNamespace(reflectors={}, invalid={})
    scaling: Any = SimpleNamespace(scaled={}, bugs=0)
    fleet: Any = SimpleNamespace(shards=[], coordinator=None)
    published = {
        f"{one.name}_total" if one.type == "counter" else one.name
        for families in (
            operator_families(program),
            scaling_families(scaling, 0.0),
            fleet_families(fleet),
        )
        for one in families
    }
    board = json.loads((CHART / "files" / "grafana-operator.json").read_text(encoding="utf-8"))
    asked = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    alerts = yaml.safe_load((CHART / "files" / "alerts.yaml").read_text(encoding="utf-8"))
    asked += [rule["expr"] for group in alerts["groups"] for rule in group["rules"]]
    parts = set()
    for expression in asked:
        (metric,) = re.findall(r"windtunnel_\w+", expression)
        assert metric in published, expression
        parts.add(metric.split("_")[1])
    assert parts == {"operator", "scaling", "fleet"}
