"""`windtunnel explain` walks from an effect to its causes, through all layers of a run."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from windtunnel.analysis.explain.steps import moment
from windtunnel.cli.simulation.explain import explain
from windtunnel.cli.simulation.report import report
from windtunnel.cli.simulation.simulate import simulate
from windtunnel.core.errors import InputError

SURGE = """\
name: surge
workload:
  - name: chat
    count: 400
    arrivals: {process: constant, rate: 1/s}
    rate_curve: [[0s, 1.0], [60s, 1.0], [61s, 8.0]]
    prompt_tokens: 100
    output_tokens: 200
serving:
  pools:
    - {name: main, accelerator: h200, replicas: 2, tensor_parallel: 4,
       engine: {kv_blocks: 500, max_num_seqs: 8},
       step_time: {model: linear, fixed: 20ms, per_prefill_token: 10us, per_decode: 1ms}}
  startup: {load: {mean: 30s}}
  router: {policy: least-loaded}
scaling: {policy: saturation, pools: {main: {min: 1, max: 4}}}
fleet:
  pools:
    - {name: big, accelerator: h200, accelerators: 8, machines: {max: 2}, price_per_hour: 36,
       provisioning: {mean: 60s}}
"""
"""Two servers that fill one machine, and traffic that asks for another."""

CRASH = """\
name: crash
workload:
  - {name: chat, count: 20, arrivals: {process: constant, rate: 1/s}, prompt_tokens: 10,
     output_tokens: 100}
serving:
  pools:
    - {name: main, engine: {kv_blocks: 100, max_num_seqs: 2},
       step_time: {model: linear, fixed: 10ms}}
  startup: {load: {mean: 5s}}
faults: [{at: 2s, kind: engine-crash}]
"""


NOBODY = """\
name: nobody
duration: 30s
workload:
  - {name: chat, count: 10, arrivals: {process: constant, rate: 1/s}, prompt_tokens: 10,
     output_tokens: 10}
serving:
  pools:
    - {name: main, accelerator: h200, tensor_parallel: 4, engine: {kv_blocks: 100},
       step_time: {model: linear, fixed: 10ms}}
fleet:
  pools:
    - {name: big, accelerator: h200, accelerators: 8, machines: {initial: 0, max: 2},
       price_per_hour: 36, provisioning: {mean: 60s}}
