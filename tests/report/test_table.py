"""The text after a run: what it says, and that it fits whatever the screen is."""

import io
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console

from tests.report.page.runs import GATED, SPLIT, TALKS
from tests.twin.infrastructure.worlds import scenario
from tests.twin.runs import BUSY, one_server, run
from tests.twin.test_lora import ROUND_ROBIN
from tests.twin.test_offload import STICKY
from windtunnel.cli.simulation import simulate as command
from windtunnel.report.page.headline import tiles
from windtunnel.report.terminal.run import show
from windtunnel.report.terminal.run_details import fault_lines, short_lines
from windtunnel.twin.run import simulate
from windtunnel.workload.settings.sources import SloClass

BY_HAND = """\
one  seed 0, 1.03 s simulated

1 request arrived: 1 completed
58.2/min completed, 2 output tokens/s

latency                   mean      p50      p90      p95      p99      max
time to first token    18.0 ms  18.0 ms  18.0 ms  18.0 ms  18.0 ms  18.0 ms
time per output token  12.8 ms  12.8 ms  12.8 ms  12.8 ms  12.8 ms  12.8 ms
inter-token latency    12.8 ms  12.8 ms  12.8 ms  12.8 ms  12.8 ms  12.8 ms
end-to-end latency     30.8 ms  30.8 ms  30.8 ms  30.8 ms  30.8 ms  30.8 ms
time queued                0 s      0 s      0 s      0 s      0 s      0 s

SLO       requests   attained
standard         1  no target

pool  servers  busy  KV peak  preemptions
main        1  3.0%     0.1%            0

trust  doubt
  doubt: The p50, p90, p95 and p99 of 1 completed request have fewer than 10
  requests beyond; a p99 needs 1,000.
  caution: The step times of main (linear) were not measured: the numbers are
  the scenario's own.
figures of one seed: --trust repeats the run for intervals

open runs/one-0/report.html; the results are beside it
"""
NARROW = """\
latency     mean      p50      p99
TTFT     18.0 ms  18.0 ms  18.0 ms
TPOT     12.8 ms  12.8 ms  12.8 ms
ITL      12.8 ms  12.8 ms  12.8 ms
E2E      30.8 ms  30.8 ms  30.8 ms
queued       0 s      0 s      0 s
"""


NO_TARGETS = {name: SloClass() for name in ("standard", "batch")}
SLOS = NO_TARGETS | {"critical": SloClass(ttft_s=0.2, tpot_s=0.03)}
TARGETS = SLOS | {"standard": SloClass(e2e_s=1.0)}


def shown(
    result: dict[str, Any],
    width: int,
    *,
    terminal: bool = False,
    slos: Mapping[str, SloClass] = SLOS,
) -> str:
    file = io.StringIO()
    console = Console(file=file, width=width, force_terminal=terminal, highlight=False, _environ={})
    show(result, slos, Path("runs/one-0"), console)
    return file.getvalue()


def test_eighty_columns() -> None:
    assert shown(run(one_server(output=2)), 80) == BY_HAND


def test_forty_columns() -> None:
    assert NARROW in shown(run(one_server(output=2)), 40)


@pytest.mark.parametrize("text", [one_server(), BUSY], ids=["one", "busy"])
@pytest.mark.parametrize("width", [1, 20, 30, 40, 50, 60, 72, 79, 80, 100, 200])
def test_no_cell_is_cut_or_wrapped_at_any_width(text: str, width: int) -> None:
    out = shown(run(text), width)
    assert "\N{HORIZONTAL ELLIPSIS}" not in out
    lines = out.splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("latency"))
    latency = lines[start : start + 6]
    assert len({len(line) for line in latency}) == 1
    assert lines[start + 6] == ""
    for line in latency[1:]:
        assert re.fullmatch(r"[A-Za-z2 -]+(  +[0-9.]+ (s|ms|us))+", line)
    assert lines[-1] == "open runs/one-0/report.html; the results are beside it"
    if width >= 40:
        assert max(len(line.rstrip()) for line in lines[:-1]) <= width


def test_a_result_without_figures_is_shown_with_dashes() -> None:
    nothing = one_server().replace("name: one", "duration: 500ms")
    out = shown(run(nothing), 80)
    assert "no requests arrived\n" in out
    assert re.search(r"^time to first token( +-){6}$", out, re.MULTILINE)
    assert re.search(r"^standard +0 +no target$", out, re.MULTILINE)
    dropped = shown(run(one_server(count=2, prompt=20_000)), 80)
    assert (
        "2 requests arrived: 2 dropped\n  2 dropped: needs 1251 KV blocks, the server has 999\n"
        in dropped
    )


