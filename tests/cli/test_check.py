"""`windtunnel check`: what is checked against what, what it prints and leaves, how it exits."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import windtunnel as wt
from tests.search.test_comparison import SHARED
from windtunnel.cli.main import main
from windtunnel.search.check.check import CheckAsk
from windtunnel.search.check.check import check as run_check
from windtunnel.search.check.sides import CheckInput
from windtunnel.workload.traces.gateway_folder import gateway_rows

Run = Callable[..., tuple[int, str, str]]
SLOW = SHARED.replace("replicas: 3", "replicas: 1")
ROUTER = "live: {listen: 127.0.0.1:0}\nserving:\n  router: {policy: least-loaded}\n"
HPA = """\
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: main}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: main}
  minReplicas: 1
  maxReplicas: 4
  metrics:
    - {type: Pods, pods: {metric: {name: running}, target: {type: AverageValue, averageValue: "8"}}}
"""
ON_TRACE = ("base.yaml", "slow.yaml", "--trace", "day.jsonl")
SMALLER = HPA.replace('"8"', '"100m"')


def rows(first: int = 0) -> bytes:
    """A gateway's trace: forty seconds of traffic, in the order of ends."""
    return b"".join(
        json.dumps(
            {
                "arrived": (first + at) / 10,
                "prompt_tokens": 50 + at * 37 % 800,
                "output_tokens": 1 + at * 13 % 60,
                "id": str(first + at),
                "slo": "critical",
                "outcome": "completed",
                "e2e": 0.5,
            }
        ).encode()
        + b"\n"
        for at in range(400)
    )


@pytest.fixture
def check(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Run:
    """Runs the command in a folder with scenarios, manifests and a trace."""
    files = {"base.yaml": SHARED, "slow.yaml": SLOW, "router.yaml": ROUTER, "hpa.yaml": HPA}
    for name, text in {**files, "smaller.yaml": SMALLER}.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "day.jsonl").write_bytes(rows())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")

    def run_it(*args: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as left:
            main(["check", *args])
        captured = capfd.readouterr()
        assert isinstance(left.value.code, int)
        return left.value.code, captured.out, captured.err

    return run_it


def test_a_change_within_its_limits_passes_and_one_beyond_them_is_1(check: Run) -> None:
    common = ("base.yaml", "slow.yaml", "--trace", "day.jsonl", "--block", "4s")
    code, out, err = check(*common, "--max-cost", "+5%", "--min-attainment", "99%")
    assert (code, err) == (0, "")
    assert out.startswith("slow against base  400 requests of day.jsonl in 39.9 s, 9 blocks of")
    assert "first routing: request 1 at 100 ms: main/1 -> main/0" in out
    assert out.splitlines()[-2:] == ["passed: 2 of 2 limits met", "open runs/check-slow/check.html"]
    names = {path.name for path in Path("runs/check-slow").iterdir()}
    assert names == {"check.html", "check.json", "check.md"}
    code, out, err = check(*common, "--max", "latency.ttft.p99=+1%", "-o", "out")
    assert (code, err) == (1, "")
    assert "regression: TTFT p99 +" in out
    page = Path("out/check.html").read_text()
    assert "regression: TTFT p99" in page
    assert "blocks of time" in page
    assert '<p class="kicker">Windtunnel check</p>' in page
    found = json.loads(Path("out/check.json").read_bytes())
    (p99,) = (one for one in found["metrics"] if one["path"] == "latency.ttft.p99")
    ratio = p99["designs"][1]["difference"]["ratio"]
    assert 1.0 < ratio["low"] < ratio["mean"] < ratio["high"]
    assert found["verdict"] == "regression"


def test_a_configuration_against_itself_is_the_same_in_everything(check: Run) -> None:
    code, out, _ = check("base.yaml", "base.yaml", "--trace", "day.jsonl", "--json", "-")
    found: dict[str, Any] = json.loads(out)
    assert code == 0
    assert {one["designs"][1]["difference"]["verdict"] for one in found["metrics"]} == {"the same"}
    assert [one["differ"] for one in found["decisions"]] == [0, 0]
    assert [one["code"] for one in found["notes"]] == ["one-sample"]
    assert found["default_limits"]


def test_generated_traffic_runs_with_several_seeds(check: Run) -> None:
    rate = "workload.0.arrivals.rate=400/s"
    code, out, _ = check("base.yaml", "slow.yaml", "--set", rate, "--seeds", "2", "--markdown", "-")
    assert code == 1
    assert "seeds 0 to 1" in out
    assert out.startswith("<!-- windtunnel check -->\n### \N{CROSS MARK} Windtunnel: slow against")
    assert "| critical attained | at least -0.1 points |" in out


def test_a_fall_that_may_be_chance_is_undecided(check: Run) -> None:
    given = ("base.yaml", "slow.yaml", "--min-attainment", "-1%", "--max-cost", "+5%")
    code, out, err = check(*given, "--seeds", "2")
    assert (code, err) == (4, "")
    lines = out.splitlines()
    assert lines[-2].startswith("undecided: critical attained -")
    assert lines[-2].endswith(" points (at least -1 points); run more seeds")
    found = json.loads(Path("runs/check-slow/check.json").read_bytes())
    assert found["verdict"] == "undecided"
    assert [one["verdict"] for one in found["limits"]] == ["uncertain", "passed"]
    assert found["notes"][-1]["says"].endswith("these were 2; use --seeds 8.")
    assert "### \N{WARNING SIGN} Windtunnel" in Path("runs/check-slow/check.md").read_text()
    table = wt.check("base.yaml", "slow.yaml", seeds=2, min_attainment="-1%")
    assert not table.passed
    code, out, _ = check(*given, "--seeds", "8")
    assert (code, "regression: critical attained -" in out) == (1, True)


def test_manifests_and_sections_lie_on_top_of_a_scenario(check: Run) -> None:
    common = ("--scenario", "base.yaml", "--trace", "day.jsonl", "--json", "-")
    code, out, err = check("hpa.yaml", "smaller.yaml", *common, "--max-cost", "+100%")
    assert (code, err) == (0, "")
    kinds = {one["kind"]: one for one in json.loads(out)["decisions"]}
    assert kinds["scaling"]["differ"]
    assert kinds["scaling"]["first"]["subject"] == "pool main"
    code, out, _ = check(
        "router.yaml", "router.yaml", *common, "--set", "serving.pools.0.replicas=2"
    )
    assert code == 0
    assert json.loads(out)["settings"] == []
    code, _, err = check("hpa.yaml", "smaller.yaml", "--trace", "day.jsonl")
    assert code == 2
    assert "these are Kubernetes manifests" in err
    assert "--scenario names a scenario" in err


def autoscaler(most: int) -> str:
    metrics = [{"name": "running", "target": 0.1}]
    scaling = {"policy": "hpa", "metrics": metrics, "pools": {"main": {"min": 1, "max": most}}}
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "main"}
    spec = {"targets": [{"targetRef": reference}], "scaling": scaling}
    meta = {"name": "main"}
    return json.dumps(
        {"apiVersion": "windtunnel.dev/v1alpha1", "kind": "Autoscaler", "metadata": meta,
         "spec": spec}
    )  # fmt: skip