faults: [{at: 0s, kind: quota-exhaustion}]
"""
"""No server ever comes: there is no machine, and none can be had."""


NO_QUOTA = "root cause: quota-exhaustion (at 0 s) hit fleet until the end"


def run_of(text: str, place: Path) -> Path:
    scenario, folder = place / "scenario.yaml", place / "run"
    scenario.write_text(text)
    CliRunner().invoke(simulate, [str(scenario), "-o", str(folder)], catch_exceptions=False)
    return folder


@pytest.fixture(scope="module")
def surge(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_of(SURGE, tmp_path_factory.mktemp("surge"))


def told(run: Path, *options: str) -> str:
    result = CliRunner().invoke(explain, [str(run), *options], catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


def data(run: Path, *options: str) -> Any:
    return json.loads(told(run, *options, "--json", "-"))


def test_a_request_is_explained_down_to_the_machine_and_to_the_decision(surge: Path) -> None:
    found = data(surge, "--request", "200")
    (queue, *_) = found["phases"]
    assert queue["name"] == "queue"
    assert found["ttft"] > 10.0
    chain, load = found["chains"]
    layers = [step["layer"] for step in chain["steps"]]
    assert layers[:6] == ["server", "pool", "pool", "autoscaler", "server", "machine"]
    _, pool, since, decided, came, machine = chain["steps"][:6]
    assert since["says"] == "requests have been queued on its servers since 1 min 2 s"
    assert pool["says"].startswith("main had 2 of 4 servers ready; 2 pending, the first since")
    assert decided["ids"] == ["scaling-5"]
    assert "2 -> 4" in decided["says"]
    assert came["seconds"]["starting"] == pytest.approx(30.0)
    assert machine["ids"] == ["fleet-1"]
    assert machine["seconds"]["to be created"] == pytest.approx(60.0)
    assert "the machine big-1" in machine["says"]
    root = chain["root"]
    assert (root["layer"], root["ids"]) == ("machine", ["fleet-1"])
    # All parts together are the time from the first that was queued until the server was ready.
    ready_s = came["time"] + sum(came["seconds"].values())
    assert sum(root["seconds"].values()) == pytest.approx(ready_s - since["time"])
    # Each part has its share of what the servers cost that were not ready.
    assert load["steps"] == chain["steps"]
    assert (load["root"]["layer"], load["root"]["cause"]) == ("server", "cold start")
    assert load["root"]["says"].endswith("of which 30.0 s to load the model")
    causes = {cause["cause"]: cause["seconds"] for cause in found["causes"]}
    assert list(causes) == ["machine", "cold start", "decode", "queue", "prefill"]
    assert causes["machine"] > causes["cold start"] > 0.3 * found["ttft"]
    assert sum(cause["seconds"] for cause in found["causes"]) == pytest.approx(found["e2e"])
    assert max(root["seconds"], key=root["seconds"].__getitem__).endswith("to be created")


def test_the_same_in_words(surge: Path) -> None:
    text = told(surge, "--request", "200")
    assert "request 200 of chat, completed: first token after" in text
    words = " ".join(text.split())
    assert re.search(
        r"root cause \(machine\): main \d was ready [\d.]+ s after the queue began, of which "
        r"60.0 s for",
        words,
    )
    assert "[fleet-1]" in text
    assert words.count("main 0 had 43 queued") == 1  # the steps to both causes are shown once
    assert words.count("root cause (") == 2


def test_a_request_that_waited_for_nothing_blames_nobody(surge: Path) -> None:
    chains = data(surge, "--request", "3")["chains"]
    assert [chain["root"]["layer"] for chain in chains] == ["server"] * len(chains)
    assert "its response of 200 tokens" in chains[-1]["root"]["says"]


def test_a_decision_of_the_autoscaler(surge: Path) -> None:
    found = data(surge, "--decision", "scaling-5")
    assert found["headline"] == "main: 2 -> 4, decided at 1 min 15 s"
    assert any(line.startswith("Seen at 1 min 15 s: ") for line in found["based_on"])
    applied, first, second, total = found["steps"]
    assert applied["says"] == "main was set to 4 instead of 2"
    for server in (first, second):
        assert server["ids"] == ["fleet-1"]
        assert server["seconds"]["ready"] - server["seconds"]["placed"] == pytest.approx(30.0)
    assert total["seconds"]["first"] == first["seconds"]["ready"]


def test_a_decision_of_the_fleet_leads_back_to_the_autoscaler(surge: Path) -> None:
    found = data(surge, "--decision", "fleet-1")
    assert (found["kind"], found["behind"]) == ("fleet.provision", ["scaling-5"])
    *servers, machine = found["steps"]
    times = [step["time"] for step in found["steps"]]
    assert times == sorted(times)
    assert machine["seconds"]["to be created"] == pytest.approx(60.0)
    for one in servers:
        before, after = found["time"] - one["time"], one["seconds"]["placed"]
        assert (
            f": requested {before:.1f} s before the decision, placed {after:.1f} s after it"
            in (one["says"])
        )
    assert [one["says"].partition(":")[0] for one in servers] == [
        "main 2 on big-1",
        "main 3 on big-1",
    ]


def test_a_moment_tells_of_every_layer(surge: Path) -> None:
    found = data(surge, "--at", "90s")
    layers = [step["layer"] for step in found["layers"]]
    assert layers[:5] == ["traffic", "server", "pool", "machine", "gang"]
    cause = found["layers"].pop(3)
    assert cause["ids"] == ["fleet-1"]
    assert cause["says"].startswith("main has been short of capacity since 1 min 2 s: main 2 was ")
    says = {step["layer"]: step["says"] for step in reversed(found["layers"])}
    assert says["pool"].startswith("main: 2 pending, 2 ready, main 2 requested 15.0 s before")
    assert says["gang"] == "pods in main: 2 pending, 2 ready; pods of 1 gang pending"
    assert says["machine"] == "big: 1 creating, 1 configured; $36.00 an hour"
    (decided,) = found["decisions"]
    assert decided["time"] <= 90.0
    assert "main: stays at 4" in told(surge, "--at", "90s")


def test_without_an_option_it_says_where_to_begin(surge: Path) -> None:
    found = data(surge)
    assert found["requests"][0]["took"] >= found["requests"][1]["took"]
    assert ["scaling-5"] in [step["ids"] for step in found["decisions"]]
    assert "--request ID, --decision ID or --at TIME" in told(surge)


def test_a_fault_is_the_root_of_what_it_caused(tmp_path: Path) -> None:
    run = run_of(CRASH, tmp_path)
    (fault,) = [step for step in data(run)["decisions"] if step["layer"] == "fault"]
    (name,) = fault["ids"]
    assert name == "fault-1"
    (chain, *_) = data(run, "--request", "2")["chains"]
    assert chain["root"]["ids"] == [name]
    assert "main 0 was lost" in " ".join(step["says"] for step in chain["steps"])
    steps = data(run, "--decision", name)["steps"]
    assert [step["says"].partition(":")[0] for step in steps] == ["main 0 was lost", "main 1"]
    assert steps[1]["seconds"]["ready"] == pytest.approx(5.0)
    at = data(run, "--at", "3s")
    assert "main: 1 starting" in " ".join(step["says"] for step in at["layers"])
    (cause,) = [step for step in at["layers"] if step["layer"] == "fault"]
    says = "main has been short of capacity since 2 s: engine-crash (at 2 s) hit main-0"
    assert (cause["says"], cause["ids"]) == (says, [name])
    assert not [step for step in data(run, "--at", "1s")["layers"] if step["layer"] == "fault"]


@pytest.fixture(scope="module")
def nobody(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_of(NOBODY, tmp_path_factory.mktemp("nobody"))


def test_who_never_got_a_server_waited_for_machines_that_a_fault_kept_away(nobody: Path) -> None:
    found = data(nobody, "--request", "3")
    assert [phase["name"] for phase in found["phases"]] == ["unplaced"]
    (chain,) = found["chains"]
    says = [step["says"] for step in chain["steps"]]
    assert says[:2] == [
        "no server was ready",
        "main had 0 of 1 server ready; 1 pending, the first since 0 s",
    ]
    assert any(re.match("main/.* had too few machines: ", one) for one in says), says
    assert (chain["root"]["layer"], chain["root"]["ids"]) == ("fault", ["fault-1"])
    assert chain["root"]["says"] == "quota-exhaustion (at 0 s) hit fleet until the end"


def test_who_waits_for_a_server_to_be_ready_is_counted(nobody: Path) -> None:
    found = data(nobody)
    slow = found["requests"]
    assert [one["why"] for one in slow[:2]] == [
        f"queued for 29 s and no server became ready, 1 queued; {NO_QUOTA}",
        f"queued for 28 s and no server became ready, 2 queued; {NO_QUOTA}",
    ]
    assert {one["upto"] for one in slow} == {"without a first token"}, "none had one"
    (total,) = found["causes"]
    assert (total["cause"], total["requests"], total["ids"]) == ("fault", 10, ["fault-1"])
    assert total["seconds"] == pytest.approx(sum(range(20, 30)))
    assert "\n  fault: 10 requests together lost " in told(nobody)
    says = [step["says"] for step in data(nobody, "--at", "20s")["layers"]]
    assert "10 requests queued until a server is ready" in says
    page = (nobody / "report.html").read_text()
    assert "queued until a server is ready, and at servers" in page


def test_who_was_sent_to_a_server_that_came_later_waited_for_it(tmp_path: Path) -> None:
    run = run_of(CRASH, tmp_path)
    why = {one["request"]: one["why"] for one in data(run)["requests"]}
    crash = "root cause: engine-crash (at 2 s) hit main-0"
    assert why[2] == f"queued for 4 s until a server was ready, 2 queued; {crash}"


def test_who_is_turned_away_hears_the_verdict(tmp_path: Path) -> None:
    bucket = "  admission: {policy: token-bucket, capacity: 10, refill: 10/s}\n"
    run = run_of(CRASH.replace("faults:", f"{bucket}faults:").replace("1/s", "5/s"), tmp_path)
    (chain,) = data(run, "--request", "1")["chains"]
    assert chain["about"] == "it was rejected at once"
    assert chain["root"]["layer"] == "gateway"
    assert chain["root"]["says"].startswith("the gateway rejected it: ")


def test_a_request_that_was_lost_with_its_server_says_so(tmp_path: Path) -> None:
    text = CRASH.replace("faults:", "  retries: {attempts: 0}\nfaults:").replace("2s", "2500ms")
    found = data(run_of(text, tmp_path), "--request", "1")
    assert found["outcome"] == "dropped"
    chain = found["chains"][-1]
    assert "main 0 was lost: its engine crashed" in [step["says"] for step in chain["steps"]]
    assert chain["root"]["ids"] == ["fault-1"]


def test_json_into_a_file(surge: Path, tmp_path: Path) -> None:
    assert told(surge, "--at", "60s", "--json", str(tmp_path / "at.json")) == ""
    assert json.loads((tmp_path / "at.json").read_text())["time"] == 60.0


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (("--request", "400"), "there is no request 400; allowed: 0 to 399"),
        (("--at", "9h"), "--at: 9 h is too late; allowed: 0 s to "),
        (("--at", "-5s"), "--at: the run begins at 0 s; allowed: 0 s to "),
        (("--at", "soon"), "--at"),
        (
            ("--decision", "fleet-99"),
            "no decision fleet-99; allowed: scaling-1 to scaling-",
        ),
        (("--decision", "fleet-1", "--at", "1s"), "--decision: not together with --at"),
    ],
)
def test_what_cannot_be_asked_is_a_sentence(
    surge: Path, options: tuple[str, ...], what: str
) -> None:
    with pytest.raises(InputError) as fault:
        CliRunner().invoke(explain, [str(surge), *options], catch_exceptions=False)
    assert what in str(fault.value)


def test_a_file_of_a_run_is_not_its_folder(surge: Path) -> None:
    with pytest.raises(InputError) as fault:
        CliRunner().invoke(explain, [str(surge / "result.json")], catch_exceptions=False)
    said = "result.json: this is a file, not the folder of a run (give the folder that has it: "
    assert str(fault.value).endswith(f"{said}{surge})")


def test_a_folder_that_is_no_run(surge: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no such file"):
        CliRunner().invoke(explain, [str(tmp_path)], catch_exceptions=False)
    for name in ("result.json", "timeline.parquet"):
        (tmp_path / name).write_bytes((surge / name).read_bytes())
    (tmp_path / "scenario.json").write_bytes((surge / "scenario.json").read_bytes())
    with pytest.raises(InputError, match=r"there is no control\.jsonl"):
        CliRunner().invoke(explain, [str(tmp_path), "--at", "1s"], catch_exceptions=False)
    (tmp_path / "control.jsonl").write_text("{}\n")
    with pytest.raises(InputError, match="line 1 is damaged"):
        CliRunner().invoke(explain, [str(tmp_path), "--at", "1s"], catch_exceptions=False)
    (tmp_path / "control.jsonl").unlink()
    (tmp_path / "events.jsonl").write_bytes((surge / "control.jsonl").read_bytes())
    assert "big: 1 creating" in told(tmp_path, "--at", "90s")


def test_a_log_that_was_cut_off_is_noticed(surge: Path, tmp_path: Path) -> None:
    folder = tmp_path / "cut"
    shutil.copytree(surge, folder)
    log = folder / "control.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    without_end, without_middle = lines[:-1], [*lines[:3], *lines[4:]]
    torn = [*lines[:-1], lines[-1][:20]]
    for left in ([], lines[:2], without_end, without_middle, torn):
        log.write_bytes(b"".join(left))
        for command, options in ((explain, ["--at", "1s"]), (report, [])):
            done = CliRunner().invoke(command, [str(folder), *options])
            assert isinstance(done.exception, InputError), done.output
            assert re.search(r"control\.jsonl.*(cut off|damaged)", str(done.exception))


def test_a_run_of_another_version_is_a_sentence(surge: Path, tmp_path: Path) -> None:
    folder = tmp_path / "old"
    shutil.copytree(surge, folder)
    (folder / "scenario.json").write_text('{"pools": []}')
    result = CliRunner().invoke(explain, [str(folder), "--request", "200"])
    assert isinstance(result.exception, InputError)
    assert "another version wrote it" in str(result.exception)


SIX = """\
name: six
duration: 120s
workload:
  - {name: chat, arrivals: {process: poisson, rate: 26/s}, prompt_tokens: 300,
     output_tokens: {distribution: uniform, min: 50, max: 250}}
