"""What goes in and what comes out: every form of row, over a real socket."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.live.batch.running import PATIENCE_S, batch, prompts, start, write_rows
from tests.live.server import Asked, Said, Server, answer

Serve = Callable[..., Server]


def test_rows_with_a_prompt_become_chats(tmp_path: Path, serve: Serve) -> None:
    server = serve()
    write_rows(tmp_path / "in.jsonl", prompts(5))
    done = batch(tmp_path, "--endpoint", server.url, "--set", "max_tokens=3", "--set", "seed=1")
    assert done.code == 0, done.said
    assert done.answers == {f"r{row}": f"SAY {row}" for row in range(5)}
    assert server.asked[0].path == "/v1/chat/completions"
    assert server.asked[0].body == {
        "messages": [{"role": "user", "content": server.prompts[0]}],
        "model": "m",
        "max_tokens": 3,
        "seed": 1,
    }
    assert server.asked[0].headers["authorization"] == ""
    assert "5 of 5 rows are in" in done.said
    assert not (tmp_path / "out.errors.jsonl").exists()


def test_a_line_of_the_output_is_as_openai_writes_it(tmp_path: Path, serve: Serve) -> None:
    server = serve()
    write_rows(tmp_path / "in.jsonl", [{"custom_id": "a", "prompt": "hi"}])
    (line,) = batch(tmp_path, "--endpoint", server.url).lines
    assert list(line) == ["id", "custom_id", "response", "error"]
    assert line["id"] == "batch_req_1"
    assert line["error"] is None
    assert line["response"]["status_code"] == 200
    assert line["response"]["request_id"] == "req-1"
    assert line["response"]["body"]["usage"]["completion_tokens"] == 7


def test_openai_batch_files_run_as_they_are(tmp_path: Path, serve: Serve) -> None:
    server = serve(models=("small", "large"))
    rows = [
        {
            "custom_id": "chat",
            "method": "POST",
            "url": "/v1/chat/completions",
            "body": {"model": "small", "messages": [{"role": "user", "content": "a"}], "n": 1},
        },
        {
            "custom_id": "text",
            "method": "POST",
            "url": "/v1/completions",
            "body": {"model": "large", "prompt": "b"},
        },
        {
            "custom_id": "vector",
            "method": "POST",
            "url": "/v1/embeddings",
            "body": {"model": "large", "input": "c"},
        },
    ]
    write_rows(tmp_path / "in.jsonl", rows)
    done = batch(tmp_path, "--endpoint", f"{server.url}/v1/")
    assert done.code == 0, done.said
    asked = {asked.path: asked.body for asked in server.asked}
    assert asked == {row["url"]: row["body"] for row in rows}
    by_id = {line["custom_id"]: line["response"]["body"] for line in done.lines}
    assert by_id["vector"]["data"] == [{"embedding": [0.5]}]
    assert by_id["text"]["choices"][0]["text"] == "B"


def test_a_model_on_the_command_line_is_asked_instead(tmp_path: Path, serve: Serve) -> None:
    server = serve(models=("mine", "other"))
    body = {"model": "gpt-5", "messages": [{"role": "user", "content": "a"}]}
    rows = [{"custom_id": "1", "method": "POST", "url": "/v1/chat/completions", "body": body}]
    write_rows(tmp_path / "in.jsonl", rows)
    assert batch(tmp_path, "--endpoint", server.url, "--model", "mine").code == 0
    assert server.asked[0].body["model"] == "mine"


def test_templates_messages_and_completions(tmp_path: Path, serve: Serve) -> None:
    server = serve()
    write_rows(tmp_path / "in.jsonl", [{"id": 7, "text": 'a "b"\nc', "n": {"x": 1}}])
    template = tmp_path / "template.txt"
    template.write_text("Shorten: {{ text }} ({{ n.x }})\n")
    done = batch(
        tmp_path, "--endpoint", server.url, "--template", f"@{template}", "--system", "For {{ id }}"
    )
    assert server.asked[0].body["messages"] == [
        {"role": "system", "content": "For 7"},
        {"role": "user", "content": 'Shorten: a "b"\nc (1)\n'},
    ]
    assert done.lines[0]["columns"] == {"answer": 'SHORTEN: A "B"\nC (1)\n'}
    (tmp_path / "out.jsonl").unlink()
    batch(tmp_path, "--endpoint", server.url, "--template", "{{ text }}", "--completions")
    assert (server.asked[1].path, server.asked[1].body["prompt"]) == (
        "/v1/completions",
        'a "b"\nc',
    )
    (tmp_path / "out.jsonl").unlink()
    chat = [{"role": "system", "content": "x"}, {"role": "user", "content": "y"}]
    write_rows(tmp_path / "in.jsonl", [{"messages": chat}])
    done = batch(tmp_path, "--endpoint", server.url)
    assert server.asked[2].body["messages"] == chat
    assert done.answers == {"row-1": "Y"}


def test_columns_use_rows_and_each_other(tmp_path: Path, serve: Serve) -> None:
    server = serve(models=("small", "large"))
    columns = tmp_path / "columns.yaml"
    columns.write_text(
        """
