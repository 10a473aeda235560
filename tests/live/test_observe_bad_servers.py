"""`windtunnel observe` and servers that do not behave: each request is told from the others."""

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq
import pytest

from tests.live.server import Asked, Reply, Said, Server
from windtunnel.cli.main import main

KEY = "sk-very-secret-0123456789"
SCENARIO = """\
name: small
workload:
  - {name: chat, count: 2, arrivals: {process: constant, rate: 1000/s},
     prompt_tokens: 8, output_tokens: 2}
serving:
  pools: [{name: main, engine: {kv_blocks: 100}, step_time: {model: linear, fixed: 1ms}}]
"""
EVENTS = {"content-type": "text/event-stream"}
ONE = b'data: {"choices": [{"text": " one"}]}\n\n'
END = b"data: [DONE]\n\n"


class Done(NamedTuple):
    """What an observation came to."""

    code: Any
    out: str
    err: str
    rows: list[dict[str, Any]]

    @property
    def ends(self) -> set[tuple[str, int, str | None]]:
        return {(row["outcome"], row["status"], row["error"]) for row in self.rows}


Observe = Callable[..., Done]


@pytest.fixture
def observe(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Observe:
    """Observes a server that answers so."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)

    def run(reply: Reply | Server, *options: str) -> Done:
        file, trace = tmp_path / "small.yaml", tmp_path / "trace.parquet"
        file.write_text(SCENARIO)
        server = reply if isinstance(reply, Server) else Server(reply)
        with server.running(), pytest.raises(SystemExit) as left:
            main(["observe", str(file), "--endpoint", server.url, "-o", str(trace), *options])
        out, err = capsys.readouterr()
        if trace.exists():
            assert KEY.encode() not in trace.read_bytes()
            assert KEY not in out + err
            return Done(left.value.code, out, err, pq.read_table(trace).to_pylist())
        return Done(left.value.code, out, err, [])

    return run


def stream(*pieces: bytes) -> Said:
    return Said(200, b"".join(pieces), EVENTS)


PACKED = gzip.compress(ONE + END)
BAD = {
    "no end": (stream(ONE, ONE), "cut_off", "the stream ended without [DONE]"),
    "no end of a line": (stream(ONE, b"data: [DONE]"), "cut_off", "the stream ended without"),
    "cut": (
        Said(raw=b"HTTP/1.1 200 OK\r\ncontent-length: 999\r\n\r\n" + ONE, hang_up=True),
        "cut_off",
        "the connection broke",
    ),
    "cut at once": (
        Said(raw=b"HTTP/1.1 200 OK\r\ncontent-length: 999\r\n\r\n", hang_up=True),
        "failed",
        "the connection broke",
    ),
    "reset": (Said(reset=True), "failed", "the connection broke"),
    "not HTTP": (Said(raw=b"hello\r\n\r\n", hang_up=True), "failed", "the connection broke"),
    "no tokens": (stream(END), "failed", "the answer has no tokens"),
    "HTML": (
        Said(200, b"<html>", {"content-type": "text/html"}),
        "failed",
        "the server sent no stream of tokens, but text/html",
    ),
    "an error in the stream": (
        stream(ONE, b'data: {"error": {"message": "out of memory, %s"}}\n\n' % KEY.encode()),
        "failed",
        "out of memory, [key]",
    ),
    "no JSON": (stream(ONE, b"data: {\n\n"), "failed", "a piece of the stream cannot be read"),
    "deep JSON": (
        stream(b"data: " + b'{"error":' * 100_000 + b"\n"),
        "failed",
        "a piece of the stream cannot be read",
    ),
    "impossible usage": (
        stream(ONE, b'data: {"usage": {"completion_tokens": 100000000000000000000}}\n\n', END),
        "failed",
        "a piece of the stream cannot be read",
    ),
    "a long line": (
        stream(ONE, b"data: " + b"x" * (3 << 20)),
        "failed",
        "a line of the stream has more than 1 MiB",
    ),
    "packed": (
        Said(200, PACKED, {**EVENTS, "content-encoding": "gzip"}),
        "failed",
        "the reply is compressed",
    ),
    "redirect": (
        Said(307, b"", {"location": "http://127.0.0.1:1/v1/completions?key=1"}),
        "failed",
        "the server sends requests on to http://127.0.0.1:1/v1/completions",
    ),
    "a huge error": (Said(500, b"x" * (17 << 20)), "failed", "the reply is larger than 16 MiB"),
    "a key behind much space": (Said(400, b" " * 70_000 + KEY.encode()), "failed", "[key]"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_answer_is_told_with_its_outcome(observe: Observe, name: str) -> None:
    said, outcome, error = BAD[name]
    done = observe(lambda _: said)
    assert (done.code, done.err) == (4, "windtunnel: no request was completed\n")
    assert len(done.rows) == 2
    for row in done.rows:
        assert row["outcome"] == outcome
        assert row["error"].startswith(error)
        assert row["e2e"] is None
        assert len(row["error"]) <= 200
    assert "2 x" in done.out


def test_an_answer_without_an_end_of_its_connection_is_whole(observe: Observe) -> None:
    """Whoever sent `[DONE]` may be silent then; what else is sent is not looked at."""
    head = b"HTTP/1.1 200 OK\r\ncontent-length: 999\r\n\r\n"
    done = observe(lambda _: Said(raw=head + ONE + ONE + END + b"data: {\n"), "--timeout", "60s")
    assert done.ends == {("completed", 200, None)}
    assert {row["output_tokens"] for row in done.rows} == {2}
    broken = Said(raw=head + ONE + END, hang_up=True)
    assert observe(lambda _: broken, "--force").ends == {("completed", 200, None)}


@pytest.mark.parametrize(
    ("said", "says"),
    [
        (Said(401, {"error": {"message": f"bad key {KEY}"}}), "bad key [key] (it refused the key"),
        (Said(302, b"", {"location": "http://other/"}), "sends requests on to http://other/"),
        (Said(200, b"[" * (17 << 20)), "the reply is larger than 16 MiB"),
        (Said(500, b""), "it answers 500"),
        (Said(200, {"data": [{"id": KEY}]}), "the name of the model is not clear"),
        (Said(200, b"garbage"), "the name of the model is not clear: it does not say"),
        (Said(200, {"data": [{"id": "m" * 300}]}), "the name of the model is not clear"),
    ],
)
def test_a_bad_greeting_is_a_sentence(observe: Observe, said: Said, says: str) -> None:
    class Odd(Server):
        def _said(self, asked: Asked) -> Said:
            return said

    done = observe(Odd(), "--wait", "10ms")
    assert done.code == 2
    assert says in done.err
    assert KEY not in done.err
    assert done.rows == []


def test_a_variable_that_was_named_must_hold_a_key(observe: Observe) -> None:
    server = Server()
    done = observe(server, "--key-env", "NOT_SET")
    assert done.code == 2
    assert "--key-env: the environment variable NOT_SET is not set" in done.err
    assert server.probes == []