serving:
  pools:
    - {name: main, accelerator: h200, replicas: 6, tensor_parallel: 8,
       engine: {kv_blocks: 2000, max_num_seqs: 16},
       step_time: {model: linear, fixed: 15ms, per_prefill_token: 30us, per_decode: 400us}}
  startup: {load: {mean: 20s}}
  router: {policy: least-loaded}
fleet:
  replaced_after: 30s
  pools:
    - {name: big, accelerator: h200, accelerators: 8, machines: {max: 8}, price_per_hour: 36,
       provisioning: {mean: 30s}}
faults: [{at: 40s, kind: machine-loss, select: {count: 2}}]
"""
"""Six machines, of which two are lost without notice."""


def test_every_slow_request_names_the_loss_of_machines_and_its_tries(tmp_path: Path) -> None:
    run = run_of(SIX, tmp_path)
    found = data(run)
    assert {one["request"] for one in found["requests"]}
    assert all("root cause: machine-loss (at 40 s) hit big-" in one["why"]
               for one in found["requests"])  # fmt: skip
    (total,) = found["causes"]
    assert (total["cause"], total["requests"], total["ids"]) == ("fault", 100, ["fault-1"])
    page = (run / "report.html").read_text()
    assert page.count("root cause: machine-loss (at 40 s) hit big-") == 16
    assert "with room to spare" not in page
    retried = [
        row["id"] for row in pq.read_table(run / "requests.parquet").to_pylist() if row["retries"]
    ]
    assert len(retried) > 10
    for number in retried:
        one = data(run, "--request", str(number))
        (lost,) = one["tries"]
        assert (lost["ended"], lost["reason"]) == (40.0, "its machine was lost")
        assert "fault" in [cause["cause"] for cause in one["causes"]]
        roots = [chain["root"].get("ids") for chain in one["chains"]]
        lost_s = lost["ended"] - (lost["scheduled"] or lost["routed"])
        assert lost_s < 0.1 * one["e2e"] or ["fault-1"] in roots
    assert "lost tries" in told(run, "--request", str(retried[0]))


FULL_CACHE = """\
name: full-cache
workload:
  - {name: a, count: 20, arrivals: {process: constant, rate: 20/s}, prompt_tokens: 60,
     output_tokens: 300}
