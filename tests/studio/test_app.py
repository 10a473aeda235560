"""What the studio's server answers, and whom."""

import asyncio
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

import windtunnel as wt
from tests.twin.runs import BUSY
from windtunnel.analysis.figures import SECONDS, text_of
from windtunnel.cli.main import main
from windtunnel.studio.app import Studio, is_loopback
from windtunnel.studio.attached import MetricsReading, charts, parse
from windtunnel.studio.history import RunHistory
from windtunnel.studio.running import LiveRuns

LOCAL = "http://127.0.0.1:8765"
JSON = {"content-type": "application/json"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "busy.yaml").write_text(BUSY)
    return tmp_path


@pytest.fixture
def client(folder: Path) -> TestClient:
    return TestClient(Studio(folder, folder / "runs", ()).app(None), base_url=LOCAL)


def test_a_name_of_another_machine_is_refused(folder: Path) -> None:
    app = Studio(folder, folder / "runs", ()).app(None)
    assert TestClient(app, base_url="http://evil.example").get("/api/files").status_code == 403
    for name in ("http://localhost:8765", "http://[::1]:8765", LOCAL):
        assert TestClient(app, base_url=name).get("/api/files").status_code == 200


def test_a_page_of_another_site_may_not_ask(client: TestClient) -> None:
    for origin, status in (("http://evil.example", 403), ("null", 403), (LOCAL, 200)):
        assert client.get("/api/files", headers={"origin": origin}).status_code == status


def test_with_a_token_only_its_owner_is_let_in(folder: Path) -> None:
    token = "a-secret-of-twenty-letters"
    app = Studio(folder, folder / "runs", ()).app(token)
    client = TestClient(app, base_url="http://10.0.0.1:8765")
    assert client.get("/api/files").status_code == 403
    assert client.get("/?token=wrong").status_code == 403
    assert client.get(f"/?token={token}").status_code == 200
    assert client.get("/api/files").status_code == 200


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("/api/text?file=../../etc/passwd", "not a scenario below this folder"),
        ("/api/text?file=missing.yaml", "cannot read it"),
        ("/api/runs/..%2Fx", None),
        ("/api/runs/missing", "there is no run 'missing' here"),
        ("/runs/.hidden/report", "there is no run"),
        ("/api/runs/missing/progress", "was started here"),
        ("/api/runs/missing/explain?request=1", "there is no run"),
        ("/api/compare?run=one", "allowed: 2 to 4"),
        ("/api/attached/0", "nothing is attached"),
    ],
)
def test_what_is_not_there_is_a_sentence(client: TestClient, path: str, says: str | None) -> None:
    reply = client.get(path)
    assert reply.status_code == (404 if says is None else 400)
    assert says is None or says in reply.json()["error"]


@pytest.mark.parametrize(
    ("body", "headers", "says"),
    [
        (b"{", JSON, "not what the editor sends"),
        (b"{}", {"content-type": "text/plain"}, "the editor sends JSON"),
        (b'{"text": "' + b"x" * 3_000_000 + b'"}', JSON, "over a mebibyte"),
        (b'{"text": "a: 1", "file": "/etc/x.yaml"}', JSON, "not a scenario below"),
    ],
)
def test_what_the_editor_would_not_send_is_a_sentence(
    client: TestClient, body: bytes, headers: dict[str, str], says: str
) -> None:
    reply = client.post("/api/check", content=body, headers=headers)
    assert reply.status_code == 400
    assert says in reply.json()["error"]


def test_a_scenario_with_faults_is_not_started(client: TestClient, folder: Path) -> None:
    reply = client.post("/api/runs", json={"text": "name: x\n"})
    assert reply.status_code == 400
    assert "missing" in reply.json()["error"]
    assert not (folder / "runs").exists()


def test_two_runs_of_one_scenario_have_folders_of_their_own(folder: Path) -> None:
    history = RunHistory(folder / "runs")
    names = [history.new("a/b", 1).name for _ in range(3)]
    assert names == ["a-b-1-1", "a-b-1-2", "a-b-1-3"]


def test_what_is_no_file_or_no_result_is_a_sentence(client: TestClient, folder: Path) -> None:
    os.mkfifo(folder / "pipe.yaml")
    assert client.get("/api/files").json()["files"] == ["busy.yaml"]
    assert "not a regular file" in client.get("/api/text?file=pipe.yaml").json()["error"]
    assert client.get("/api/text?file=busy.yaml%00").status_code == 400
    body = b'{"text":"\xff"}'
    assert client.post("/api/check", content=body, headers=JSON).status_code == 400
    wt.simulate(folder / "busy.yaml", folder=folder / "runs" / "good")
    wt.simulate(folder / "busy.yaml", folder=folder / "runs" / "bad")
    result = folder / "runs" / "bad" / "result.json"
    result.write_text(re.sub('"p99": [^,]*,', '"p99": "abc",', result.read_text()))
    assert [line["id"] for line in client.get("/api/runs").json()] == ["good"]
    assert "damaged" in client.get("/api/runs/bad").json()["error"]
    assert "damaged" in client.get("/api/compare?run=good&run=bad").json()["error"]


