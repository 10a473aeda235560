"""`windtunnel gateway`: what it checks before it starts, and what it says."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from windtunnel.cli.main import main

CONFIG = """\
live:
  trace: null
  servers:
    - {{url: "http://127.0.0.1:9"{server}}}
  clients:
    - {{key_env: TEAM_A_KEY, tenant: team-a}}
"""


@pytest.mark.parametrize(
    ("server", "variables", "said"),
    [
        ("", (), "live.clients[0].key_env: the environment variable TEAM_A_KEY is not set"),
        (
            ", key_env: SERVER_KEY",
            ("TEAM_A_KEY",),
            "live.servers[0].key_env: the environment variable SERVER_KEY is not set",
        ),
        (", key_env: SERVER_KEY", ("TEAM_A_KEY", "SERVER_KEY"), ""),
    ],
)
def test_check_wants_every_key(
    server: str,
    variables: tuple[str, ...],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in ("TEAM_A_KEY", "SERVER_KEY"):
        monkeypatch.delenv(name, raising=False)
    for name in variables:
        monkeypatch.setenv(name, "sk-12345678")
    config = tmp_path / "gateway.yaml"
    config.write_text(CONFIG.format(server=server))
    with pytest.raises(SystemExit) as left:
        main(["gateway", "--check", str(config)])
    out, err = capsys.readouterr()
    if said:
        assert (left.value.code, out) == (2, "")
        assert said in err
    else:
        assert (left.value.code, out, err) == (0, "the configuration is valid\n", "")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("tokenizers: {m: models}", "no tokenizer can be loaded"),
        ("certificate: no.pem\n  certificate_key: no.pem", "the certificate cannot be read"),
    ],
)
def test_check_reads_the_files_that_a_start_reads(
    more: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "models").mkdir()
    config = tmp_path / "gateway.yaml"
    config.write_text(f"live:\n  servers: [{{url: 'http://127.0.0.1:9'}}]\n  {more}\n")
    with pytest.raises(SystemExit) as left:
        main(["gateway", "--check", str(config)])
    assert left.value.code == 2
    assert said in capsys.readouterr().err


@pytest.mark.once
def test_it_says_where_metrics_are_and_counts_early_refusals(tmp_path: Path) -> None:
    config = tmp_path / "gateway.yaml"
    config.write_text(CONFIG.format(server=""))
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        admin = f"127.0.0.1:{found.getsockname()[1]}"
    access = tmp_path / "access.jsonl"
    arguments = [sys.executable, "-m", "windtunnel", "gateway", str(config), "--port", "0"]
    process = subprocess.Popen(
        [*arguments, f"--set=live.admin={admin}", f"--set=live.access_log={access}"],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"TEAM_A_KEY": "sk-12345678"},
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.endswith(f"; metrics and /servers on http://{admin}\n")
        assert ": 1 server, weighted routing" in line
        url = line.split()[2].rstrip(":")
        request = urllib.request.Request(
            f"{url}/v1/chat/completions",
            b'{"model": "m", "messages": []}',
            {"authorization": "Bearer sk-12345678", "content-type": "application/json"},
        )
        for one in (f"{url}/v1/chat/completions", request):
            with contextlib.suppress(urllib.error.HTTPError):
                urllib.request.urlopen(one, None if one is request else b"{}")
    finally:
        process.terminate()
        said, _ = process.communicate(timeout=30)
    assert said == "stopped; 2 requests were answered or refused\n"
    lines = [json.loads(line) for line in access.read_text().splitlines()]
    told = [(one["status"], one["outcome"]) for one in lines]
    assert told == [(401, "invalid"), (503, "rejected")]