def test_our_own_autoscaler_is_the_scaling_section_of_a_scenario(check: Run) -> None:
    common = ("--scenario", "base.yaml", "--trace", "day.jsonl", "--json", "-")
    for name, text in (("own.yaml", autoscaler(4)), ("other.yaml", autoscaler(2))):
        Path(name).write_text(text)
    code, out, err = check("smaller.yaml", "own.yaml", *common)
    assert (code, err) == (0, "")
    kinds = {one["kind"]: one for one in json.loads(out)["decisions"]}
    assert kinds["scaling"]["decided"]
    assert kinds["scaling"]["differ"] == 0, "it is the policy of the HPA"
    _, out, _ = check("own.yaml", "other.yaml", *common, "--max-cost", "+100%")
    paths = [one["path"] for one in json.loads(out)["settings"]]
    assert "scaling.timing.pools.main.max" in paths
    for text, says in (
        (autoscaler(4) + "\n---\n" + HPA, "other.yaml: it has 2 manifests that scale"),
        (autoscaler(4).replace("hpa", "hpb"), "other.yaml: spec.scaling.policy"),
        (autoscaler(4).replace('"spec"', '"spek"'), "other.yaml: spec"),
    ):
        Path("other.yaml").write_text(text)
        code, out, err = check("own.yaml", "other.yaml", *common)
        assert (code, out) == (2, "")
        assert says in err


