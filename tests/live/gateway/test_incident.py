"""A stretch of a gateway's log and trace: it replays, simulates, and holds nobody's secrets."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.live.gateway.bed import bed, chat, friendly, run
from windtunnel.cli.main import main
from windtunnel.live.gateway.audit import audit
from windtunnel.live.gateway.incident import step_times_of
from windtunnel.twin.run import simulate
from windtunnel.twin.scenario.load import load

PROMPT, KEY, SERVER_KEY = "the quick brown fox of march", "sk-client-4711", "sk-server-0815"
USER = "jane.doe@example.org"
CONFIG = """\
slo:
  interactive: {priority: 4, ttft: 500ms}
serving:
  router: {policy: least-loaded}
  admission: {policy: flow-control, detector: {kind: concurrency, max_per_server: 8}}
live:
  log: log
  clients: [{key_env: CLIENT_KEY, tenant: team-a}]
  health: {ramp: 0s, interval: 5s}
"""
Cut = Callable[..., tuple[int, str, str]]


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """The folder of a gateway that has served twenty requests."""
    config = tmp_path / "gateway.yaml"
    config.write_text(CONFIG)

    async def test() -> None:
        keys = {"CLIENT_KEY": KEY, "SERVER_KEY": SERVER_KEY}
        sets = ("live.trace={folder: trace}",)
        async with bed(friendly, friendly, sets=sets, config=config, environment=keys) as it:
            for number in range(20):
                headers = {"authorization": f"Bearer {KEY}", "x-session-id": f"{USER}-{number % 3}"}
                messages = [{"role": "user", "content": f"{PROMPT} {number} " * 50}]
                body = chat(stream=True) | {"messages": messages, "user": USER}
                assert (await it.ask(body, headers=headers)).status == 200
            it.settled()

    run(test())
    return tmp_path


@pytest.fixture
def cut(recorded: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cut:
    monkeypatch.chdir(recorded)

    def run_it(*args: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as left:
            main(["incident", *args])
        captured = capfd.readouterr()
        assert isinstance(left.value.code, int)
        return left.value.code, captured.out, captured.err

    return run_it


def test_the_folder_replays_exactly_simulates_and_holds_no_secret(cut: Cut, recorded: Path) -> None:
    arrivals = [
        json.loads(line)["time"]
        for line in (recorded / "log").read_text().splitlines()
        if '"request.arrived"' in line
    ]
    middle = f"{arrivals[8]:.9f}s"
    code, out, err = cut("log", "--from", middle, "-o", "out")
    assert (code, err) == (0, "")
    folder = recorded / "out"
    names = {path.name for path in folder.iterdir()}
    assert names == {"gateway.jsonl", "trace.jsonl", "scenario.yaml", "incident.json"}
    report = audit(folder / "gateway.jsonl")
    whole = audit(recorded / "log")
    assert report.difference == ""
    assert 22 <= report.decisions < whole.decisions == 40
    assert report.facts == whole.facts
    assert f"{report.decisions} decisions" in out
    rows = [json.loads(line) for line in (folder / "trace.jsonl").read_text().splitlines()]
    assert 11 <= len(rows) <= 13
    assert rows[0]["arrived"] == 0.0
    for more in ([], ["serving.pools.0.replicas=1", "serving.router.policy=round-robin"]):
        result = simulate(load(folder / "scenario.yaml", more))
        assert result["requests"]["completed"] == len(rows)
    everything = b"".join(path.read_bytes() for path in folder.iterdir())
    for secret in (*PROMPT.split()[1:4], KEY, SERVER_KEY, "CLIENT_KEY", "jane", str(recorded)):
        assert secret.encode() not in everything, secret


def test_step_times_follow_streams_then_whole_answers_and_are_else_an_assumption() -> None:
    plain = {"prompt_tokens": 100, "output_tokens": 50}
    streamed = step_times_of([{**plain, "ttft": 0.5, "e2e": 0.5 + 49 * 0.03}])
    assert (round(streamed.fixed_s, 9), round(streamed.prefill_s, 9)) == (0.03, 0.0047)
    assert streamed.source == "estimated from the streams in the trace"
    queued = [{**plain, "e2e": 60.0}] * 3
    found = step_times_of([{**plain, "e2e": 2.0}, *queued])
    assert (found.fixed_s, found.prefill_s) == (0.04, 0.0)
    assert found.source.startswith("estimated from the times of whole answers per token")
    unknown = step_times_of([{**plain, "outcome": "cut_off", "ttft": 0.1}])
    assert unknown.fixed_s == 0.02
    assert unknown.source == "assumed (20 ms): the trace has no complete answer"


def test_a_decision_that_was_changed_by_hand_is_found(cut: Cut, recorded: Path) -> None:
    lines = (recorded / "log").read_bytes().splitlines(keepends=True)
    place = max(at for at, line in enumerate(lines) if b'"request.routed"' in line)
    lines[place] = lines[place].replace(b'"server":', b'"server":7')
    (recorded / "log").write_bytes(b"".join(lines))
    code, out, _ = cut("log")
    assert code == 1
    assert "the decisions do not follow from the log" in out


def test_times_may_be_those_of_a_wall_clock(cut: Cut, recorded: Path) -> None:
    code, _, err = cut("log", "--from", "2020-01-01T00:00:00Z", "--to", "2020-01-02")
    assert code == 2
    assert "no request arrived in this stretch" in err
    assert cut("log", "--from", "2020-01-01T00:00:00Z")[0] == 0


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("gateway.yaml",), "this is not the log of a gateway"),
        (("none",), "the log cannot be read"),
        (("log", "--from", "soon"), "--from soon: 'soon' is not a time; allowed: 1h30m after"),
        (("log", "--from", "2s", "--to", "1s"), "--to 1s: the stretch ends 1 s before it begins"),
        (("log", "--from", "3h"), "no request arrived in this stretch"),
        (("log", "--trace", "none"), "none: there is no such trace"),
        (("log", "--trace", "gateway.yaml"), "this is not a row of a gateway's trace"),
        (("log", "--trace", "."), "the folder has no trace of a gateway"),
    ],
)
def test_bad_input_is_a_sentence(cut: Cut, args: tuple[str, ...], says: str) -> None:
    code, out, err = cut(*args)
    assert (code, out) == (2, "")
    assert says in err
    assert not Path("incident").exists()
