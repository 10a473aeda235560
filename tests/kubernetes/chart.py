"""The real helm, built from its Go module once, and the chart as it renders it.

python -m tests.kubernetes.chart    writes `deploy/operator.yaml`: the chart with its defaults
"""

import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.kubernetes.control_plane import binary, build, can_build

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


class HelmFailed(Exception):
    """Helm failed; the message is its output."""


def helm(*words: str) -> str:
    """Runs helm, and returns its output."""
    sources = Path(__file__).with_name("helm")
    if not binary(sources).is_file() and not can_build():
        pytest.skip("there is no Go 1.21 to build helm with")
    program = build(sources, "helm.sh/helm/v3/cmd/helm")
    done = subprocess.run([program, *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise HelmFailed(done.stdout + done.stderr)
    return done.stdout


def rendered(*values: str, namespace: str = NAMESPACE) -> str:
    """The manifests of the chart; each of `values` is one `--set`."""
    chosen = [word for one in values for word in ("--set", one)]
    words = ("template", "windtunnel", str(CHART), "--namespace", namespace)
    return helm(*words, "--kube-version", "1.35.0", *chosen)


def objects(text: str) -> list[dict[str, Any]]:
    return [one for one in yaml.safe_load_all(text) if one]


if __name__ == "__main__":
    PLAIN.write_text(HEAD + rendered(), encoding="utf-8")
