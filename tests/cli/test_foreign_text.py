"""What others wrote never steers a terminal, whichever way it gets there."""

import io
import json
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.live.server import Asked, Reply, Said, Server, answer
from tests.twin.runs import one_server
from windtunnel.cli.main import main
from windtunnel.core.errors import LONGEST_QUOTE, InputError, InputFaults, one_line, printable
from windtunnel.report.terminal.layout import Screen, say, table_of

STEERS = ("\x1b", "\x07", "\x9b", "\x7f", "\u061c", "\u202e", "\u2067", "\r", "\U000e0041")
CODES = "\x1b]0;owned\x07\x1b[2J\x9b31m\x7f\u061c\u202e\u2067\U000e0041model"
EVIL = f"{CODES}\rwindtunnel: forged\r\nwindtunnel: forged\nforged"
LONG = EVIL + "x" * 100_000
LONGEST_LINE = 4_000
SCENARIO = one_server()

Command = Callable[..., str]


@pytest.fixture
def said(capfd: pytest.CaptureFixture[str]) -> Command:
    """All that a command prints, on both streams."""

    def run(*words: object) -> str:
        with pytest.raises(SystemExit):
            main([str(word) for word in words])
        out, err = capfd.readouterr()
        return out + err

    return run


def harmless(text: str, *, short: bool = True) -> None:
    for letter in STEERS:
        assert letter not in text, repr(text)
    for line in text.splitlines():
        assert not line.startswith(("forged", "windtunnel: forged")), repr(text)
        assert len(line) <= LONGEST_LINE or not short, repr(text)


@given(st.text())
def test_printable_text_steers_nothing_and_says_what_was_there(text: str) -> None:
    shown = printable(text)
    for letter in STEERS:
        assert letter not in shown
    assert printable(shown) == shown
    if "\\" not in text and '"' not in text and "\n" not in text:
        assert json.loads(f'"{shown}"') == text


@given(st.text(), st.integers(4, 300))
def test_a_quoted_name_is_one_short_line(text: str, most: int) -> None:
    shown = one_line(text, most)
    assert len(shown) <= most
    assert shown.splitlines() in ([], [shown])
    harmless(shown)


def test_a_quoted_name_says_what_was_there() -> None:
    assert one_line("Llama  3\n8B\x1b") == "Llama 3 8B\\u001b"
    assert one_line("x" * 1000) == "x" * (LONGEST_QUOTE - 3) + "..."
    assert one_line(" " * 5000 + "x") == "x"
    assert one_line("x" + " " * 5000 + "y") == "x..."


