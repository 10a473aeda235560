"""Keys come from the environment, and not one byte of them is written or said anywhere."""

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.live.batch.running import PATIENCE_S, batch, prompts, start, write_rows
from tests.live.server import Asked, Said, Server, answer

Serve = Callable[..., Server]
KEY = 'sk-"q\\uote/d-0123456789abcdef'


def echo(asked: Asked) -> Said:
    """Repeats the key wherever a server can: headers, answers, errors, odd spellings."""
    key = asked.headers["authorization"].removeprefix("Bearer ")
    spelled = "".join(f"\\u{ord(letter):04x}" for letter in key)
    if asked.prompt == "say 1":
        return Said(400, {"error": {"message": f"Incorrect API key provided: {key}."}, key: key})
    if asked.prompt == "say 2":
        return Said(422, f"<p>{key}</p>".encode(), {"content-type": "text/html"})
    if asked.prompt == "say 3":
        raw = f'{{"id":"{spelled}","choices":[{{"message":{{"content":"{spelled}"}}}}]}}'
        return Said(200, raw.encode(), {"x-request-id": key})
    if asked.prompt == "say 5":
        return Said(400, {"error": {"message": "x" * 485 + key}})
    if asked.prompt == "say 6":
        return Said(422, b" " * 1990 + key.encode(), {"content-type": "text/html"})
    if asked.prompt == "say 4":
        return Said(404, {"detail": [key]}, {"x-key": key})
    said = answer(asked)
    said.headers = {**said.headers, "x-request-id": key, "x-ratelimit-limit-requests": key}
    return said


@pytest.mark.parametrize("columns", [False, True], ids=["rows", "columns"])
def test_a_server_that_repeats_the_key_does_not_get_it_written(
    tmp_path: Path, serve: Serve, columns: bool
) -> None:
    server = serve(echo)
    write_rows(tmp_path / "in.jsonl", prompts(12))
    args: list[object] = ["--endpoint", server.url, "--key-env", "MY_KEY", "--concurrency", 1]
    args += ["--events", tmp_path / "e.jsonl", "--json", tmp_path / "s.json"]
    args += ["--perfetto", tmp_path / "t.json.gz", "--metrics-port", 0]
    if columns:
        file = tmp_path / "columns.yaml"
        file.write_text(
            'columns: {a: {prompt: "{{ prompt }}"}, b: {prompt: "then {{ a }}"}, '
            'c: {prompt: "{{ 1 + a }}"}}'
        )
        args += ["--columns", file]
    with start(tmp_path, *args, MY_KEY=KEY) as process:
        said, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 4, said
    assert server.asked[0].headers["authorization"] == f"Bearer {KEY}"
    written = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    written["said"] = said.encode()
    written["unpacked"] = gzip.decompress(written["t.json.gz"])
    files = ("out.jsonl", "out.errors.jsonl", "out.jsonl.journal", "e.jsonl", "s.json")
    assert set(files) <= set(written)
    escaped = KEY.replace("\\", "\\\\").replace('"', '\\"')
    for name, content in written.items():
        for form in (KEY, escaped, KEY[:8], escaped[:8]):
            assert form.encode() not in content, name
    assert b"[key]" in written["out.errors.jsonl"]


def test_keys_in_sentences_about_a_server_that_refuses(
    tmp_path: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)

    def reply(asked: Asked) -> Said:
        return Said(401, {"error": {"message": f"bad key {KEY}"}})

    write_rows(tmp_path / "in.jsonl", prompts(3))
    server = serve(reply)
    done = batch(tmp_path, "--endpoint", server.url, "--json", tmp_path / "s.json")
    assert done.code == 2
    assert "bad key [key] (it refused the key in OPENAI_API_KEY" in done.said
    assert KEY not in done.said + (tmp_path / "s.json").read_text()
    server.models = None

    class Refusing(Server):
        def _said(self, asked: Asked) -> Said:
            return reply(asked)

    with Refusing().running() as refusing:
        done = batch(tmp_path, "--endpoint", refusing.url, "--resume")
    assert done.code == 2
    assert "bad key [key]" in done.said
    assert KEY not in done.said


def test_a_model_that_is_called_like_the_key_is_none(
    tmp_path: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    write_rows(tmp_path / "in.jsonl", prompts(1))
    done = batch(tmp_path, "--endpoint", serve(models=(f"x-{KEY}",)).url)
    assert done.code == 2
    assert "it is not clear which model to use" in done.said
    assert KEY not in done.said


def test_a_variable_that_was_named_must_hold_a_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_rows(tmp_path / "in.jsonl", prompts(1))
    done = batch(tmp_path, "--endpoint", "http://127.0.0.1:9", "--key-env", "NOT_SET")
    assert done.code == 2
    assert "the environment variable NOT_SET is not set" in done.said
    monkeypatch.setenv("ODD", "sk-line\nbreak-and-more")
    done = batch(tmp_path, "--endpoint", "http://127.0.0.1:9", "--key-env", "ODD")
    assert "the key in ODD has a character that no key has" in done.said
    assert "break" not in done.said


def test_each_endpoint_gets_its_own_key(
    tmp_path: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = serve(models=("a",)), serve(models=("b",))
    monkeypatch.setenv("OPENAI_API_KEY", "key-number-one")
    monkeypatch.setenv("OTHER_KEY", "key-number-two")
    (tmp_path / "columns.yaml").write_text(
        f"""
endpoints:
  one: {{url: "{one.url}"}}
  other: {{url: "{other.url}", key_env: OTHER_KEY}}
columns:
  x: {{prompt: "{{{{ prompt }}}}", model: a}}
  y: {{prompt: "{{{{ prompt }}}}", model: b}}
"""
    )
    write_rows(tmp_path / "in.jsonl", prompts(2))
    assert batch(tmp_path, "--columns", tmp_path / "columns.yaml").code == 0
    assert {a.headers["authorization"] for a in [*one.asked, *one.probes]} == {
        "Bearer key-number-one"
    }
    assert {a.headers["authorization"] for a in [*other.asked, *other.probes]} == {
        "Bearer key-number-two"
    }


def test_a_key_in_an_answer_is_not_sent_on_to_another_server(
    tmp_path: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One server answers with the key that it was sent; another is asked about that answer."""
    monkeypatch.setenv("FIRST_KEY", KEY)

    def reply(asked: Asked) -> Said:
        return Said(200, {"choices": [{"message": {"content": asked.headers["authorization"]}}]})

    first, second = serve(reply, models=("a",)), serve(models=("b",))
    (tmp_path / "columns.yaml").write_text(
        f"""
endpoints:
  first: {{url: "{first.url}", key_env: FIRST_KEY}}
  second: {{url: "{second.url}"}}
columns:
  x: {{prompt: "{{{{ prompt }}}}", model: a}}
  y: {{prompt: "{{{{ x }}}}", model: b}}
"""
    )
    write_rows(tmp_path / "in.jsonl", prompts(1))
    assert batch(tmp_path, "--columns", tmp_path / "columns.yaml").code == 0
    assert second.prompts == ["Bearer [key]"]
    assert second.asked[0].headers["authorization"] == ""