serving:
  pools:
    - {name: main, engine: {kv_blocks: 60}, step_time: {model: linear, fixed: 20ms}}
"""
"""A cache for two or three requests, with 256 slots."""


def test_who_waits_for_kv_blocks_had_no_room_to_spare(tmp_path: Path) -> None:
    found = data(run_of(FULL_CACHE, tmp_path))
    for one in found["requests"]:
        assert re.search(r"\d+% of its server's KV blocks were in use by \d requests, ", one["why"])
        assert "main has a fixed number of servers" in one["why"]


PROMPTS = """\
name: prompts
workload:
  - {name: chat, count: 600, arrivals: {process: poisson, rate: 12/s}, output_tokens: 2,
     prompt_tokens: {distribution: lognormal, mean: 1000, cv: 1, max: 16000}}
serving:
  pools:
    - {name: main, engine: {kv_blocks: 100000, max_num_seqs: 1000},
       step_time: {model: linear, fixed: 5ms, per_prefill_token: 100us}}
"""
"""One server computes 10 prompts a second of the 12 that arrive, with slots and KV to spare."""


def test_a_queue_that_grows_with_the_load_is_not_due_to_its_long_prompts(tmp_path: Path) -> None:
    found = data(run_of(PROMPTS, tmp_path))
    assert [one["cause"] for one in found["causes"]] == ["queue"]
    slowest = found["requests"][0]["why"]
    assert re.search(r": \d+ queued on its server, and only \d+ running", slowest)
    assert "requests arrive faster than they end" in slowest


def test_a_queue_behind_one_long_prompt_is_due_to_it(tmp_path: Path) -> None:
    text = PROMPTS.replace("count: 600", "count: 200").replace("12/s", "4/s")
    text = text.replace(
        "serving:",
        "  - {name: book, count: 1, arrivals: {process: constant, rate: 3/min}, output_tokens: 2,\n"
        "     prompt_tokens: 100000}\nserving:",
    )
    found = data(run_of(text, tmp_path))
    assert found["causes"][0]["cause"] == "long prompt"
    assert "(100,000 tokens" in found["requests"][1]["why"]


LATE = """\
name: slower
duration: 150s
workload:
  - {name: chat, arrivals: {process: poisson, rate: 8/s}, prompt_tokens: 100,
     output_tokens: {distribution: lognormal, mean: 200, cv: 0.8, max: 2000}}