columns:
  title: {prompt: "title of {{ summary }}", model: small}
  summary: {prompt: "sum {{ text }}", model: large, body: {max_tokens: 9}}
  both: {prompt: "{{ title }}/{{ summary }}", system: "{{ lang | default('en') }}", model: small}
"""
    )
    rows = [{"id": f"r{n}", "text": f"t{n}"} for n in range(30)]
    write_rows(tmp_path / "in.jsonl", rows)
    done = batch(tmp_path, "--endpoint", server.url, "--columns", columns, "--group-rows", 4)
    assert done.code == 0, done.said
    assert len(server.asked) == 90
    for line in done.lines:
        n = line["custom_id"][1:]
        assert line["columns"] == {
            "summary": f"SUM T{n}",
            "title": f"TITLE OF SUM T{n}",
            "both": f"TITLE OF SUM T{n}/SUM T{n}",
        }
        assert line["response"]["body"]["choices"][0]["message"]["content"].startswith("TITLE")
    by_model = Counter(str(asked.body["model"]) for asked in server.asked)
    assert by_model == {"small": 60, "large": 30}
    assert all(("max_tokens" in a.body) == (a.body["model"] == "large") for a in server.asked)


def test_several_endpoints_share_the_work(tmp_path: Path, serve: Serve) -> None:
    one, other = serve(), serve()
    write_rows(tmp_path / "in.jsonl", prompts(200))
    done = batch(
        tmp_path, "--endpoint", f"a={one.url}", "--endpoint", f"b={other.url}", "--concurrency", 4
    )
    assert done.code == 0, done.said
    assert sorted(one.prompts + other.prompts) == sorted(f"say {n}" for n in range(200))
    assert min(len(one.asked), len(other.asked)) > 20
    assert max(one.most_at_once, other.most_at_once) <= 4
    assert "m at a" in done.said


def test_an_endpoint_is_asked_only_for_models_that_it_has(tmp_path: Path, serve: Serve) -> None:
    small, large = serve(models=("small",)), serve(models=("large",))
    columns = tmp_path / "columns.yaml"
    columns.write_text(
        f"""
endpoints:
  one: {{url: "{small.url}", concurrency: 3}}
columns:
  a: {{prompt: "{{{{ text }}}}", model: small}}
  b: {{prompt: "{{{{ a }}}}", model: large}}
  c: {{prompt: "{{{{ a }}}}", model: small, endpoint: one}}
