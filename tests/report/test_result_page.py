"""docs/reference/result.md names every key of a real result and every column of the rows."""

import re
import runpy
from pathlib import Path
from typing import Any

from tests.core.sinks import MemorySink
from tests.report.page.runs import SPLIT
from tests.report.test_requests import SCHEMA
from tests.search.test_comparison import SHARED, compared
from tests.twin.faults.runs import faulty, plain
from tests.twin.infrastructure.worlds import SCALING
from tests.twin.infrastructure.worlds import scenario as with_infrastructure
from tests.twin.infrastructure.worlds import told as infrastructure_log
from tests.twin.runs import BUSY, run
from tests.twin.scaled import Script, scaled
from tests.twin.test_gateway import ONE_AT_A_TIME, source, steps
from tests.twin.test_lifecycle import elastic
from tests.twin.test_lora import ROUND_ROBIN
from tests.twin.test_offload import STICKY
from windtunnel.analysis import run_folder as contents
from windtunnel.analysis.figures import FIGURES as DECLARED
from windtunnel.core.vocabulary import KINDS, ROUTED
from windtunnel.twin.run import run as simulate
from windtunnel.twin.scenario.load import load_text

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "reference" / "result.md").read_text()
NAME = re.compile(r"`([A-Za-z_.]+)`")
ITEM = re.compile(r"- (`[^`]+`)(?: \(([^)]*)\))?: (.+)")
DRAFTS = "serving.pools.0.engine.speculative={method: mtp, num_speculative_tokens: 2}"
FIGURES = ["mean", "p50", "p90", "p95", "p99", "max"]
MEASURED = "measure.from=500ns"
"""Without a part that is measured, a result has null in place of what says which."""


def rows_of(section: str) -> list[list[str]]:
    """The cells of the table under a heading, or key, kind and meaning of the items of a list."""
    _, _, rest = PAGE.partition(f"\n## {section}\n")
    assert rest
    lines = rest.partition("\n## ")[0].splitlines()
    items = [found.groups() for found in map(ITEM.fullmatch, lines) if found]
    table = [line.strip("|").split("|") for line in lines if line.startswith("| `")]
    return [[(cell or "").strip() for cell in row] for row in [*items, *table]]


TYPED = re.compile(r"((?:`\w+`,? ?)+)\((\w+)\)")


def types_of(section: str) -> dict[str, str]:
    """The columns that the list under a heading has, with their types, in its order."""
    part = PAGE.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    heads = [line.partition(": ")[0] for line in part.splitlines() if line.startswith("- `")]
    found = [pair for head in heads for pair in TYPED.findall(head)]
    return {name: kind for names, kind in found for name in re.findall(r"`(\w+)`", names)}


NAMED = {
    "slo": "CLASS",
    "sources": "SOURCE",
    "tenants": "TENANT",
    "pools": "POOL",
    "trust.pools": "POOL",
}
OPEN = (
    "reasons.",
    "sessions.ended",
    "trust.findings[].figures",
    "trust.pools.POOL.measured",
    "trust.pools.POOL.extrapolated",
    "trust.saturated.stretches",
    "faults",
)
"""What is below these only a run knows; the page tells it in words."""


def paths(value: Any, path: str = "") -> list[str]:
    """The keys of a result, with the names of classes and pools made general."""
    if path.startswith(OPEN):
        return [path]
    if isinstance(value, list):
        return [found for item in value for found in paths(item, f"{path}[]")]
    if not isinstance(value, dict) or list(value) == FIGURES:
        return [path]
    general = NAMED.get(path)
    below = [paths(item, f"{path}.{general or key}".strip(".")) for key, item in value.items()]
    return list(dict.fromkeys(name for names in below for name in names))


def test_every_key_is_declared_in_its_order() -> None:
    found = list(dict.fromkeys(paths(run(BUSY, DRAFTS, MEASURED))))
    assert [figure.path for figure in DECLARED] == found
    sentence = ", ".join(f"`{name}`" for name in FIGURES[:-1]) + " and `max`"
    assert f"the figures {sentence}" in PAGE


def test_the_table_is_that_of_the_declared_figures() -> None:
    """A row each; keys of tenants that are as those of sources are named in one."""
    page = runpy.run_path(str(DOCS / "result_reference.py"))["page"]()
    assert page == PAGE, "run `python docs/result_reference.py`"
    found = []
    for row in rows_of("result.json"):
        key = row[0].strip("`")
        alike = re.findall(r"`([^`]+)`", row[2])[:-1] if key.endswith(".KEY") else []
        found += [key.removesuffix("KEY") + one for one in alike] or [key]
    assert sorted(found) == sorted(figure.path for figure in DECLARED)


def test_every_column_is_on_the_page_with_its_type() -> None:
    types = {row[0].strip("`"): row[1] for row in rows_of("requests.parquet")}
    expected = {
        name: "string"
        if str(kind).startswith("dictionary")
        else str(kind).replace("double", "float64").replace("list<item: ", "list of ").rstrip(">")
        for name, kind in SCHEMA.items()
    }
    expected["lost_tries"] = expected["lost_tries"].partition("<")[0]  # the words name its fields
    assert types == expected
    assert list(types) == list(expected)