serving:
  pools:
    - {name: main, replicas: 2,
       engine: {kv_blocks: 9000, max_num_seqs: 256},
       step_time: {model: linear, fixed: 15ms, per_prefill_token: 30us, per_decode: 500us}}
  startup: {load: {mean: 40s}}
  router: {policy: least-loaded}
scaling:
  policy: hpa
  metrics: [{name: "vllm:num_requests_running", target: 12}]
  pools: {main: {min: 2, max: 6}}
"""
"""Two servers that are slow until the autoscaler's have started."""


def test_a_slow_request_has_its_figures_once(tmp_path: Path) -> None:
    run = run_of(LATE, tmp_path)
    slow = data(run)["requests"]
    assert all(one["why"].count("a long response") <= 1 for one in slow)
    assert all(one["why"].count("queued for") <= 1 for one in slow)
    longest = slow[-1]["request"]
    lines = told(run, "--request", str(longest)).splitlines()
    assert sum("a long response" in line for line in lines) == 1
    rows = {line.split()[0]: line for line in lines if line.startswith(("queued", "prefill"))}
    assert re.match(r"prefill +[\d.]+ ms ", rows["prefill"])  # not 0.0 s, nor 0.1 s


def test_the_phases_of_a_short_request_have_times_that_differ() -> None:
    assert moment(100.04) == "1 min 40 s"
    assert [moment(time_s, tenths=True) for time_s in (100.04, 100.26, 119.97, 3725.5)] == [
        "1 min 40 s",
        "1 min 40.3 s",
        "2 min",
        "1 h 2 min 5.5 s",
    ]


