"""Killed in the middle, many times: no finished row is asked for again, and none is lost."""

import json
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.live.batch.running import PATIENCE_S, batch, prompts, read, start, write_rows
from tests.live.server import Asked, Said, Server, answer

Serve = Callable[..., Server]

CHAIN = """
columns:
  first: {prompt: "1 {{ prompt }}"}
  second: {prompt: "2 {{ first }}"}
"""


def finished_rows(folder: Path) -> list[str]:
    """The ids in whole lines of the output."""
    raw = (folder / "out.jsonl").read_bytes() if (folder / "out.jsonl").exists() else b""
    return [json.loads(line)["custom_id"] for line in raw[: raw.rfind(b"\n") + 1].splitlines()]


@pytest.mark.parametrize("columns", [False, True], ids=["rows", "columns"])
def test_kill_9_in_the_middle_many_times(tmp_path: Path, serve: Serve, columns: bool) -> None:
    server = serve()
    rows = 400
    write_rows(tmp_path / "in.jsonl", prompts(rows))
    args: list[object] = ["--endpoint", server.url, "--resume", "--concurrency", 8]
    if columns:
        (tmp_path / "columns.yaml").write_text(CHAIN)
        args += ["--columns", tmp_path / "columns.yaml", "--group-rows", 50]
    kills = 0
    for more in (1, 40, 3, 77, 90, 25):
        before = finished_rows(tmp_path)
        if len(before) == rows:
            break
        asked = len(server.asked)
        with start(tmp_path, *args) as process:
            server.wait_for(asked + more)
            process.send_signal(signal.SIGKILL)
            assert process.wait(PATIENCE_S) == -signal.SIGKILL
        kills += 1
        after = finished_rows(tmp_path)
        assert after[: len(before)] == before
        done = {f"say {row[1:]}" for row in before}
        again = [a.prompt for a in server.asked[asked:] if original(a.prompt) in done]
        assert again == []
    assert kills >= 4
    last = batch(tmp_path, *args)
    assert last.code == 0, last.said
    assert sorted(finished_rows(tmp_path)) == sorted(f"r{row}" for row in range(rows))
    # What was in flight at a kill may have been asked for twice; nothing was more often than that.
    assert max(Counter(server.prompts).values()) <= kills + 1
    calls = rows * (2 if columns else 1)
    assert len(server.asked) <= calls + kills * 8
    if columns:
        assert last.lines[0]["columns"]["second"].startswith("2 1 SAY")
        assert (tmp_path / "out.jsonl.journal").read_bytes().count(b"\n") == 1


def original(prompt: str) -> str:
    """The row's own prompt, in what a column made of it."""
    return prompt[prompt.lower().index("say") :].lower()


@pytest.mark.parametrize("torn", [b'{"id":"batch_req_9","cust', b"\x00\x00", b'{"id": "batch_'])
def test_a_torn_last_line_is_cut_off(tmp_path: Path, serve: Serve, torn: bytes) -> None:
    server = serve()
    write_rows(tmp_path / "in.jsonl", prompts(10))
    assert batch(tmp_path, "--endpoint", server.url).code == 0
    output = tmp_path / "out.jsonl"
    lines = output.read_bytes().splitlines(keepends=True)
    output.write_bytes(b"".join(lines[:6]) + torn)
    done = batch(tmp_path, "--endpoint", server.url, "--resume")
    assert done.code == 0, done.said
    assert len(server.asked) == 14
    assert len(done.lines) == 10
    assert output.read_bytes().startswith(b"".join(lines[:6]))


def test_resuming_what_is_complete_asks_for_nothing(tmp_path: Path, serve: Serve) -> None:
    server = serve()
    write_rows(tmp_path / "in.jsonl", prompts(3))
    assert batch(tmp_path, "--endpoint", server.url, "--resume").code == 0
    before = (tmp_path / "out.jsonl").read_bytes()
    done = batch(tmp_path, "--endpoint", "http://127.0.0.1:9", "--resume")
    assert (done.code, len(server.asked)) == (0, 3), done.said
    assert "3 of 3 rows are in" in done.said
    assert (tmp_path / "out.jsonl").read_bytes() == before


def test_an_output_that_exists_is_not_written_to_without_resume(
    tmp_path: Path, serve: Serve
) -> None:
    write_rows(tmp_path / "in.jsonl", prompts(1))
    (tmp_path / "out.jsonl").write_text("mine\n")
    server = serve()
    done = batch(tmp_path, "--endpoint", server.url)
    assert done.code == 2
    assert done.said.endswith(
        "out.jsonl: already exists (--resume goes on with it; -o names another file)\n"
    )
    assert (
        "no out.jsonl.journal beside it"
        in batch(tmp_path, "--resume", "--endpoint", "http://x").said
    )
    assert (tmp_path / "out.jsonl").read_text() == "mine\n"
    assert server.asked == []


def test_a_changed_input_or_template_is_not_mixed_in(tmp_path: Path, serve: Serve) -> None:
    server = serve()
    write_rows(tmp_path / "in.jsonl", prompts(3))
    template = ("--template", "{{ prompt }}!")
    assert batch(tmp_path, "--endpoint", server.url, *template).code == 0
    done = batch(tmp_path, "--endpoint", server.url, "--resume", "--template", "{{ prompt }}?")
    assert done.code == 2
    assert "cannot be resumed: what is asked has changed since" in done.said
    write_rows(tmp_path / "in.jsonl", prompts(4))
    done = batch(tmp_path, "--endpoint", server.url, "--resume", *template)
    assert done.code == 2
    assert "cannot be resumed: the input has changed since" in done.said
    assert len(server.asked) == 3