"""
    )
    write_rows(tmp_path / "in.jsonl", [{"text": f"t{n}"} for n in range(10)])
    done = batch(tmp_path, "--columns", columns, "--endpoint", large.url)
    assert done.code == 0, done.said
    assert {asked.body["model"] for asked in small.asked} == {"small"}
    assert {asked.body["model"] for asked in large.asked} == {"large"}
    assert small.most_at_once <= 3


def test_a_model_that_no_endpoint_lists_is_asked_for_with_a_warning(
    tmp_path: Path, serve: Serve
) -> None:
    write_rows(tmp_path / "in.jsonl", prompts(1))
    done = batch(tmp_path, "--endpoint", serve().url, "--model", "alias")
    assert done.code == 0
    assert "no endpoint lists the model 'alias', only m; it is requested anyway" in done.said
    silent = serve(models=None)
    (tmp_path / "out.jsonl").unlink()
    done = batch(tmp_path, "--endpoint", silent.url, "--model", "alias")
    assert (done.code, "lists" in done.said) == (0, False)


def test_urgent_rows_go_first_and_those_that_failed_go_before_the_rest(
    tmp_path: Path, serve: Serve
) -> None:
    """Row 9 is refused once; it is asked for again before anything less urgent."""
    seen: Counter[str] = Counter()

    def reply(asked: Asked) -> Said:
        seen[asked.prompt] += 1
        if asked.prompt == "say 9" and seen[asked.prompt] == 1:
            return Said(429, {})
        return answer(asked)

    server = serve(reply)
    urgency = {7: 2, 9: 1000, 3: 2, 0: -5, 1: None}
    rows = [{**row, "p": urgency[n]} if n in urgency else row for n, row in enumerate(prompts(10))]
    write_rows(tmp_path / "in.jsonl", rows)
    done = batch(tmp_path, "--endpoint", server.url, "--priority-field", "p", "--concurrency", 1)
    assert done.code == 0, done.said
    order = [9, 9, 3, 7, 1, 2, 4, 5, 6, 8, 0]
    assert server.prompts == [f"say {number}" for number in order]


def test_the_priority_of_a_request_may_be_in_its_body(tmp_path: Path, serve: Serve) -> None:
    server = serve()
    rows = [
        {
            "custom_id": str(n),
            "body": {"model": "m", "messages": [{"role": "user", "content": "x"}], "priority": n},
        }
        for n in range(4)
    ]
    write_rows(tmp_path / "in.jsonl", rows)
    one = ("--endpoint", server.url, "--concurrency", 1)
    assert batch(tmp_path, *one, "--priority-field", "priority").code == 0
    assert [asked.body["priority"] for asked in server.asked] == [3, 2, 1, 0]


def test_tenants_share_by_weight(tmp_path: Path, serve: Serve) -> None:
    """Tenant a's 300 rows come first in the file; b's 100 do not wait for them."""
    server = serve()
    rows = [{"prompt": f"{who} {n}", "who": who} for who, many in (("a", 300), ("b", 100))
            for n in range(many)]  # fmt: skip
    write_rows(tmp_path / "in.jsonl", rows)
    done = batch(
        tmp_path,
        *("--endpoint", server.url, "--tenant-field", "who", "--tenant-weight", "b=3"),
        *("--concurrency", 4, "--group-rows", 40),
    )
    assert done.code == 0, done.said
    first = Counter(prompt[0] for prompt in server.prompts[:120])
    assert first["b"] == pytest.approx(90, abs=12)


def test_requests_per_minute_are_kept_to(tmp_path: Path, serve: Serve) -> None:
    server = serve()
    write_rows(tmp_path / "in.jsonl", prompts(30))
    with start(tmp_path, "--endpoint", server.url, "--requests-per-minute", 12) as process:
        server.wait_for(12)
        process.terminate()
        assert process.wait(PATIENCE_S) == 143
    assert len(server.asked) == 12


def test_answers_without_text_are_whole_in_requests_and_retried_in_columns(
    tmp_path: Path, serve: Serve, short_rests: None
) -> None:
    """A call of a tool has no text: as an answer it is fine, as a column it is none."""

    def reply(asked: Asked) -> Said:
        said = answer(asked)
        if len(server.asked) == 1:
            body = json.loads(said.content)
            body["choices"][0]["message"] = {"role": "assistant", "content": None}
            return Said(200, body)
        return said

    server = serve(reply)
    write_rows(tmp_path / "in.jsonl", prompts(1))
    assert batch(tmp_path, "--endpoint", server.url).code == 0
    (tmp_path / "out.jsonl").unlink()
    server.asked.clear()
    done = batch(tmp_path, "--endpoint", server.url, "--template", "{{ prompt }}")
    assert (done.code, len(server.asked)) == (0, 2)
    assert done.lines[0]["columns"] == {"answer": "SAY 0"}


def test_summary_as_json_alone(tmp_path: Path, serve: Serve) -> None:
    server = serve()
    write_rows(tmp_path / "in.jsonl", prompts(3))
    done = batch(tmp_path, "--endpoint", server.url, "--json", "-")
    summary = json.loads(done.said)
    assert summary["ending"] == "complete"
    assert summary["view"]["finished"] == 3
    assert summary["view"]["models"][0]["completion_tokens"] == 21