def test_endings_and_cost_are_told_when_there_are_any() -> None:
    out = shown(run(BUSY), 80)
    assert re.search(r"requests arrived: \d+ completed, \d+ dropped, \d+ unfinished\n", out)
    assert "cost" not in out
    result = run(one_server())
    result["cost"] = {"total": 1234.5, "per_million_output_tokens": 0.001}
    text = "cost: $1,234.50, $0.001 per million output tokens\n"
    assert text in shown(result, 80)


@pytest.mark.parametrize(
    ("seconds", "shown_as"),
    [
        (0.0, "0 s"),
        (7.0, "7.00 s"),
        (59.4, "59.4 s"),
        (60.0, "60 s"),
        (91.2, "91 s"),
        (999.0, "999 s"),
        (1_000.0, "17 min"),
        (35_000.0, "583 min"),
        (40_000.0, "11.1 h"),
    ],
)
def test_a_column_of_times_has_one_unit_a_cell(seconds: float, shown_as: str) -> None:
    result = run(one_server())
    result["latency"]["e2e"]["max"] = seconds
    lines = shown(result, 80).splitlines()
    (line,) = (line for line in lines if line.startswith("end-to-end latency"))
    assert line.endswith(f"  {shown_as}")


def test_rates_that_are_compared_have_one_unit() -> None:
    result = run(one_server())
    result["throughput"] |= {"requests_per_s": 20.4, "goodput_requests_per_s": 0.0321}
    assert "20.4/s completed, 0.0321/s within their SLO" in shown(result, 80, slos=TARGETS)
    result["throughput"] |= {"requests_per_s": 1482.3, "goodput_requests_per_s": 1479.6}
    assert "1482/s completed, 1480/s within their SLO" in shown(result, 80, slos=TARGETS)


def test_a_class_without_a_target_keeps_nothing() -> None:
    out = shown(run(BUSY), 80)
    assert re.search(r"^batch +60 +no target( +[0-9.]+ m?s){4,5}$", out, re.MULTILINE)
    assert re.search(r"^critical +\d+ +[0-9.]+%( +[0-9.]+ m?s){4,5}$", out, re.MULTILINE)
    assert "within their SLO" in out
    assert "within their SLO" not in shown(run(one_server()), 80)
    nothing = shown(run(one_server().replace("name: one", "duration: 500ms")), 80, slos=TARGETS)
    assert re.search(r"^standard +0 +-$", nothing, re.MULTILINE)


def test_names_are_shown_as_they_are() -> None:
    """What rich would take for markup or an emoji stays text."""
    result = run(one_server())
    result["name"] = "[red]:smile:"
    result["pools"] = {"[b]x[/b]": result["pools"]["main"]}
    out = shown(result, 80)
    assert out.startswith("[red]:smile:  seed 0")
    assert "[b]x[/b]" in out


def test_colours_are_for_terminals_alone() -> None:
    assert "\x1b[" in shown(run(one_server()), 80, terminal=True)
    assert "\x1b" not in shown(run(one_server()), 80)


def test_the_gravest_doubts_are_told_and_the_rest_is_counted() -> None:
    result = run(one_server())
    out = shown(result, 80)
    assert "trust  doubt\n  doubt: The p50, p90, p95 and p99 of 1 completed request have" in out
    assert "\n  caution: The step times of main (linear) were not measured:" in out
    assert all(line == line.rstrip() for line in out.splitlines())
    says = {"code": "calibration", "severity": "caution", "figures": {}}
    result["trust"]["verdict"] = "caution"
    result["trust"]["findings"] = [{**says, "says": f"It is so, {n}."} for n in range(5)]
    out = shown(result, 80)
    assert "caution: It is so, 2.\n  and 2 more, in result.json\n" in out
    assert "It is so, 3" not in out
    result["trust"]["verdict"] = "good"
    result["trust"]["findings"] = [{**says, "severity": "good", "says": "x"}]
    assert "trust  good\nfigures of one seed: --trust " in shown(result, 80)


INTERVALS = """\
trust  good
95% of further runs            mean             p50               p99
TTFT                 10.0 to 20.0 s  10.0 to 20.0 s  998 ms to 1.00 s
TPOT                 10.0 to 20.0 s  10.0 to 20.0 s                 -
E2E                  10.0 to 20.0 s  10.0 to 20.0 s  998 ms to 1.00 s

"""


