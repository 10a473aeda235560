"""The real helm, built from its Go module once, and the chart as it renders it.

python -m tests.kubernetes.chart    writes `deploy/operator.yaml`: the chart with its defaults
"""

import subprocess
from pathlib import Path
from typing import Any, Final

import yaml

from tests.kubernetes.control_plane import build

DEPLOY: Final = Path(__file__).parents[2] / "deploy"
CHART: Final = DEPLOY / "helm" / "windtunnel"
PLAIN: Final = DEPLOY / "operator.yaml"
HEAD: Final = """\
# The operator as plain manifests: the chart in deploy/helm/windtunnel with its defaults, rendered.
#   windtunnel operate crds | kubectl apply --server-side -f -
#   kubectl create namespace windtunnel
#   kubectl apply -f deploy/operator.yaml
"""
NAMESPACE: Final = "windtunnel"


def helm(*words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    program = build(Path(__file__).with_name("helm"), "helm.sh/helm/v3/cmd/helm")
    return subprocess.run([program, *words], capture_output=True, text=True, check=check)


def rendered(*values: str, namespace: str = NAMESPACE) -> str:
    """The manifests of the chart; each of `values` is one `--set`."""
    chosen = [word for one in values for word in ("--set", one)]
    words = ("template", "windtunnel", str(CHART), "--namespace", namespace)
    return helm(*words, "--kube-version", "1.35.0", *chosen).stdout


def objects(text: str) -> list[dict[str, Any]]:
    return [one for one in yaml.safe_load_all(text) if one]


if __name__ == "__main__":
    PLAIN.write_text(HEAD + rendered(), encoding="utf-8")