STORM = """\
name: storm
workload:
  - {name: a, count: 20, arrivals: {process: constant, rate: 4/s}, prompt_tokens: 50,
     output_tokens: 10}
serving:
  pools:
    - {name: main, engine: {kv_blocks: 200}, step_time: {model: linear, fixed: 20ms}}
  retries: {attempts: 8}
faults: [{kind: rate-limit-storm, at: 2s, for: 1s}]
"""


def test_who_was_refused_waited_to_be_sent_again_not_for_a_server(tmp_path: Path) -> None:
    run = run_of(STORM, tmp_path)
    found = data(run)["requests"]
    assert all("; root cause: rate-limit-storm (at 2 s)" in one["why"] for one in found)
    assert all(one["why"].startswith("waited 1 s to be sent again: its server") for one in found)
    slowest = data(run, "--request", str(found[0]["request"]))
    assert slowest["chains"][0]["about"] == "it waited 1.0 s to be sent again"


LOOP = """\
name: loop
duration: 60s
workload:
  - {name: chat, arrivals: {process: poisson, rate: 10/s}, prompt_tokens: 100, output_tokens: 100}
  - {name: big, arrivals: {process: constant, rate: 0.2/s}, prompt_tokens: 90000, output_tokens: 20}
serving:
  pools:
    - {name: main, replicas: 2, engine: {kv_blocks: 4000, max_num_seqs: 64},
       step_time: {model: linear, fixed: 20ms, per_prefill_token: 50us, per_decode: 1ms}}
  startup: {load: {mean: 1s}}
  router: {policy: least-loaded}
faults:
  - {at: 20s, kind: crash-loop, for: 20s, after: 2s, select: {count: 2},
     backoff: {first: 0.1s, most: 0.1s}}
"""
"""Requests lose their servers too often within seconds, and some never fit: none is slow."""


