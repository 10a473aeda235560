"""What others wrote never steers a terminal, whichever way it gets there."""

import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.live.server import Asked, Reply, Said, Server, answer
from tests.twin.runs import one_server
from windtunnel.cli.main import main
from windtunnel.core.errors import printable
from windtunnel.report.terminal.layout import Screen, say, table_of

EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\x7f\u202emodel"
STEERS = ("\x1b", "\x07", "\x9b", "\x7f", "\u202e", "\r")
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


def harmless(text: str) -> None:
    for letter in STEERS:
        assert letter not in text, repr(text)


@given(st.text())
def test_printable_text_steers_nothing_and_says_what_was_there(text: str) -> None:
    shown = printable(text)
    harmless(shown)
    assert printable(shown) == shown
    if "\\" not in text and '"' not in text and "\n" not in text:
        assert json.loads(f'"{shown}"') == text


def test_a_screen_writes_out_what_would_steer_it() -> None:
    stream = io.StringIO()
    console = Screen(file=stream, force_terminal=True, width=200)
    say(console, EVIL, "bold")
    console.print(table_of((EVIL, "n"), [(EVIL, "1")]))
    console.print(EVIL)
    text = stream.getvalue()
    assert text.count("\\u001b]0;owned\\u0007\\u001b[2J\\u009b31m\\u007f\\u202emodel") == 3
    assert text.count("\\u001b]0;owned") == 4
    assert "\x1b]" not in text  # its own colours remain
    assert "\x07" not in text


def _named(asked: Asked) -> Said:
    said = answer(asked)
    said.content = said.content.replace(b'"model"', b'"was"')
    return said


REPLIES: dict[str, Reply] = {
    "an error": lambda _: Said(400, {"error": {"message": EVIL}}),
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


@pytest.mark.parametrize("kind", REPLIES)
@pytest.mark.parametrize("models", [("m",), (EVIL,), (EVIL, "other")], ids=["m", "evil", "several"])
def test_what_a_server_says_to_observe(
    said: Command, tmp_path: Path, kind: str, models: tuple[str, ...]
) -> None:
    (tmp_path / "one.yaml").write_text(SCENARIO)
    with Server(REPLIES[kind], models).running() as server:
        words = ("observe", tmp_path / "one.yaml", "--endpoint", server.url, "--wait", "1s")
        harmless(said(*words, "-o", tmp_path / "trace.parquet"))
        harmless(said(*words, "-o", tmp_path / "again.parquet", "--json", "-"))


@pytest.mark.parametrize("kind", REPLIES)
@pytest.mark.parametrize("models", [("m",), (EVIL,), (EVIL, "other")], ids=["m", "evil", "several"])
def test_what_a_server_says_to_batch(
    said: Command, tmp_path: Path, kind: str, models: tuple[str, ...]
) -> None:
    rows = tmp_path / "in.jsonl"
    rows.write_text('{"prompt": "hello"}\n')
    with Server(REPLIES[kind], models).running() as server:
        words = ["batch", rows, "--endpoint", server.url, "--wait", "1s", "--retries", "0"]
        words += ["--retry-time", "1ms"]
        harmless(said(*words, "-o", tmp_path / "out.jsonl"))
        harmless(said(*words, "-o", tmp_path / "again.jsonl", "--json", "-"))


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