def test_intervals_have_a_table() -> None:
    result = run(one_server())
    ends = {figure: [10.0, 20.0] for figure in ("mean", "p50", "p90", "p95")}
    last = {"ttft": [0.998, 1.0], "tpot": None, "e2e": [0.998, 1.0]}
    kinds = {kind: {**ends, "p99": p99} for kind, p99 in last.items()}
    repeats = {"by_chance": kinds, "by_model": None}
    result["trust"] |= {"verdict": "good", "findings": [], "latency_intervals": kinds}
    result["trust"]["repeats"] = repeats
    assert INTERVALS in shown(result, 72)
    result["trust"]["repeats"] = {"by_chance": None, "by_model": kinds}
    out = shown(result, 72)
    assert "\nfast to slow steps " in out
    assert "\nother seeds change nothing: step times alone are varied\n" in out
    assert "further runs" not in out
    assert "figures of one seed" not in out
    assert "--trust" not in shown(result, 72)


def test_why_requests_were_not_completed_is_said_with_the_most_frequent_first() -> None:
    result = run(one_server())
    result["requests"] = {"arrived": 120, "completed": 1, "rejected": 112, "dropped": 7}
    result["requests"] |= {"timed_out": 0, "unfinished": 0}
    result["reasons"]["rejected"] = {f"reason {letter}": 4 for letter in "abc"}
    result["reasons"]["rejected"]["no room"] = 100
    result["reasons"]["dropped"] = {"too large": 7}
    lines = shown(result, 80).splitlines()
    assert lines[2:8] == [
        "120 requests arrived: 1 completed, 112 rejected, 7 dropped",
        "  100 rejected: no room",
        "    7 dropped: too large",
        "    4 rejected: reason a",
        "    4 rejected: reason b",
        "  and 1 more reason, in result.json",
    ]


def test_tenants_are_shown_when_there_are_several() -> None:
    assert "tenant" not in shown(run(one_server()), 80)
    result = run(BUSY)
    out = shown(result, 80)
    assert re.search(
        r"^tenant +requests +attained +served +TTFT p50 +TTFT p99 +E2E p99 +output tokens$",
        out,
        re.M,
    )
    assert re.search(r"^acme +60 +[0-9.]+% +[0-9.]+%( +[0-9.]+ m?s){3} +[0-9.k ]+$", out, re.M)
    tokens, goodput = result["fairness"]["served_tokens"], result["fairness"]["goodput"]
    said = f"fairness (Jain's, 2 tenants): {tokens:.3f} of tokens, {goodput:.3f} of "
    assert f"{said}SLO attainment\n" in out
    one = result["tenants"]["acme"]
    result["tenants"] = {f"t{n:02}": one | {"requests": n} for n in range(20)}
    lines = shown(result, 80).splitlines()
    (start,) = (number for number, line in enumerate(lines) if line.startswith("tenant"))
    names = [line.split("  ")[0].strip() for line in lines[start + 1 : start + 9]]
    assert names == ["t19", "t18", "t17", "t16", "t15", "t14", "14 more", ""]


def test_sessions_and_transfers_have_a_line_each() -> None:
    out = shown(run(TALKS), 80)
    assert re.search(
        r"^20 sessions, 60 turns; TTFT p50 .+ of first turns, .+ of later ones$", out, re.M
    )
    result = run(SPLIT, check=False)
    slos = SLOS | {"batch": SloClass(e2e_s=5.0)}
    out = shown(result, 80, slos=slos)
    assert re.search(r"^\d+ split requests, [0-9.]+ MiB moved; transfer p50 .+, p99 .+$", out, re.M)
    busy = result["disaggregation"]["link_busy"]
    assert 0.0 < busy <= 1.0
    assert f"\nthe busiest link was busy {busy:.1%} of the time\n" in out


def test_prefix_hits_are_told_when_there_are_any() -> None:
    result = run(TALKS)
    tokens = result["tokens"]
    assert tokens["prefix_hit"] > 0
    share = tokens["prefix_hit"] / tokens["prompt"]
    assert f"\nprefix hits: {share:.1%} of prompt tokens\n" in shown(result, 80)
    tile = next(tile for tile in tiles(result) if tile.name == "prefix hits")
    assert tile.figure == f"{share:.1%}"
    cold = run(one_server())
    assert "prefix hits" not in shown(cold, 80)
    assert "prefix hits" not in [tile.name for tile in tiles(cold)]