def test_requests_that_a_crash_loop_drops_are_in_the_overview_and_in_the_headline(
    tmp_path: Path,
) -> None:
    run = run_of(LOOP, tmp_path)
    reasons = json.loads((run / "result.json").read_text())["reasons"]["dropped"]
    lost = {one["cause"]: one for one in data(run)["lost"]}
    assert {name: one["requests"] for name, one in lost.items()} == {
        "fault": reasons["its server was lost"],
        "admission": reasons["needs 5627 KV blocks, the server has 3999"],
    }
    assert lost["fault"]["requests"] > 50
    assert lost["fault"]["ids"] == ["fault-1"]
    assert "needs 5627 KV blocks, the server has 3999" in " ".join(told(run).split())
    for one in lost.values():
        (chain,) = data(run, "--request", str(one["example"]))["chains"]
        assert (chain["root"]["cause"], chain["root"]["says"]) == (one["cause"], one["says"])
    CliRunner().invoke(report, [str(run)], catch_exceptions=False)
    headline = re.findall(r'class="verdict">([^<]*)<', (run / "report.html").read_text())
    says = f"{lost['fault']['requests']} requests were dropped, such as"
    assert any(one.startswith(says) and "crash-loop (at 20 s) hit" in one for one in headline)


def test_a_cause_of_several_decisions_is_one_line_and_the_headline_one_sentence(
    surge: Path, tmp_path: Path
) -> None:
    causes = [one["cause"] for one in data(surge)["causes"]]
    assert len(set(causes)) == len(causes)
    limited = SURGE.replace("max: 4}", "max: 2}")
    run = run_of(limited, tmp_path)  # more servers would have come after the last request
    assert "quota" not in [one["cause"] for one in data(run)["causes"]]
    at_once = limited.replace("mean: 30s", "mean: 1s").replace("mean: 60s", "mean: 1s")
    run = run_of(at_once, tmp_path)
    (quota,) = [one for one in data(run)["causes"] if one["cause"] == "quota"]
    assert len(quota["ids"]) == 3
    assert re.search(
        r"scaling-\d+ wanted \d+ and was limited by .*; and \d+ more decisions", told_flat(run)
    )
    CliRunner().invoke(report, [str(run)], catch_exceptions=False)
    headline = re.findall(r'class="verdict">([^<]*)<', (run / "report.html").read_text())
    assert headline
    assert not any(".." in one for one in headline)


EMPTIED = (
    CRASH.split("faults:", maxsplit=1)[0]
    + """\
scaling:
  policy: foresight
  interval: 1s
  wake: false
  pools: {main: {min: 0, max: 1}}
  schedule: {main: [[0s, 1], [4s, 0]]}
"""
)


FLAPPING = """\
name: flapping
duration: {duration}s
workload:
  - {{name: s, count: 1, arrivals: {{process: constant, rate: 1/s}}, prompt_tokens: 300,
     output_tokens: 3000}}
serving:
  drain: {{policy: immediate}}
  pools:
    - {{name: main, engine: {{kv_blocks: 4000}}, step_time: {{model: linear, fixed: 10ms}}}}
  startup: {{load: {{mean: 1s}}}}
scaling:
  policy: foresight
  interval: 1s
  wake: false
  pools: {{main: {{min: 0, max: 1}}}}
  schedule: {{main: {schedule}}}
"""


def test_many_lost_tries_have_one_cause_and_the_last_of_them_its_own_times(tmp_path: Path) -> None:
    cycles = 130
    schedule = [[f"{4 * n}s", 1 - n % 2] for n in range(2 * cycles)]
    text = FLAPPING.format(schedule=json.dumps(schedule), duration=8 * cycles)
    run = run_of(text, tmp_path)
    (row,) = pq.read_table(run / "requests.parquet").to_pylist()
    *first, last = row["lost_tries"]
    assert (len(first), row["redirects"] + row["retries"]) == (99, cycles)
    assert [one["replica"] for one in (*first, last)] == [*range(99), cycles - 1]
    assert {round(one["ended"] - one["routed"]) for one in (*first[1:], last)} == {3}
    found = data(run, "--request", "0")
    assert (len(found["tries"]), found["unkept_tries"]) == (100, cycles - 100)
    (drained,) = [one for one in found["causes"] if one["cause"] == "drain"]
    assert f"its servers were drained {cycles} times, from 4 s to 17 min 16 s" in drained["says"]
    assert len(drained["ids"]) == 2
    assert sum(one["seconds"] for one in found["causes"]) == pytest.approx(found["e2e"])
    shown = told(run, "--request", "0")
    assert shown.count("its server was drained\n") <= 10 + 3
    assert f"\n{cycles - 10} more " in shown
    assert f"lost tries, with waits: its server was drained; root cause: {drained['says']}" in (
        told_flat(run)
    )