def test_a_file_is_checked_against_itself_at_a_revision(check: Run) -> None:
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "first"]):
        subprocess.run([*git, *command], check=True)
    Path("hpa.yaml").write_text(SMALLER)
    common = ("--scenario", "base.yaml", "--trace", "day.jsonl", "--json", "-")
    code, out, err = check("--base", "HEAD", "hpa.yaml", *common, "--max-cost", "+100%")
    assert (code, err) == (0, "")
    found = json.loads(out)
    first, second = (design["name"] for design in found["designs"])
    assert first.startswith("HEAD (")
    assert second == "working tree"
    assert next(one for one in found["decisions"] if one["kind"] == "scaling")["differ"]
    code, _, err = check("--base", "--upload-pack=x", "hpa.yaml", *common)
    assert code == 2
    assert "is not a revision of" in err
    code, _, err = check("--base", "HEAD", "new.yaml", *common)
    assert code == 2
    assert "has no file new.yaml" in err
    Path("hpa.yaml").write_text(HPA.replace("maxReplicas: 4", "maxReplicas: none"))
    subprocess.run([*git, "commit", "-q", "-a", "-m", "second"], check=True)
    Path("hpa.yaml").write_text(HPA)
    code, _, err = check("--base", "HEAD", "hpa.yaml", *common)
    assert code == 2
    assert re.match(r"windtunnel: HEAD \(\w+\): .*hpa.yaml:7: spec.maxReplicas", err)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ((), "there is nothing to check"),
        (("base.yaml",), "there is one file"),
        (("base.yaml", "slow.yaml", "--head", "HEAD"), "--head: there is no revision to compare"),
        (("base.yaml", "slow.yaml", "--max", "latency.x=1"), "there is no figure 'latency.x'"),
        ((*ON_TRACE, "--max", "x.y=+1%"), "'x.y'; allowed: simulated_seconds, requests.arrived"),
        ((*ON_TRACE, "--min", "slo.other.attaind=1"), "did you mean 'slo.critical.attained'"),
        (("base.yaml", "slow.yaml", "--max-cost", "+5"), "--max-cost +5: a change is in percent"),
        (("base.yaml", "slow.yaml", "--trace", "."), "has no trace of a gateway"),
        (("base.yaml", "slow.yaml", "--trace", "none.csv"), "--trace none.csv: workload[0]"),
        (("base.yaml", "slow.yaml", "--json", "-", "--markdown", "-"), "only one of them can go"),
        (("base.yaml", "slow.yaml", "--markdown", "base.yaml"), "would overwrite the file"),
        (("--base", "HEAD", "base.yaml"), "not a git repository"),
    ],
)
def test_bad_input_is_a_sentence_and_2(check: Run, given: tuple[str, ...], says: str) -> None:
    code, out, err = check(*given)
    assert (code, out) == (2, "")
    assert says in err
    assert "Traceback" not in err


