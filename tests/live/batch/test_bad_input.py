"""What a person can get wrong: every sentence says where, what, and what to do."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import aiohttp
import pytest

from tests.live import virtual
from tests.live.batch.running import batch, prompts, write_rows
from tests.live.server import Asked, Said, Server, answer
from windtunnel.core.errors import InputError
from windtunnel.live.batch.endpoints import EndpointClient, find_models
from windtunnel.live.wire.client import CANNOT_CONNECT, Endpoint, Incoming, NoReply
from windtunnel.live.wire.greeting import LOOK_AGAIN_S
from windtunnel.live.wire.keys import read_keys

Serve = Callable[..., Server]
NOWHERE = "http://127.0.0.1:9"
CHAT = "/v1/chat/completions"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "in.jsonl: the file has no rows"),
        ("\n\n", "in.jsonl: the file has no rows"),
        ('{"prompt": "a"}\n{"prompt": \n', "in.jsonl:2: this line is not JSON: "),
        ('{"prompt": "a"}\n\n[1]\n', "in.jsonl:3: this line is not a mapping; a row is {...}"),
        ("[" * 100_000, "in.jsonl:1: this line is "),
        ('{"prompt": "\xff"}', "in.jsonl:1: this line is not JSON: "),
        ('{"text": "a"}', "in.jsonl:1: there is no prompt in the row; give it one, or"),
        ('{"prompt": 3}', "in.jsonl:1: there is no prompt in the row"),
        ('{"messages": []}', "in.jsonl:1: messages is not a list with messages in it"),
        (
            '{"prompt": "a", "id": 1}\n{"prompt": "b", "id": "1"}',
            "in.jsonl:2: the id '1' is the id of line 1 too",
        ),
        ('{"custom_id": 3, "body": {}}', "in.jsonl:1: custom_id is not text"),
        ('{"custom_id": "a", "body": 3}', "in.jsonl:1: body is not a mapping"),
        (
            '{"custom_id": "a", "body": {}, "url": "/v1/images"}',
            "in.jsonl:1: the url '/v1/images' is not known; known are /v1/chat/completions",
        ),
        (
            '{"custom_id": "a", "body": {}, "method": "GET"}',
            "in.jsonl:1: the method is 'GET', and only POST asks for an answer",
        ),
        (
            '{"custom_id": "a", "body": {"stream": true}}',
            "in.jsonl:1: the request asks for a stream, which is not supported",
        ),
        (
            '{"custom_id": "a", "body": {}}\n{"prompt": "b"}',
            "in.jsonl:2: the first row is a request with custom_id and body, and this one is not",
        ),
        (
            '{"prompt": "b"}\n{"custom_id": "a", "body": {}}',
            "in.jsonl:2: this row is a request with custom_id and body, and the first row is not",
        ),
    ],
)
def test_a_bad_line_is_told_before_anything_is_sent(
    tmp_path: Path, text: str, sentence: str
) -> None:
    (tmp_path / "in.jsonl").write_bytes(text.encode("latin-1"))
    done = batch(tmp_path, "--endpoint", NOWHERE)
    assert done.code == 2
    assert sentence in done.said
    assert not (tmp_path / "out.jsonl").exists()


def test_all_bad_lines_are_told_together_up_to_a_number(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"prompt": "a"}\nx\n{"prompt": "b"}\ny\n')
    done = batch(tmp_path, "--endpoint", NOWHERE)
    (sentence,) = done.said.splitlines()
    assert "in.jsonl:2: this line is not JSON" in sentence
    assert sentence.endswith("(and 1 more line: 4)")
    (tmp_path / "in.jsonl").write_text("".join(f'{{"prompt": {n}}}\n[{n}\n' for n in range(500)))
    assert 1 < len(batch(tmp_path, "--endpoint", NOWHERE).said.splitlines()) <= 21


def test_a_line_that_is_too_long_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("windtunnel.live.batch.rows.LONGEST_LINE", 1 << 20)
    (tmp_path / "in.jsonl").write_text('{"prompt": "a"}\n{"prompt": "' + "a" * (1 << 20) + '"}\n')
    assert (
        "in.jsonl:2: the line is longer than 1 MiB" in batch(tmp_path, "--endpoint", NOWHERE).said
    )


def test_a_template_field_that_a_row_does_not_have(tmp_path: Path) -> None:
    write_rows(tmp_path / "in.jsonl", [{"text": "a"}, {"txet": "b", "n": 1}])
    done = batch(tmp_path, "--endpoint", NOWHERE, "--template", "Say {{ text }}")
    assert done.code == 2
    assert (
        "in.jsonl:2: column answer needs 'text', which the row does not have; it has n, txet"
        in done.said
    )


def test_a_row_that_only_a_template_can_find_bad_is_dropped(tmp_path: Path, serve: Serve) -> None:
    server = serve()
    write_rows(tmp_path / "in.jsonl", [{"id": "a", "n": 1}, {"id": "b", "n": "x"}])
    done = batch(tmp_path, "--endpoint", server.url, "--template", "{{ n + 1 }}")
    assert (done.code, server.prompts) == (4, ["2"])
    (line,) = done.errors
    assert (line["custom_id"], line["error"]["code"], line["response"]) == ("b", "template", None)
    assert "column answer: " in line["error"]["message"]


def test_a_field_may_be_left_out_where_the_template_says_so(tmp_path: Path, serve: Serve) -> None:
    server = serve()
    write_rows(tmp_path / "in.jsonl", [{"text": "a"}, {}])
    done = batch(tmp_path, "--endpoint", server.url, "--template", "{{ text | default('none') }}")
    assert done.code == 0, done.said
    assert sorted(server.prompts) == ["a", "none"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            'columns: {a: {prompt: "{{ b }}"}, b: {prompt: "{{ a }}"}}',
            "columns.yaml:1: columns: columns need each other in a cycle: a needs b, b needs a",
        ),
        ('columns: {a: {prompt: "{{ a }}"}}', "in a cycle: a needs a"),
        ("columns: {}", "columns.yaml:1: columns: there are no columns"),
        ("", "columns.yaml: the file is empty; allowed: a mapping with the keys columns"),
        ("- a", "columns.yaml:1: the file is a list"),
        ("columns:\n  a: {promt: x}", "columns.yaml:2: columns.a.promt: unknown key (did you"),
        ("columns:\n  a: {}", "columns.yaml:2: columns.a.prompt: missing"),
        ('columns: {a: {prompt: "{{ x"}}', "columns.a.prompt: this is not a template: unexpected"),
        ('columns: {a b: {prompt: "x"}}', "'a b' is not a name for a column"),
        (
            "columns: {a: {prompt: x, body: {messages: []}}}",
            "columns.a.body.messages: this is set by the column itself",
        ),
        (
            "columns: {a: {prompt: x, api: completions, system: y}}",
            "columns.a.system: only a chat has a system message",
        ),
        ("columns: {a: {prompt: x, api: smoke}}", "'smoke' is not an interface; allowed: chat,"),
        ("columns: {a: {prompt: x, endpoint: b}}", "column a: there is no endpoint 'b'; allowed:"),
        (
            "endpoints: {e: {url: ftp://x}}\ncolumns: {a: {prompt: x}}",
            "endpoint e: 'ftp://x' is not an http:// or https:// address",
        ),
        (
            "columns: {prompt: {prompt: x}}",
            "in.jsonl:1: the row has a field 'prompt', which",
        ),
    ],
)
def test_a_bad_columns_file(tmp_path: Path, text: str, sentence: str) -> None:
    write_rows(tmp_path / "in.jsonl", prompts(1))
    (tmp_path / "columns.yaml").write_text(text)
    done = batch(tmp_path, "--columns", tmp_path / "columns.yaml", "--endpoint", NOWHERE)
    assert done.code == 2
    assert sentence in done.said


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        ([], "there is no endpoint to ask (--endpoint http://localhost:8000/v1, or"),
        (["--endpoint", "localhost:8000"], "--endpoint: 'localhost:8000' is not an http"),
        (["--endpoint", "a=b"], "--endpoint: 'b' is not an http"),
        (["--endpoint", "http://u:secret@h/v1"], "an address has no user and no password"),
        (["--endpoint", "http://h/v1?key=secret"], "(keys come from the environment: --key-env)"),
        (["--endpoint", "http://h:99999"], "is not an http:// or https:// address"),
        (
            ["--endpoint", "a=http://h", "--endpoint", "a=http://i"],
            "--endpoint: two of them are called 'a' (NAME=URL gives one another name)",
        ),
        (["--set", "max_tokens"], "--set max_tokens: there is no value; allowed: KEY=VALUE"),
        (["--set", "stream=true"], "--set stream=true: --set cannot change a request's stream"),
        (["--template", " "], "--template: the text is blank"),
        (["--template", "@gone.txt"], "gone.txt: the template cannot be read: no such file"),
        (["--template", "{% if %}"], "--template: this is not a template: "),
        (["--system", "x"], "--system: there is no template to go with it"),
        (["--tenant-weight", "a=2"], "--tenant-weight: no field names the tenant of a row"),
        (
            ["--tenant-field", "x", "--tenant-weight", "a"],
            "this is not a weight; allowed: TENANT=N",
        ),
        (
            ["--tenant-field", "x", "--tenant-weight", "a=2"],
            "--tenant-field: no row has a field 'x'",
        ),
        (["--tenant-field", "prompt", "--tenant-weight", "a=2"], "no row is of the tenant 'a'"),
        (["--priority-field", "x"], "--priority-field: no row has a field 'x'"),
        (["--priority-field", "prompt"], "the priority 'say 0' is not a whole number from -1000"),
        (["--retry-time", "soon"], "--retry-time: 'soon' is not a duration"),
        (["--timeout", "0s"], "--timeout: 0s is not a positive time"),
        (["--concurrency", "0"], "--concurrency"),
    ],
)
def test_bad_options(tmp_path: Path, args: list[str], sentence: str) -> None:
    write_rows(tmp_path / "in.jsonl", prompts(1))
    if args and "--endpoint" not in args:
        args = [*args, "--endpoint", NOWHERE]
    done = batch(tmp_path, *args)
    assert done.code == 2
    assert sentence in done.said
    assert "secret" not in done.said
    assert not (tmp_path / "out.jsonl").exists()


@pytest.mark.parametrize("option", ["--json", "--perfetto", "--events"])
@pytest.mark.parametrize(
    ("name", "whose"),
    [
        ("in.jsonl", "the input"),
        ("out.jsonl", "-o"),
        ("out.jsonl.journal", "the journal of -o"),
        ("out.errors.jsonl", "the list of errors of -o"),
    ],
)
def test_nothing_is_written_over_the_rows_or_the_answers(
    tmp_path: Path, option: str, name: str, whose: str
) -> None:
    file = tmp_path / name
    write_rows(tmp_path / "in.jsonl", prompts(1))
    write_rows(file, prompts(2))
    before = file.read_bytes()
    # The same file by another name.
    (tmp_path / "link").symlink_to(file)
    for place in (file, tmp_path / "link"):
        done = batch(tmp_path, "--endpoint", NOWHERE, "--resume", option, place)
        assert done.code == 2
        assert f"{option} would overwrite {whose} (choose another file with {option})" in done.said
        assert file.read_bytes() == before


def test_the_same_fault_of_many_lines_is_one_sentence(tmp_path: Path) -> None:
    write_rows(tmp_path / "in.jsonl", [{"a": 1}] * 3 + [{"b": 1}] * 2 + [{"a": 1}] * 40)
    done = batch(tmp_path, "--endpoint", NOWHERE, "--template", "{{ text }}")
    assert done.code == 2
    assert "in.jsonl:1: column answer needs 'text', which the row does not have" in done.said
    assert "it has a (and 17 more lines: 2, 3, 6, 7, 8, ...)" in done.said
    assert "it has b (and 1 more line: 5)" in done.said
    assert len(done.said.splitlines()) == 3


def test_a_weight_that_is_given_twice(tmp_path: Path) -> None:
    write_rows(tmp_path / "in.jsonl", prompts(1))
    weights = ("--tenant-field", "id", "--tenant-weight", "r1=2", "--tenant-weight", "r1=3")
    done = batch(tmp_path, "--endpoint", NOWHERE, *weights)
    assert done.code == 2
    assert "--tenant-weight r1=3: the weight of 'r1' is given twice" in done.said


def test_one_file_for_two_things(tmp_path: Path) -> None:
    write_rows(tmp_path / "in.jsonl", prompts(1))
    place = tmp_path / "x"
    done = batch(tmp_path, "--endpoint", NOWHERE, "--json", place, "--events", place)
    assert (done.code, place.exists()) == (2, False)
    assert "--events would overwrite --json" in done.said


def test_options_that_the_columns_file_has_said_already(tmp_path: Path) -> None:
    write_rows(tmp_path / "in.jsonl", prompts(1))
    file = tmp_path / "columns.yaml"
    file.write_text("columns: {a: {prompt: x, model: m}}")
    for args, sentence in (
        (["--template", "x"], "--template: the columns already set this"),
        (["--completions"], "--completions: the columns already set this"),
        (["--model", "n"], "--model: every column already names its model"),
    ):
        done = batch(tmp_path, "--columns", file, "--endpoint", NOWHERE, *args)
        assert (done.code, sentence in done.said) == (2, True)


def test_an_endpoint_that_is_down_at_the_start_is_told_after_a_bounded_wait(
    tmp_path: Path,
) -> None:
    write_rows(tmp_path / "in.jsonl", prompts(1))
    with Server().running() as server:
        gone = server.url
    done = batch(tmp_path, "--endpoint", gone, "--wait", "100ms")
    assert done.code == 2
    assert done.said.startswith(
        f"windtunnel: {gone}/v1: no answer within 100 ms: no connection: connection refused (is"
    )
    again = batch(tmp_path, "--endpoint", gone, "--wait", "100ms")
    assert (again.code, again.said) == (2, done.said)
    assert [path.name for path in tmp_path.iterdir()] == ["in.jsonl"]


def test_an_endpoint_that_says_nothing_at_the_start(tmp_path: Path) -> None:
    class Mute(Server):
        def _said(self, asked: Asked) -> Said:
            said = super()._said(asked)
            said.hold = asyncio.Event().wait  # type: ignore[assignment]
            return said

    write_rows(tmp_path / "in.jsonl", prompts(1))
    with Mute().running() as server:
        done = batch(tmp_path, "--endpoint", server.url, "--wait", "100ms")
    assert done.code == 2
    assert "no answer within 100 ms: it accepts connections but does not respond" in done.said


class Down(Endpoint):
    """A server that is not there, or that never says anything."""

    def __init__(self, *, is_mute: bool) -> None:
        super().__init__(cast("aiohttp.ClientSession", None), "http://down/v1", read_keys([], {}))
        self.is_mute = is_mute
        self.looks = 0

    @asynccontextmanager
    async def get(self, end: str) -> AsyncIterator[Incoming]:
        self.looks += 1
        if not self.is_mute:
            raise NoReply(CANNOT_CONNECT, f"no connection to {end}")
        await asyncio.Event().wait()
        yield cast("Incoming", None)


@pytest.mark.parametrize("is_mute", [False, True])
@pytest.mark.parametrize("wait_s", [0.1, 10.0, 600.0])
def test_the_wait_for_an_endpoint_that_is_down_is_bounded(wait_s: float, is_mute: bool) -> None:
    """In virtual time: no longer than --wait and one look, however many endpoints are down."""
    down = [Down(is_mute=is_mute) for _ in range(3)]

    async def look() -> float:
        began_s = asyncio.get_running_loop().time()
        with pytest.raises(InputError, match="no answer within "):
            await find_models(
                EndpointClient({str(n): one for n, one in enumerate(down)}, {}), wait_s
            )
        return asyncio.get_running_loop().time() - began_s

    assert wait_s - LOOK_AGAIN_S <= virtual.run(look()) <= wait_s + LOOK_AGAIN_S + 1e-6
    for one in down:
        assert 1 <= one.looks <= 1 + wait_s / LOOK_AGAIN_S


def test_an_endpoint_that_comes_up_late_is_waited_for(tmp_path: Path) -> None:
    write_rows(tmp_path / "in.jsonl", prompts(2))
    looks = 0

    class Late(Server):
        def _said(self, asked: Asked) -> Said:
            nonlocal looks
            looks += asked.path.endswith("/models")
            return Said(503, b"loading") if looks == 1 else super()._said(asked)

    with Late().running() as server:
        assert batch(tmp_path, "--endpoint", server.url).code == 0
    assert looks == 2


def test_nothing_says_which_model_to_ask(tmp_path: Path, serve: Serve) -> None:
    write_rows(tmp_path / "in.jsonl", prompts(1))
    done = batch(tmp_path, "--endpoint", serve(models=("a", "b")).url)
    assert done.code == 2
    assert "it is not clear which model to use; allowed: a, b (--model names it)" in done.said
    done = batch(tmp_path, "--endpoint", serve(models=None).url)
    assert "it is not clear which model to use (--model names it)" in done.said


@pytest.mark.parametrize("place", ["gone.jsonl", "."])
def test_an_input_that_cannot_be_read(tmp_path: Path, place: str) -> None:
    done = batch(tmp_path, "--endpoint", NOWHERE, rows=place)
    assert done.code == 2
    assert "cannot be read" in done.said


@pytest.mark.parametrize("resume", [[], ["--resume"]])
def test_an_output_that_is_no_regular_file_is_refused_and_left_alone(
    tmp_path: Path, serve: Serve, resume: list[str]
) -> None:
    """A device that had taken no row was deleted, and a pipe without a reader waited for ever."""
    write_rows(tmp_path / "in.jsonl", prompts(1))
    server = serve()
    output = tmp_path / "out.jsonl"
    os.mkfifo(output)
    done = batch(tmp_path, "--endpoint", server.url, *resume)
    assert done.code == 2
    assert "out.jsonl: is not a regular file (answers are appended to it" in done.said
    assert output.is_fifo()
    output.unlink()
    output.mkdir()
    assert "is not a regular file" in batch(tmp_path, "--endpoint", server.url, *resume).said
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.jsonl", "out.jsonl"]
    assert server.asked == []


def test_a_full_disk_in_the_middle_loses_nothing_that_was_finished(
    tmp_path: Path, serve: Serve
) -> None:
    """A limit on the size of files stands in for the disk; with room again, the rest is done."""
    import resource
    import subprocess
    import sys

    server = serve()
    write_rows(tmp_path / "in.jsonl", prompts(300))
    command = [sys.executable, "-m", "windtunnel", "batch", str(tmp_path / "in.jsonl")]
    command += ["--endpoint", server.url, "-o", str(tmp_path / "out.jsonl"), "--concurrency", "8"]

    def small_disk() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))

    full = subprocess.run(
        command, preexec_fn=small_disk, capture_output=True, text=True, check=False
    )
    assert full.returncode == 2, full.stderr
    assert "out.jsonl: cannot write: file too large" in full.stdout
    assert "rows are left; this continues with them" in full.stdout
    written = (tmp_path / "out.jsonl").read_bytes()
    assert 15_000 < len(written) <= 20_000
    assert written.endswith(b"\n")
    finished = written.count(b"\n")
    asked = len(server.asked)
    assert asked <= finished + 16
    done = batch(tmp_path, "--endpoint", server.url, "--resume")
    assert done.code == 0, done.said
    assert (tmp_path / "out.jsonl").read_bytes().startswith(written)
    assert len(done.lines) == 300
    assert len(server.asked) - asked == 300 - finished


def test_events_on_a_full_disk_do_not_stop_the_run(
    tmp_path: Path, serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    server = serve()
    write_rows(tmp_path / "in.jsonl", prompts(50))
    with caplog.at_level("INFO"):
        done = batch(tmp_path, "--endpoint", server.url, "--events", "/dev/full")
    assert done.code == 0, done.said
    assert len(done.lines) == 50
    assert "/dev/full: not all events are there: no space left on device" in done.said
    assert caplog.text == ""


def test_a_run_that_is_refused_leaves_the_events_of_another(tmp_path: Path, serve: Serve) -> None:
    """A resumed run adds its own to them."""
    events = tmp_path / "e.jsonl"
    server = serve()
    words = ("--endpoint", server.url, "--events", events)
    write_rows(tmp_path / "in.jsonl", [{"no": "prompt"}])
    assert batch(tmp_path, *words).code == 2
    assert not events.exists()
    write_rows(tmp_path / "in.jsonl", prompts(3))
    assert batch(tmp_path, *words).code == 0
    before = events.read_bytes()
    assert batch(tmp_path, *words).code == 2, "the output is there already"
    assert events.read_bytes() == before
    lines = (tmp_path / "out.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "out.jsonl").write_text("".join(lines[:2]))
    assert batch(tmp_path, *words, "--resume").code == 0
    assert events.read_bytes().startswith(before)
    assert len(events.read_bytes()) > len(before)


def test_a_port_for_metrics_that_is_taken(tmp_path: Path, serve: Serve) -> None:
    server = serve()
    write_rows(tmp_path / "in.jsonl", prompts(1))
    done = batch(tmp_path, "--endpoint", server.url, "--metrics-port", server.port)
    assert done.code == 2
    assert f"--metrics-port: cannot listen on {server.port}" in done.said


def test_more_connections_than_the_system_allows(tmp_path: Path, serve: Serve) -> None:
    import resource

    write_rows(tmp_path / "in.jsonl", prompts(1))
    server = serve()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if not 0 < most < 100_000:
        pytest.skip("the system allows more than can be asked for")
    done = batch(tmp_path, "--endpoint", server.url, "--concurrency", 100_000)
    assert done.code == 2
    assert "--concurrency: 100,000 calls in flight need as many connections" in done.said


def test_an_unknown_model_is_reported_as_a_timeout(tmp_path: Path, serve: Serve) -> None:
    """Elsewhere it looked like one, and rows were dropped; here it is told, and none is."""

    def reply(asked: Asked) -> Said:
        if asked.body["model"] == "gone":
            return Said(404, {"error": {"message": "no such model", "code": "model_not_found"}})
        return answer(asked)

    server = serve(reply)
    write_rows(tmp_path / "in.jsonl", prompts(40))
    done = batch(tmp_path, "--endpoint", server.url, "--model", "gone")
    assert done.code == 2
    assert "no such model (is the model's name right, and is it loaded?)" in done.said
    assert done.errors == []
    assert "40 rows are left; once that is fixed, --resume continues with them." in done.said