def test_files_that_were_asked_for_are_named_last() -> None:
    file = io.StringIO()
    console = Console(file=file, width=40, highlight=False, _environ={})
    show(run(one_server()), SLOS, Path("out"), console, {"a trace": Path("deep/trace.json")})
    assert file.getvalue().splitlines()[-1] == "a trace: deep/trace.json"


def test_adapters_and_slower_tiers_have_a_line_each() -> None:
    out = shown(run(ROUND_ROBIN, check=False), 80)
    assert re.search(r"^8 LoRA adapters, loaded \d+ times for 400 requests$", out, re.M)
    out = shown(run(STICKY, check=False), 200)
    tiers = r"[0-9.]+ [MG]iB from cpu in \d+ loads, [0-9.]+ [MG]iB from disk in \d+ loads"
    assert re.search(rf"^KV of main: {tiers}; wait p50 .+, p99 .+$", out, re.M)
    assert "KV of main" not in shown(run(one_server()), 80)


def test_drafts_are_told_by_what_a_step_gives() -> None:
    drafts = "{method: mtp, num_speculative_tokens: 2, acceptance: [1, 1]}"
    out = shown(run(BUSY, f"serving.pools.0.engine.speculative={drafts}"), 80)
    assert "main: 3.00 tokens a step with drafts, of which 100% were accepted" in out


def test_the_gateway_and_the_router_have_a_line_each_when_there_is_something_to_say() -> None:
    router = "serving.router={policy: weighted, counterfactual: 1}"
    out = shown(run(GATED, router, check=False), 80, slos=SLOS | {"sheddable": SLOS["batch"]})
    assert re.search(r"^at most \d+ requests were queued at the gateway$", out, re.M)
    assert re.search(r"^[0-9.]+% of the router's choices had a better server; regret ", out, re.M)


def test_gangs_and_machines_are_told_where_there_are_any() -> None:
    plan = scenario(replicas=1, count=150, machines="{initial: 1, max: 2}")
    text = shown(simulate(plan), 80)
    assert re.search(r"^1 pod at the end, 0 pending$", text, re.M)
    assert re.search(
        r"^machines  on average  most  created  lost +cost  machine hours$", text, re.M
    )
    assert re.search(r"^big +1 +1 +0 +0 +\$1\.\d\d +0\.\d$", text, re.M)


def test_faults_are_told_by_kind_and_by_what_they_struck() -> None:
    def fault(kind: str, *subjects: str) -> dict[str, Any]:
        return {"kind": kind, "subjects": list(subjects)}

    losses = [fault("machine-loss", "big-0", "big-1"), fault("rack-loss", "big-rack-0")]
    lost = [
        *losses,
        fault("machine-loss"),
        fault("machine-loss", "big-2"),
        fault("metric-lag", "a"),
    ]
    assert fault_lines({"faults": lost, "decisions": {"faults": 7}}) == [
        "faults: 2 machine-loss (3 machines), 1 rack-loss (1 rack), 1 metric-lag, "
        "1 that hit nothing, 2 more, which are only counted"
    ]
    assert fault_lines({"faults": [], "decisions": {"faults": 0}}) == []
    crash = "faults=[{at: 100ms, kind: engine-crash}]"
    text = shown(run(one_server(), crash, check=False), 80)
    assert re.search("^faults: 1 engine-crash .1 server.$", text, re.M)


def test_what_a_fleet_was_short_of_is_said_with_the_first_named() -> None:
    short = {f"main/main.{number}": f"short of {1 + number // 2} gpu" for number in range(9)}
    assert short_lines({"short": short}) == [
        *(f"main/main.{2 * n} and 1 more need have too few machines: short of {n + 1} gpu"
          for n in range(3)),
        "and 2 more reasons, in result.json",
    ]  # fmt: skip
    assert short_lines({"short": {"a": "x"}}) == ["a has too few machines: x"]


@pytest.mark.parametrize(("process", "by_chance"), [("constant", False), ("poisson", True)])
def test_other_seeds_are_suggested_only_where_they_change_something(
    process: str, by_chance: bool, tmp_path: Path
) -> None:
    scenario = tmp_path / "one.yaml"
    scenario.write_text(one_server().replace("process: constant", f"process: {process}"))
    done = CliRunner().invoke(command.simulate, [str(scenario), "-o", str(tmp_path / "run")])
    assert done.exit_code == 0
    assert ("--trust repeats the run" in done.output) == by_chance
