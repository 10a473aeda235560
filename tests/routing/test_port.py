"""Every router decides through its port, with neither servers nor a simulation imported."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from windtunnel.routing.build import POLICIES, SCORERS
from windtunnel.routing.router import REASONS

ROOT = Path(__file__).parents[2]

ALLOWED = ("_forms", "_start", "core", "settings", "routing")
"""Packages that a router may bring along; of workload, requests alone."""

BY_POLICY = {
    "round-robin": ([0, 1, 2], "next in turn"),
    "random": ([2, 1, 1], "drawn at random"),
    "least-loaded": ([1, 1, 2], "fewest requests in flight"),
    "power-of-two": ([2, 1, 2], "fewer requests in flight of two drawn at random"),
    "session-sticky": ([1, 1, 1], "server of the session"),
    "consistent-hash": ([2, 2, 2], "owner of the hash is at its load limit"),
    "weighted": ([0, 0, 0], "highest score with what is known of this prompt"),
}
"""Servers of three requests, and the reason of the last of them."""

BY_SCORER = {
    "prefix-cache": ([1.0, 0.0, 0.0], [0, 0, 0]),
    "queue-depth": ([0.0, 1.0, 1.0], [1, 2, 1]),
    "kv-utilization": ([0.1, 1.0, 0.5], [1, 1, 1]),
    "load-balance": ([1 / 7, 1.0, 1 / 3], [1, 1, 2]),
    "active-requests": ([0.0, 1.0, 2 / 3], [1, 1, 2]),
    "running-requests": ([0.0, 1.0, 0.5], [1, 1, 1]),
    "load-aware": ([0.5 * 126 / 128, 0.5, 0.5], [1, 2, 1]),
    "vllm-dp": ([0.0, 1.0, 10 / 12], [1, 2, 1]),  # 4 * queued + running: 12, 0, 2
    "least-request": ([0.0, 1.0, 204 / 206], [1, 2, 1]),  # in flight + 100 * queued
    "least-latency": ([0.0, 1.0, 1.0], [1, 2, 1]),  # nothing is known of 1, which is idle
    "predicted-latency": ([0.0, 1.0, 1.0], [1, 2, 1]),
    "token-load": ([1.0, 1.0, 1.0], [0, 1, 2]),
    "prefix-affinity": ([0.0, 0.0, 0.0], [0, 0, 0]),
    "kthena-prefix-cache": ([0.0, 0.0, 0.0], [0, 0, 0]),
    "lora-affinity": ([0.0, 0.0, 1.0], [2, 2, 2]),
    "no-hit-lru": ([0.5, 0.5, 0.5], [0, 1, 2]),
}
"""Scores before the first of three requests, and where they go."""


@pytest.fixture(scope="module")
def driven() -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.routing.port_driver"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def servers(decided: dict[str, Any]) -> list[int]:
    assert all(reason in REASONS for _, reason in decided["decisions"])
    assert decided["without servers"] == "no server is ready"
    return [server for server, _ in decided["decisions"]]


def test_neither_servers_nor_a_simulation_are_imported(driven: dict[str, Any]) -> None:
    names = [name.split(".") for name in driven["modules"]]
    others = [".".join(name) for name in names if name[1] not in ALLOWED]
    assert others == ["windtunnel.workload", "windtunnel.workload.request"]


def test_every_policy_decides_with_a_reason(driven: dict[str, Any]) -> None:
    assert list(BY_POLICY) == list(POLICIES)
    for policy, (expected, reason) in BY_POLICY.items():
        decided = driven["policies"][policy]
        assert (policy, servers(decided)) == (policy, expected)
        assert decided["decisions"][-1][1] == reason
    first = driven["policies"]["session-sticky"]["decisions"][0]
    assert first == [1, "fewest requests in flight"]


def test_every_scorer_scores_what_the_driver_observed(driven: dict[str, Any]) -> None:
    assert sorted(BY_SCORER) == sorted(SCORERS)
    for name, (scores, expected) in BY_SCORER.items():
        decided = driven["scorers"][name]
        assert [score for _, score in decided["scores"]] == pytest.approx(scores, abs=1e-6), name
        assert (name, servers(decided)) == (name, expected)


def test_a_custom_policy_sees_the_age_of_each_signal(driven: dict[str, Any]) -> None:
    """Server 0 is the fullest, but its load is 2.5 s old; that of server 2 is 0.5 s old."""
    assert servers(driven["custom"]) == [2, 2, 2]
    assert driven["custom"]["decisions"][0][1] == "chosen by a custom policy"


def test_regret_comes_from_the_same_views(driven: dict[str, Any]) -> None:
    assert driven["regret"] == {
        "score": 0.5,
        "others": [[0, 0.525], [2, 0.375]],
        "regret": 0.025,
    }


def test_a_split_is_decided_with_a_reason(driven: dict[str, Any]) -> None:
    cached = "enough of the prompt is cached on the decode server"
    assert driven["split"] == [[True, "prefix-threshold"], [False, cached]]