def test_what_may_be_null_is_what_the_page_says() -> None:
    """Nothing arrives, so that all that can be null is."""
    nothing = run(BUSY, DRAFTS, "duration=1us", MEASURED)
    assert nothing["requests"]["arrived"] == 0
    found = {path for path in paths(nothing) if value_at(nothing, path) is None}
    said = {figure.path for figure in DECLARED if figure.null_when}
    assert found == said


def value_at(result: dict[str, Any], path: str) -> Any:
    value: Any = result
    for key in path.split("."):
        value = next(iter(value.values())) if key in NAMED.values() else value[key.strip("[]")]
        value = value[0] if key.endswith("[]") else value
    return value["mean"] if isinstance(value, dict) and list(value) == FIGURES else value


WEIGHTED = "serving.router={policy: weighted, counterfactual: 1}"
EVICTING = steps(
    f"{{policy: flow-control, eviction: true, max_waiting: 1, {ONE_AT_A_TIME}}}",
    source("night", 0.010, output=10, slo="batch"),
    source("late", 0.012, output=10, slo="batch"),
    source("now", 0.030, output=2, slo="critical"),
)


OF_REQUESTS = ("request.", "adapter.")
SLOW = "scaling.actuation_delay={mean: 2s, stddev: 3s}"


def test_every_kind_of_the_control_log_is_on_the_page_with_its_data() -> None:
    script = Script({"main": 2}, {"main": 5}, {"main": 3}, {"main": 4}, again=True)
    _, events = scaled(elastic(count=30), script, "scaling.interval=500ms", SLOW)
    events += infrastructure_log(
        with_infrastructure(replicas=1, count=300, more=SCALING.format(most=6))
    )[1]
    events += faulty(plain("at: 1s, kind: slow-machine, for: 1s"))[1]
    rows = {kind: row for row in rows_of("control.jsonl") for kind in NAME.findall(row[0])}
    of_all = {kind for kind in KINDS if not kind.startswith(OF_REQUESTS)}
    assert of_all <= set(rows)
    assert of_all | {"fleet.provision", "machine.configured"} <= {event.kind for event in events}
    for event in events:
        if not event.kind.startswith(OF_REQUESTS):
            told = set(NAME.findall(rows[event.kind][3]))
            assert set(event.data) <= told, event.kind


def test_every_kind_of_event_is_on_the_page_with_its_data() -> None:
    sink = MemorySink()
    for text in (EVICTING, SPLIT, ROUND_ROBIN, STICKY, BUSY):
        sets = [WEIGHTED] if text is BUSY else []
        simulate(load_text(text, sets=sets), events=sink)
    drains = elastic(count=4, rate="1000/s", replicas=2, output=110, drain="redirect")
    sink.events += scaled(drains, Script({"main": 1}, {"main": 2}), "scaling.interval=500ms")[1]
    sink.events += faulty(plain("at: 1500ms, kind: engine-crash"))[1]
    sink.events = [event for event in sink.events if event.kind.startswith(OF_REQUESTS)]
    found: dict[str, set[str]] = {}
    for event in sink.events:
        found.setdefault(event.kind, set()).update(event.data)
    rows = {kind: row for row in rows_of("events.jsonl") for kind in NAME.findall(row[0])}
    of_requests = {kind for kind in KINDS if kind.startswith(OF_REQUESTS)}
    assert set(rows) == of_requests == set(found)
    for kind, names in found.items():
        told = set(re.findall(r"`([a-z_]+)`", rows[kind][3]))
        assert told == names, kind


def test_the_folder_s_files_are_on_the_page() -> None:
    listed = PAGE.partition("\n\n- ")[2].partition("\n\n")[0]
    assert sorted(re.findall(r"^(?:- )?`(.+?)`: ", listed, re.MULTILINE)) == sorted(contents.ALL)


def test_exit_codes_are_those_of_the_command() -> None:
    from windtunnel._start import EXIT_INTERRUPTED
    from windtunnel.cli.main import EXIT_TERMINATED, EXIT_USAGE
    from windtunnel.core.errors import InvariantBroken

    codes = [int(code) for code in re.findall(r"^- (\d+): ", PAGE, re.MULTILINE)]
    stopped = [EXIT_INTERRUPTED, EXIT_TERMINATED]
    assert codes == [0, EXIT_USAGE, InvariantBroken.exit_code, *stopped]


def test_every_key_of_a_comparison_is_on_the_page() -> None:
    found = compared(SHARED, (), ("workload.0.arrivals.rate=61/s",), seeds=2)
    ours = dict.fromkeys(
        re.sub(r"\.difference\..*", ".difference", path).removesuffix("[]") for path in paths(found)
    )
    assert [row[0].strip("`") for row in rows_of("compare.json")] == list(ours)


def scores_of(policy: str) -> list[Any]:
    sink = MemorySink()
    plan = load_text(BUSY, sets=[f"serving.router={{policy: {policy}}}"])
    simulate(plan, events=sink)
    return [event.data.get("score") for event in sink.events if event.kind == ROUTED]


def test_a_router_that_compares_servers_tells_the_score_of_its_choice() -> None:
    for policy in ("weighted", "least-loaded"):
        scores = scores_of(policy)
        assert scores[0] == 1.0  # everybody is idle
        assert 0.0 <= min(scores) < max(scores) == 1.0
    assert set(scores_of("round-robin")) == {None}
