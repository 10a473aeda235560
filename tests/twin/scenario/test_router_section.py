"""What may stand under `serving.router`, what it comes to, and what is said of the rest."""

from pathlib import Path

import pytest

from tests.twin.scenario.scenario_texts import SMALL
from windtunnel.core.errors import InputError
from windtunnel.routing.build import DEFAULT_SCORERS, POLICIES, SCORERS
from windtunnel.routing.settings import RouterSettings
from windtunnel.twin.run import simulate
from windtunnel.twin.scenario.load import load, load_text


def plan(router: str) -> RouterSettings:
    return load_text(SMALL, sets=[f"serving.router={router}"]).router


def sentence(router: str) -> str:
    with pytest.raises(InputError) as caught:
        plan(router)
    return str(caught.value).partition(": serving.router")[2]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_run_with_every_policy_serves_everybody(policy: str) -> None:
    found = simulate(load_text(SMALL, sets=[f"serving.router={{policy: {policy}}}"]), check=True)
    assert found["requests"]["completed"] == 100


@pytest.mark.parametrize("scorer", SCORERS)
def test_a_run_with_every_scorer_serves_everybody(scorer: str) -> None:
    router = f"serving.router={{policy: weighted, scorers: {{{scorer}: 1}}}}"
    assert simulate(load_text(SMALL, sets=[router]))["requests"]["completed"] == 100


def test_defaults() -> None:
    assert plan("{}") == RouterSettings()
    assert plan("{policy: weighted}").scorers == DEFAULT_SCORERS


def test_all_that_can_be_said() -> None:
    text = "{policy: weighted, scorers: {precise-prefix-cache: 3, vllm-dp: 0.5}, staleness: 1s,"
    found = plan(text + " cache_delay: 0s, counterfactual: 4}")
    assert found == RouterSettings(
        policy="weighted",
        scorers={"precise-prefix-cache": 3.0, "vllm-dp": 0.5},
        staleness_s=1.0,
        cache_delay_s=0.0,
        counterfactual=4,
    )
    assert found.weights == {"prefix-cache": 3.0, "vllm-dp": 0.5}
    ring = plan("{policy: consistent-hash, virtual_nodes: 7, load_factor: 2}")
    assert (ring.virtual_nodes, ring.load_factor) == (7, 2.0)


ALL = "prefix-cache, queue-depth, kv-utilization"
FAULTS = {
    "{policy: least-laoded}": ".policy: 'least-laoded' is not a policy; allowed: "
    + ", ".join(POLICIES)
    + ", or a class of your own as package.module:Class (did you mean 'least-loaded'?)",
    "{policy: weighted, scorers: {prefix-cahce: 1}}": ".scorers.prefix-cahce: "
    "'prefix-cahce' is not a scorer",
    "{policy: weighted, scorers: {}}": ".scorers: there is no scorer; allowed: at least one",
    "{policy: weighted, scorers: {queue-depth: 0}}": ".scorers.queue-depth: 0 is too small",
    "{policy: weighted, scorers: {queue-depth: -1}}": ".scorers.queue-depth: -1 is too small",
    "{policy: weighted, scorers: {queue-depth: .nan}}": ".scorers.queue-depth: nan is not a number",
    "{policy: weighted, scorers: [queue-depth]}": ".scorers: a list is not a mapping",
    "{policy: weighted, scorers: {prefix-cache: 1, precise-prefix-cache: 1}}": ".scorers."
    "precise-prefix-cache: it is an alias of 'prefix-cache', which is also listed",
    "{policy: weighted, staleness: -1s}": ".staleness: '-1s' is too small",
    "{policy: weighted, staleness: 2h}": ".staleness: '2h' is too large",
    "{policy: consistent-hash, load_factor: 0.5}": ".load_factor: 0.5 is too small",
    "{counterfactual: -1}": ".counterfactual: -1 is too small",
    "{weight: 3}": ".weight: unknown key",
}


def test_an_unknown_policy_is_told_beside_faults_of_other_sections() -> None:
    with pytest.raises(InputError) as caught:
        load_text(SMALL + "colour: red\n", sets=["serving.router.policy=best"])
    assert "'best' is not a policy" in str(caught.value)
    assert "colour: unknown key" in str(caught.value)


NOTES = {
    "{scorers: {queue-depth: 1}}": ".scorers: round-robin has no use for it "
    "(only with policy: weighted)",
    "{policy: least-loaded, staleness: 1s}": ".staleness: least-loaded has no use for it",
    "{policy: weighted, scorers: {queue-depth: 1}, cache_delay: 1s}": ".cache_delay: weighted has "
    "no use for it (only with policy: weighted with prefix-cache or no-hit-lru, "
    "or a class of your own)",
    "{policy: weighted, scorers: {load-balance: 1, prefix-affinity: 1}, staleness: 1s}": "."
    "staleness: weighted has no use for it (only with policy: weighted with a scorer that "
    "looks at servers, such as queue-depth",
    "{policy: weighted, virtual_nodes: 3}": ".virtual_nodes: weighted has no use for it",
    "{policy: random, load_factor: 2}": ".load_factor: random has no use for it",
}


@pytest.mark.parametrize("router", NOTES)
def test_an_option_that_a_policy_has_no_use_for_is_noted(router: str) -> None:
    (note,) = load_text(SMALL, sets=[f"serving.router={router}"]).notes
    assert note.partition(": serving.router")[2].startswith(NOTES[router])


@pytest.mark.parametrize("router", FAULTS)
def test_a_fault_has_its_sentence(router: str) -> None:
    assert sentence(router).startswith(FAULTS[router])


def test_a_typo_in_a_scorer_gets_the_nearest_name() -> None:
    found = sentence("{policy: weighted, scorers: {prefix-cahce: 1}}")
    assert "did you mean 'prefix-cache' or " in found
    assert f"allowed: {ALL}" in found


def test_a_class_that_cannot_be_imported_is_a_fault_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(SMALL + "  router: {policy: not_here_at_all:Mine}\n")
    with pytest.raises(InputError) as caught:
        load(file)
    assert str(caught.value).startswith(f"{file}:14: serving.router.policy: not_here_at_all:Mine")


def test_a_class_beside_the_scenario_is_found_and_used(tmp_path: Path) -> None:
    (tmp_path / "always_first_of_a_test.py").write_text(
        "class First:\n    def choose(self, request, servers):\n        return servers[0]\n"
    )
    file = tmp_path / "mine.yaml"
    file.write_text(SMALL + "  router: {policy: always_first_of_a_test:First, staleness: 0s}\n")
    assert simulate(load(file))["requests"]["completed"] == 100


@pytest.mark.parametrize(
    ("body", "sentence"),
    [("return 99", "chose 99 for request 0"), ("return 1 // 0", "failed in choose")],
)
def test_errors_of_a_custom_policy_name_the_line_of_the_scenario(
    body: str, sentence: str, tmp_path: Path
) -> None:
    name = f"policy_{body[-1]}_of_a_scenario"
    code = f"class Mine:\n    def choose(self, request, servers):\n        {body}\n"
    (tmp_path / f"{name}.py").write_text(code)
    file = tmp_path / "own.yaml"
    text = SMALL.replace("  pools:", f"  router: {{policy: '{name}:Mine'}}\n  pools:")
    file.write_text(text)
    line = next(n for n, one in enumerate(text.splitlines(), 1) if "router:" in one)
    with pytest.raises(InputError) as caught:
        simulate(load(file))
    assert str(caught.value).startswith(f"{file}:{line}: serving.router.policy: {name}:Mine ")
    assert sentence in str(caught.value)