def test_a_run_that_nothing_planned_could_serve_says_so_and_since_when(tmp_path: Path) -> None:
    run = run_of(EMPTIED, tmp_path)
    result = json.loads((run / "result.json").read_text())
    left = result["requests"]["unfinished"]
    assert (result["ended_by"], result["partial"]) == ("nothing to wait for", None)
    assert left > 10
    (says,) = [one["says"] for one in result["trust"]["findings"] if one["code"] == "unfinished"]
    because = "The run ended because nothing that was planned could serve them"
    assert f"{because}: no server was wanted for main." in says
    flat, emptied = told_flat(run), "pool main has been at 0 since 4 s [scaling-4]"
    assert f"nothing that was planned could serve the {left} requests inside; {emptied}" in flat
    assert "root cause: scaling-4 at 4 s left main without a server (1 -> 0): " in flat
    wakes = run_of(EMPTIED.replace("wake: false", "wake: true"), tmp_path)
    assert "nothing that was planned" not in told_flat(wakes)


def told_flat(run: Path) -> str:
    return " ".join(told(run).split())


def test_a_moment_of_a_queue_names_what_made_it_and_not_a_crash_since(tmp_path: Path) -> None:
    fixed = SURGE[: SURGE.index("scaling:")].replace("8.0]]", "8.0], [90s, 8.0], [91s, 1.0]]")
    crash = "faults: [{at: 80s, kind: engine-crash, select: {count: 1}}]"
    run = run_of(f"{fixed.replace('mean: 30s', 'mean: 1s')}{crash}\n", tmp_path)
    (short,) = [one for one in data(run, "--at", "80.5s")["layers"] if "short of" in one["says"]]
    assert "main has a fixed number of servers" in short["says"]
    run = run_of(f"{fixed.replace('8.0', '1.0')}{crash}\n", tmp_path)
    (short,) = [one for one in data(run, "--at", "95s")["layers"] if "short of" in one["says"]]
    assert "engine-crash (at 1 min 20 s) hit main-" in short["says"]


UNSERVABLE = """\
name: unservable
workload:
  - {name: chat, count: 60, arrivals: {process: constant, rate: 20/s}, prompt_tokens: 200, output_tokens: 100}
  - {name: big, count: 2, arrivals: {process: constant, rate: 0.7/s}, prompt_tokens: 6000, output_tokens: 100}
serving:
  pools:
    - {name: main, replicas: 1, engine: {kv_blocks: 300, max_num_seqs: 4},
       step_time: {model: linear, fixed: 20ms}, overheads: {queueing: 10ms}}
"""  # noqa: E501


def test_a_request_that_no_server_can_hold_is_lost_to_its_size_however_long_it_waited(
    tmp_path: Path,
) -> None:
    (lost,) = data(run_of(UNSERVABLE, tmp_path))["lost"]
    assert (lost["requests"], lost["cause"]) == (2, "admission")
    assert lost["says"] == "dropped: needs 382 KV blocks, the server has 299"


LEAK = """\
name: leak
duration: 90s
model: llama-3.1-8b
workload:
  - {name: a, arrivals: {process: constant, rate: 12/s}, prompt_tokens: 3000, output_tokens: 400}
serving:
  pools: [{name: main, accelerator: h100}]
faults: [{at: 10s, kind: kv-leak, rate: 900/s, for: 20s}]
"""
"""The number of blocks follows from the accelerator's memory."""


def test_leaked_blocks_of_a_cache_sized_by_memory_are_the_cause_long_after_the_leak(
    tmp_path: Path,
) -> None:
    found = data(run_of(LEAK, tmp_path))["causes"][0]
    assert (found["cause"], found["ids"]) == ("fault", ["fault-1"])