def test_a_foreign_line_in_the_output_is_told(tmp_path: Path, serve: Serve) -> None:
    server = serve()
    write_rows(tmp_path / "in.jsonl", prompts(3))
    assert batch(tmp_path, "--endpoint", server.url).code == 0
    output = tmp_path / "out.jsonl"
    lines = output.read_bytes().splitlines(keepends=True)
    output.write_bytes(lines[0] + b"what is this\n" + lines[1])
    done = batch(tmp_path, "--endpoint", server.url, "--resume")
    assert done.code == 2
    assert "out.jsonl:2: this line was not written by a batch" in done.said


def test_a_second_run_keeps_off_the_files_of_the_first(tmp_path: Path, serve: Serve) -> None:
    import asyncio

    gate = asyncio.Event()

    def reply(asked: Asked) -> Said:
        said = answer(asked)
        said.hold = gate.wait  # type: ignore[assignment]
        return said

    server = serve(reply)
    write_rows(tmp_path / "in.jsonl", prompts(2))
    with start(tmp_path, "--endpoint", server.url) as process:
        server.wait_for(1)
        done = batch(tmp_path, "--endpoint", server.url, "--resume")
        assert done.code == 2
        assert "out.jsonl: another run is writing it" in done.said
        process.kill()


def test_rows_that_were_given_up_are_tried_again_and_dropped_ones_are_not(
    tmp_path: Path, serve: Serve, short_rests: None
) -> None:
    def reply(asked: Asked) -> Said:
        if asked.prompt == "say 1":
            return Said(400, {"error": {"message": "no such thing"}})
        if asked.prompt == "say 2" and is_broken:
            return Said(500, {"error": "oops"})
        return answer(asked)

    is_broken = True
    server = serve(reply)
    write_rows(tmp_path / "in.jsonl", prompts(6))
    done = batch(tmp_path, "--endpoint", server.url, "--retries", 1)
    assert done.code == 4, done.said
    assert {line["custom_id"]: line["error"]["code"] for line in done.errors} == {
        "r1": "http_400",
        "r2": "gave_up",
    }
    assert "1 dropped, 1 given up" in done.said
    is_broken = False
    asked = len(server.asked)
    done = batch(tmp_path, "--endpoint", server.url, "--resume", "--retries", 1)
    assert done.code == 4
    assert server.prompts[asked:] == ["say 2"]
    assert [line["custom_id"] for line in done.errors] == ["r1"]
    assert len(done.lines) == 5


def test_columns_that_were_there_are_not_asked_for_again(tmp_path: Path, serve: Serve) -> None:
    """The second column is refused with 401, the first one was answered: it is kept."""

    def reply(asked: Asked) -> Said:
        if asked.prompt.startswith("2") and not is_open:
            return Said(401, {"error": {"message": "who are you"}})
        return answer(asked)

    is_open = False
    server = serve(reply)
    write_rows(tmp_path / "in.jsonl", prompts(5))
    (tmp_path / "columns.yaml").write_text(CHAIN)
    args = ("--endpoint", server.url, "--columns", tmp_path / "columns.yaml", "--resume")
    done = batch(tmp_path, *args)
    assert done.code == 2
    first = [prompt for prompt in server.prompts if prompt.startswith("1")]
    kept = read(tmp_path / "out.jsonl.journal")[1:]
    assert len(kept) >= 1
    assert {record["column"] for record in kept} == {"first"}
    is_open = True
    server.asked.clear()
    done = batch(tmp_path, *args)
    assert done.code == 0, done.said
    asked_again = [prompt for prompt in server.prompts if prompt.startswith("1")]
    assert len(asked_again) == 5 - len(kept)
    assert len(first) >= len(kept)
    assert sorted(line["columns"]["second"] for line in done.lines) == [
        f"2 1 SAY {row}" for row in range(5)
    ]


def test_a_row_whose_columns_were_all_there_is_only_written(tmp_path: Path, serve: Serve) -> None:
    """As after a kill between the last column's answer and the row's line."""
    server = serve()
    write_rows(tmp_path / "in.jsonl", prompts(2))
    (tmp_path / "columns.yaml").write_text(CHAIN)
    args = ("--endpoint", server.url, "--columns", tmp_path / "columns.yaml", "--resume")
    assert batch(tmp_path, *args).code == 0
    output, journal = tmp_path / "out.jsonl", tmp_path / "out.jsonl.journal"
    line = next(line for line in read(output) if line["custom_id"] == "r1")
    output.write_text("".join(
        json.dumps(one) + "\n" for one in read(output) if one["custom_id"] != "r1"
    ))  # fmt: skip
    with journal.open("a") as file:
        for name in ("first", "second"):
            record = {"row": 1, "column": name, "value": line["columns"][name]}
            if name == "second":
                record["response"] = line["response"]
            file.write(json.dumps(record) + "\n")
    server.asked.clear()
    done = batch(tmp_path, *args)
    assert (done.code, server.asked) == (0, [])
    assert next(one for one in done.lines if one["custom_id"] == "r1") == line