def test_the_trace_of_a_gateway_that_was_started_again_goes_on(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(SHARED)
    folder = tmp_path / "trace"
    folder.mkdir()
    (folder / "trace-000001.jsonl").write_bytes(rows() + b'{"arrived": 40, "prompt')
    (folder / "trace-000002.jsonl").write_bytes(rows(1000))
    (folder / "trace-000003.jsonl").write_bytes(rows())
    files = [tmp_path / "base.yaml"] * 2
    found = run_check(CheckInput(files, trace=folder), CheckAsk(jobs=1), lambda *_: None)
    assert found["requests"] == [1200, 1200]
    assert found["traffic_s"] == pytest.approx(139.9 + 39.9)


def test_an_answer_that_broke_off_late_and_a_late_row_are_no_restart(tmp_path: Path) -> None:
    def row(arrived_s: float, e2e_s: float | None = 1.0) -> bytes:
        known = {} if e2e_s is None else {"e2e": e2e_s, "outcome": "completed"}
        return json.dumps({"arrived": arrived_s, **known}).encode() + b"\n"

    first = tmp_path / "trace-000001.jsonl"
    second = tmp_path / "trace-000002.jsonl"
    steady = [row(at) for at in range(0, 600, 10)]
    first.write_bytes(b"".join([*steady, row(200, None), row(210), row(605, None), row(610)]))
    second.write_bytes(row(300, None) + row(620) + row(630))

    def starts() -> list[int]:
        return [one.start for one in gateway_rows([first, second])]

    assert set(starts()) == {0}
    second.write_bytes(row(5, None) + row(10) + row(15))
    assert starts() == [0] * 64 + [1] * 3, "a gateway begins a file when it starts"
    joined = first.read_bytes() + second.read_bytes() + b"".join(steady[:30])
    first.write_bytes(joined)
    second.unlink()
    assert [one.start for one in gateway_rows([first])] == [0] * 65 + [1] * 32


def test_names_in_a_comment_cannot_mark_it_up_or_mention_anyone(check: Run) -> None:
    Path("@team|<b>x.yaml").write_text(SLOW)
    _, out, _ = check("base.yaml", "@team|<b>x.yaml", "--trace", "day.jsonl", "--markdown", "-")
    assert "@team" not in out
    assert "<b>" not in out
    assert "team\\|\\<b\\>x" in out


def test_from_python(tmp_path: Path) -> None:
    for name, text in (("a.yaml", SHARED), ("b.yaml", SLOW)):
        (tmp_path / name).write_text(text)
    (tmp_path / "t.jsonl").write_bytes(rows())
    sides = tmp_path / "a.yaml", tmp_path / "b.yaml"
    table = wt.check(
        *sides, trace=tmp_path / "t.jsonl", block="4s", most={"latency.e2e.p50": "+1%"}
    )
    assert not table.passed
    row = next(row for row in table.rows if row["figure"] == "latency.e2e.p50")
    assert row["low"] < row["difference"] < row["high"]
    with pytest.raises(wt.WindtunnelError, match=r"latency\.e2e\.p50"):
        wt.check(*sides, most={"latency.e2e.p50": "soon"})


def test_the_latest_part_of_a_gateways_trace_is_replayed(check: Run) -> None:
    folder = Path("trace")
    folder.mkdir()
    (folder / "trace-000001.jsonl").write_bytes(rows())
    (folder / "trace-000002.jsonl").write_bytes(rows(400))
    for trace, last, requests in ((folder, "60s", 600), ("day.jsonl", "10s", 101)):
        common = ("base.yaml", "base.yaml", "--trace", str(trace), "--json", "-")
        code, out, err = check(*common, "--last", last)
        assert (code, err) == (0, "")
        found = json.loads(out)
        assert found["requests"] == [requests, requests]
        assert found["traffic_s"] == pytest.approx(float(last.rstrip("s")), abs=0.2)
    code, _, err = check("base.yaml", "base.yaml", "--last", "1h")
    assert code == 2
    assert "--last: there is no recorded traffic to cut (add --trace)" in err
    code, _, err = check("base.yaml", "slow.yaml", "--trace", "base.yaml", "--last", "1h")
    assert code == 2
    assert "base.yaml:1: this is not a row of a gateway's trace" in err


def without_classes() -> None:
    kept = [{k: v for k, v in json.loads(row).items() if k != "slo"} for row in rows().splitlines()]
    Path("plain.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in kept))


OUTAGE = SLOW.replace("fixed: ", "fixed: 90")
"""Every step takes at least 900 ms."""


def test_a_trace_without_classes_has_that_of_the_traffic_it_replaces(check: Run) -> None:
    without_classes()
    Path("outage.yaml").write_text(OUTAGE)
    code, out, _ = check("base.yaml", "outage.yaml", "--trace", "plain.jsonl", "--json", "-")
    found = json.loads(out)
    assert code == 1
    assert [one["path"] for one in found["limits"]][:1] == ["slo.critical.attained"]
    assert "no-targets" not in [one["code"] for one in found["notes"]]


def test_where_no_request_has_targets_an_outage_still_fails(check: Run) -> None:
    without_classes()
    Path("outage.yaml").write_text(OUTAGE)
    none = ("--set", "workload.0.default_slo=standard", "--trace", "plain.jsonl")
    code, out, _ = check("base.yaml", "outage.yaml", *none)
    assert code == 1
    said = " ".join(out.split())
    assert "% (at most +10%), TPOT p99 +" in said.partition("regression:")[2]
    assert "No request has a latency target, so every completed request counts as" in said
    assert "`--set workload.0.slo=critical`" in said
    # A limit that nothing could break is not met.
    code, out, _ = check("base.yaml", "outage.yaml", *none, "--min-attainment", "99%")
    assert code == 1
    assert "standard attained no targets (at least 99%)" in " ".join(out.split())


def test_a_time_without_a_unit_is_noted(check: Run) -> None:
    code, out, _ = check("base.yaml", "base.yaml", "--max", "latency.ttft.p99=800")
    assert code == 0
    assert "at most 800 s" in out
    assert "note: latency.ttft.p99: 800 has no unit and is 800 s" in " ".join(out.split())


def test_answers_of_one_token_need_no_tpot(check: Run) -> None:
    without_classes()
    trace = Path("plain.jsonl")
    short = [json.loads(row) | {"output_tokens": 1} for row in trace.read_text().splitlines()]
    trace.write_text("".join(f"{json.dumps(row)}\n" for row in short))
    none = ("--set", "workload.0.default_slo=standard", "--trace", "plain.jsonl")
    code, out, _ = check("base.yaml", "base.yaml", *none, "--json", "-")
    paths = [one["path"] for one in json.loads(out)["limits"]]
    assert (code, paths[-1:]) == (0, ["latency.ttft.p99"])


def test_a_reader_that_leaves_changes_no_exit_status(check: Run) -> None:
    """As in `windtunnel check ... | head -1`, with output beyond what the pipe holds."""
    assert check(*ON_TRACE, "--max", "latency.ttft.p99=+1%", "--block", "4s")[0] == 1
    for limit, status in (("+1%", 1), ("+9000%", 0)):
        for form in (("--json", "-"), ("--markdown", "-"), ()):
            options = ("--max", f"latency.ttft.p99={limit}", "--block", "4s", *form)
            command = [sys.executable, "-m", "windtunnel", "check", *ON_TRACE, *options]
            with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as left:
                assert left.stdout is not None
                assert left.stderr is not None
                left.stdout.close()
                said = left.stderr.read()
            assert (left.returncode, said) == (status, b"")