def test_a_message_has_one_line_of_ours(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever got into it: only the faults of a file have a line each."""

    def fails(*_: object, **__: object) -> None:
        raise InputFaults([InputError(EVIL, where="a"), InputError("x", where=EVIL)])

    monkeypatch.setattr("windtunnel.cli.main.cli.main", fails)
    with pytest.raises(SystemExit):
        main([])
    err = capsys.readouterr().err
    harmless(err)
    assert [line[:13] for line in err.splitlines() if not line.startswith("    ")] == [
        "windtunnel: a",
        "windtunnel: \\",
    ]


def test_a_screen_writes_out_what_would_steer_it() -> None:
    stream = io.StringIO()
    console = Screen(file=stream, force_terminal=True, width=200)
    say(console, CODES, "bold")
    console.print(table_of((CODES, "n"), [(f"{CODES}\nforged", "1")]))
    console.print(CODES)
    text = stream.getvalue()
    harmless(text.replace("\x1b[1m", "").replace("\x1b[0m", ""))
    shown = (
        "\\u001b]0;owned\\u0007\\u001b[2J\\u009b31m\\u007f\\u061c\\u202e\\u2067\\udb40\\udc41model"
    )
    assert text.count(shown) == 3  # rich drops the bell in plain text itself
    assert text.count("\\u001b]0;owned") == 4
    assert "\x1b]" not in text  # its own colours remain
    assert "\x07" not in text


def _named(asked: Asked) -> Said:
    said = answer(asked)
    said.content = said.content.replace(b'"model"', b'"was"')
    return said


REPLIES: dict[str, Reply] = {
    "an error": lambda _: Said(400, {"error": {"message": EVIL}}),
    "a long error": lambda _: Said(400, {"error": {"message": LONG}}),
    "plain text": lambda _: Said(500, EVIL.encode()),
    "a type": lambda _: Said(200, b"x", {"content-type": "text/\x9bplain"}),
    "an error in a stream": lambda _: Said(
        200,
        b'data: {"error": {"message": ' + json.dumps(EVIL).encode() + b"}}\n\n",
        {"content-type": "text/event-stream"},
    ),
    "another place": lambda _: Said(307, b"", {"location": "http://x/\x9b\x1b[2J"}),
    "a model": _named,
}


MODELS = {"m": ("m",), "evil": (EVIL,), "long": (LONG,), "several": (EVIL, LONG, "other")}


@pytest.mark.parametrize("kind", REPLIES)
@pytest.mark.parametrize("models", MODELS)
def test_what_a_server_says_to_observe(
    said: Command, tmp_path: Path, kind: str, models: str
) -> None:
    (tmp_path / "one.yaml").write_text(SCENARIO)
    with Server(REPLIES[kind], MODELS[models]).running() as server:
        words = ("observe", tmp_path / "one.yaml", "--endpoint", server.url, "--wait", "1s")
        harmless(said(*words, "-o", tmp_path / "trace.parquet"))
        harmless(said(*words, "-o", tmp_path / "again.parquet", "--json", "-"), short=False)


@pytest.mark.parametrize("kind", REPLIES)
@pytest.mark.parametrize("models", MODELS)
def test_what_a_server_says_to_batch(said: Command, tmp_path: Path, kind: str, models: str) -> None:
    rows = tmp_path / "in.jsonl"
    rows.write_text('{"prompt": "hello"}\n')
    with Server(REPLIES[kind], MODELS[models]).running() as server:
        words = ["batch", rows, "--endpoint", server.url, "--wait", "1s", "--retries", "0"]
        words += ["--retry-time", "1ms"]
        harmless(said(*words, "-o", tmp_path / "out.jsonl"))
        harmless(said(*words, "-o", tmp_path / "again.jsonl", "--json", "-"), short=False)


def test_what_a_trace_or_a_folder_says(said: Command, tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    row = {"arrived": 0.0, "prompt_tokens": 3, "output_tokens": 2, "source": EVIL, "model": EVIL}
    trace.write_text(json.dumps(row, ensure_ascii=False) + "\n")
    for name in ("describe", "head", "fit"):
        harmless(said("trace", name, trace))
    harmless(said("trace", "describe", trace, "--json", "-"))
    (tmp_path / "one.yaml").write_text(SCENARIO)
    run = tmp_path / "run"
    said("simulate", tmp_path / "one.yaml", "-o", run)
    log = [
        {"time": 0.0, "kind": "fault.began", "subject": f"fault/{EVIL}", "reason": EVIL,
         "data": {"kind": EVIL, "until": None, "subjects": [EVIL]}},
        {"time": 0.0, "kind": "log.closed", "subject": "run", "data": {"lines": 1}},
    ]  # fmt: skip
    (run / "control.jsonl").write_text("".join(json.dumps(one) + "\n" for one in log))
    for options in ("", "--at 0s", "--decision fault-1", "--request 0", "--json -"):
        harmless(said("explain", run, *options.split()))


def test_what_a_command_line_says(said: Command) -> None:
    harmless(said(EVIL))
    harmless(said("simulate", EVIL))
    harmless(said("simulate", "x.yaml", f"--{EVIL}"))


def test_what_a_measured_trace_says(said: Command, tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text(SCENARIO)
    trace = tmp_path / "real.jsonl"
    row = {"arrived": 0.0, "prompt_tokens": 3, "output_tokens": 2, "ttft": 0.1, "e2e": 0.2}
    for name in ("source", "model", "id", "slo", EVIL):
        for text in (EVIL, LONG):
            written = json.dumps({**row, name: text}, ensure_ascii=False)
            trace.write_text(f"{written}\n")
            harmless(said("compare", "--real", trace, tmp_path / "one.yaml"))


@pytest.mark.parametrize("text", [EVIL, LONG], ids=["evil", "long"])
def test_what_measurements_say(said: Command, tmp_path: Path, text: str) -> None:
    file = tmp_path / "measured.jsonl"
    for row in ({text: 1}, {"name": text}, {"kind": text, "s": text}, text, [text]):
        file.write_text(json.dumps(row, ensure_ascii=False) + "\n")
        harmless(said("calibrate", file))
    file.write_text(text)
    harmless(said("calibrate", file))
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "steps.csv").write_text(f"{text},b\n1,{text}\n")
    harmless(said("calibrate", "--replay", tmp_path / "tables"))


STATUSES: dict[str, Reply] = {
    "an error": lambda _: Said(200, {"status": "error", "errorType": EVIL, "error": LONG}),
    "a refusal": lambda _: Said(400, {"status": "error", "error": EVIL}),
    "a kind": lambda _: Said(
        200, {"status": "success", "data": {"resultType": EVIL, "result": []}}
    ),
    "a page": lambda _: Said(502, LONG.encode()),
    "a redirect": lambda _: Said(302, b"", {"location": "http://x/\x9b\x1b[2J"}),
}


@pytest.mark.parametrize("kind", STATUSES)
def test_what_prometheus_says_to_a_shadow(said: Command, tmp_path: Path, kind: str) -> None:
    (tmp_path / "one.yaml").write_text(SCENARIO)
    with Server(STATUSES[kind]).running() as server:
        given = ("--prometheus", server.url, "--once")
        text = said("shadow", "run", tmp_path / "one.yaml", *given)
        assert "windtunnel: " in text
        harmless(text)


def test_what_a_gateways_trace_says_to_a_shadow(said: Command, tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text(SCENARIO)
    row = {"arrived": 0.0, "prompt_tokens": 3, "output_tokens": 2, "outcome": "completed"}
    rows = [
        {**row, name: text} for name in ("model", "slo", "id", "outcome") for text in (EVIL, LONG)
    ]
    trace = tmp_path / "trace.jsonl"
    trace.write_text("".join(json.dumps(one, ensure_ascii=False) + "\n" for one in rows) + EVIL)
    harmless(said("shadow", "run", tmp_path / "one.yaml", "--trace", trace, "--once"))


@contextmanager
def program(*words: object) -> Iterator[subprocess.Popen[str]]:
    """A live program; whatever it printed is harmless."""
    arguments = [sys.executable, "-m", "windtunnel", *map(str, words)]
    process = subprocess.Popen(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        yield process
    finally:
        process.terminate()
        said, _ = process.communicate(timeout=30)
    harmless(said, short=False)


@pytest.mark.once
@pytest.mark.parametrize("kind", ["an error", "a long error", "plain text", "a model"])
def test_what_a_server_says_to_a_gateway(tmp_path: Path, kind: str) -> None:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        admin = f"127.0.0.1:{found.getsockname()[1]}"
    config, access = tmp_path / "gateway.yaml", tmp_path / "access.jsonl"

    def reply(asked: Asked) -> Said:
        return REPLIES[kind](asked) if asked.method == "POST" else Said(200, b"")

    with Server(reply, (EVIL, "m")).running() as server:
        config.write_text(
            f"live: {{servers: [{{url: {server.url!r}}}], trace: null, admin: {admin!r}, "
            f"access_log: {str(access)!r}}}\n"
        )
        with program("gateway", config, "--port", "0") as process:
            assert process.stdout is not None
            line = process.stdout.readline()
            harmless(line)
            url = line.split()[2].rstrip(":")
            for model in (EVIL, "m"):
                asked = json.dumps({"model": model, "prompt": "x", "user": EVIL}).encode()
                kinds = {"content-type": "application/json"}
                request = urllib.request.Request(f"{url}/v1/completions", asked, kinds)
                with pytest.raises(urllib.error.HTTPError) if kind != "a model" else _nothing():
                    urllib.request.urlopen(request, timeout=30)
            for page in ("servers", "metrics", "readyz"):
                with urllib.request.urlopen(f"http://{admin}/{page}", timeout=30) as got:
                    harmless(got.read().decode(), short=False)
    harmless(access.read_text(), short=False)


@contextmanager
def _nothing() -> Iterator[None]:
    yield


@pytest.mark.once
@pytest.mark.parametrize("text", [EVIL, LONG], ids=["evil", "long"])
def test_what_an_api_server_says_to_an_operator(tmp_path: Path, text: str) -> None:
    status = {"kind": "Status", "status": "Failure", "reason": text, "message": text, "code": 403}
    with Server(lambda _: Said(403, status)).running() as server:
        config = tmp_path / "kubeconfig"
        cluster = {"name": "x", "cluster": {"server": server.url}}
        context = {"name": "x", "context": {"cluster": "x", "user": "x"}}
        user = {"name": "x", "user": {}}
        config.write_text(
            json.dumps(
                {"clusters": [cluster], "contexts": [context], "users": [user],
                 "current-context": "x"}
            )
        )  # fmt: skip
        with program("operate", "--kubeconfig", config, "--metrics-port", "0"):
            server.wait_for(3)
