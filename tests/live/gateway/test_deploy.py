"""What `deploy/` has for the gateway: manifests that it can read, metrics that it has."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.live.gateway.bed import bed, chat, run
from windtunnel.live.gateway.metrics import gateway_families
from windtunnel.live.gateway.settings import read_settings
from windtunnel.settings.document import parse_documents

DEPLOY = Path(__file__).parents[3] / "deploy"


@pytest.fixture(scope="module")
def objects() -> dict[str, Any]:
    text = (DEPLOY / "gateway.yaml").read_text(encoding="utf-8")
    found = [one.data for one in parse_documents(text, "gateway.yaml", "manifest", "kind")]
    return {str(one["kind"]): one for one in found}


def test_the_gateway_reads_its_configuration_and_has_the_ports_of_its_pod(
    objects: dict[str, Any], tmp_path: Path
) -> None:
    file = tmp_path / "gateway.yaml"
    file.write_text(objects["ConfigMap"]["data"]["gateway.yaml"])
    live = read_settings(file, [], []).settings.live
    pod = objects["Deployment"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    ports = {one["name"]: one["containerPort"] for one in container["ports"]}
    assert live.listen == f"0.0.0.0:{ports['http']}"
    assert live.admin == f"0.0.0.0:{ports['admin']}"
    assert pod["terminationGracePeriodSeconds"] > live.drain_s
    assert live.trace is not None
    mounts = [one["mountPath"] for one in container["volumeMounts"] if not one.get("readOnly")]
    assert any(live.trace.folder.startswith(mount) for mount in mounts)
    kept = live.trace.rotate_bytes * (live.trace.keep + 1)
    (data,) = [one for one in pod["volumes"] if "emptyDir" in one]
    assert data["emptyDir"]["sizeLimit"] == "2Gi"
    assert kept < 2 * 1024**3


def test_a_node_of_the_gateway_can_be_drained(objects: dict[str, Any]) -> None:
    budget = objects.get("PodDisruptionBudget", {"spec": {"minAvailable": 0}})["spec"]
    assert budget["minAvailable"] < objects["Deployment"]["spec"]["replicas"]


def test_every_metric_of_the_dashboard_is_published() -> None:
    board = json.loads(
        (DEPLOY / "helm/windtunnel/files/grafana-gateway.json").read_text(encoding="utf-8")
    )
    asked = {
        name
        for panel in board["panels"]
        for target in panel["targets"]
        for name in re.findall(r"\b(?:windtunnel|gen_ai)_\w+", target["expr"])
    } - {"gen_ai_request_model"}
    published: dict[str, set[str]] = {}

    async def test() -> None:
        async with bed() as it:
            await it.ask(chat(stream=True))
            await it.ask(b"{")
            proxy = it.program.proxy
            for family in gateway_families(proxy.metrics, proxy.core, proxy.now_s()):
                for sample in family.samples:
                    published.setdefault(sample.name, set()).update(sample.labels)

    run(test())
    assert asked <= set(published)
    assert asked >= {name for name in published if name.endswith("_bucket")}
    for panel in board["panels"]:
        for target in panel["targets"]:
            found = re.findall(r"\b(?:windtunnel|gen_ai)_\w+", target["expr"])
            (name,) = [one for one in found if one in published]
            for label in re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]):
                assert label in published[name], target["expr"]


def test_the_chart_has_a_configuration_that_the_gateway_reads(tmp_path: Path) -> None:
    chart = DEPLOY / "helm" / "windtunnel"
    values = yaml.safe_load((chart / "values.yaml").read_text(encoding="utf-8"))
    file = tmp_path / "gateway.yaml"
    file.write_text(yaml.safe_dump(values["gateway"]["config"]))
    live = read_settings(file, [], []).settings.live
    template = (chart / "templates" / "gateway.yaml").read_text(encoding="utf-8")
    for address in (live.listen, live.admin):
        assert address is not None
        assert f"containerPort: {address.rpartition(':')[2]}}}" in template
    assert live.servers_dns