def test_a_process_that_cannot_be_followed_ends_its_run(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line that is no JSON, and a program that is not there."""
    for program in ("/bin/echo", "/does/not/exist"):
        monkeypatch.setattr("windtunnel.studio.running.sys.executable", program)

        async def last() -> dict[str, Any]:
            runs = LiveRuns()
            run = await runs.start("", folder / "busy.yaml", folder / "runs" / "x")
            return [line async for line in run.watch()][-1]

        assert "cannot be followed" in asyncio.run(last())["failed"]


def test_a_run_says_that_it_has_ended_before_it_writes_its_results(folder: Path) -> None:
    """The status then is that of the end, and not up to a fifth of a second behind it."""

    async def lines() -> list[dict[str, Any]]:
        text = (folder / "busy.yaml").read_text()
        run = await LiveRuns().start(text, folder / "busy.yaml", folder / "runs" / "x")
        found = [line async for line in run.watch()]
        await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()})
        return found

    *before, last, done = asyncio.run(lines())
    requests = json.loads((folder / "runs" / "x" / "result.json").read_bytes())["requests"]
    assert done == {"done": None}
    assert last["at"]["writing"]
    assert last["at"]["arrived"] == requests["arrived"]
    assert last["at"]["ended"] == requests["arrived"] - requests["unfinished"]
    assert not any(line["at"]["writing"] for line in before)
    samples = [one for line in (*before, last) for one in line["at"]["samples"]]
    assert samples[-1]["completed"] == requests["completed"]


def test_a_finished_run_is_shown_as_its_files_say(client: TestClient, folder: Path) -> None:
    result = wt.simulate(folder / "busy.yaml", folder=folder / "runs" / "busy-1")
    (line,) = client.get("/api/runs").json()
    assert line["id"] == "busy-1"
    assert line["completed"] == result["requests"]["completed"]
    assert line["ttft_p99"] == text_of(SECONDS, result["latency"]["ttft"]["p99"])
    assert line["cost"] == "-"  # it has no prices
    shown = client.get("/api/runs/busy-1").json()
    assert sum(shown["series"]["completed"]) == result["requests"]["completed"]
    asked = client.get("/api/runs/busy-1/explain", params={"request": 0}).json()
    assert asked["text"] == str(result.explain(request=0))
    assert client.get("/runs/busy-1/report").text == result.plot().html
    both = client.get("/api/compare?run=busy-1&run=busy-1").json()
    assert all(one["values"][0] == one["values"][1] for one in both["rows"])


LOST = """\
workload:
  - {name: one, count: 4, arrivals: {process: constant, rate: 10/s}, prompt_tokens: 9,
     output_tokens: 99}
serving:
  pools:
    - {name: main, engine: {kv_blocks: 99}, step_time: {model: linear, fixed: 100ms}}
  retries: {attempts: 0}
faults: [{kind: engine-crash, at: 2s}]
"""


def test_lost_requests_are_shown_with_their_cause(client: TestClient, folder: Path) -> None:
    (folder / "lost.yaml").write_text(LOST)
    result = wt.simulate(folder / "lost.yaml", folder=folder / "runs" / "lost")
    assert result["requests"]["dropped"] == 4
    (lost,) = client.get("/api/runs/lost").json()["lost"]
    assert lost["says"].startswith("4 requests were dropped, such as 0: engine-crash (at 2 s) hit")
    asked = client.get("/api/runs/lost/explain", params={"request": lost["request"]}).json()
    assert "dropped" in asked["text"]


def test_counters_become_rates_and_a_new_start_is_an_increase() -> None:
    text = "# TYPE a_total counter\na_total{x='1'} 3\n".replace("'", '"')
    text += '# TYPE g gauge\ng{x="1"} 2\ng{x="2"} 5\n# TYPE h histogram\nh_bucket{le="1"} 1\n'
    now = parse(text + "h_sum 0.5\nh_count 1\n")
    each = {"1": 2.0, "2": 5.0}
    assert now == ({"g": each}, {"a_total": 3.0}, {"h": 0.5}, {"h": 1.0})
    assert charts(now, None, 2.0) == {"g": each}
    assert charts(now, MetricsReading({}, {"a_total": 1.0}, {"h": 8.0}, {"h": 9.0}), 2.0) == {
        "g": each,
        "a_total per second": {"": 1.0},
        "h per second": {"": 0.5},
        "h mean": {"": 0.5},
    }
    assert "h mean" not in charts(now, now, 2.0), "nothing was observed"


def test_a_gauge_of_many_servers_is_its_extremes_and_mean() -> None:
    text = "# TYPE g gauge\n" + "".join(f'g{{server="{n}"}} {n}\n' for n in range(1, 5))
    assert charts(parse(text), None, 1.0) == {"g": {"lowest": 1.0, "mean": 2.5, "highest": 4.0}}
    assert charts(parse("# TYPE g gauge\ng 7\n"), None, 1.0) == {"g": {"": 7.0}}


def test_a_program_that_does_not_answer_is_a_reading() -> None:
    from windtunnel.studio.attached import follow

    async def first() -> dict[str, Any]:
        async for reading in follow("http://127.0.0.1:9"):
            return reading
        raise AssertionError

    assert "does not answer" in asyncio.run(first())["error"]


@pytest.mark.parametrize(
    ("host", "local"),
    [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("a.b", False)],
)
def test_what_is_loopback(host: str, *, local: bool) -> None:
    assert is_loopback(host) is local


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["missing"], "there is no such folder"),
        ([__file__], "this is a file (give its folder, "),
        (["--attach", "ftp://x"], "is not an http:// or https:// address"),
        (["--attach", "http://user:pass@x"], "an address has no user and no password"),
    ],
)
def test_bad_options_are_sentences(
    given: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        main(["studio", *given])
    assert left.value.code == 2
    assert says in capsys.readouterr().err
