"""Which rows are dropped for good when a server refuses them, and which the next run tries."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.live.batch.running import batch, prompts, write_rows
from tests.live.server import Asked, Said, Server, answer
from windtunnel.live.wire.refusals import NO_MODEL, refusal_code

Serve = Callable[..., Server]

GONE = [
    {"error": {"message": "gone", "code": "model_not_found"}},
    {"object": "error", "message": "The model `m` does not exist.", "type": "NotFoundError"},
    {"error": {"message": 'model "m" not found, try pulling it first', "type": "api_error"}},
    {"error": {"message": "no such model"}},
]


def number(asked: Asked) -> int:
    return int(asked.prompt.split()[1])


@pytest.mark.parametrize("body", GONE)
def test_a_model_that_is_not_there_is_known_by_what_servers_say(body: object) -> None:
    assert refusal_code(404, body) == NO_MODEL


@pytest.mark.parametrize("body", [{"error": {"message": "no such place"}}, {}, None, [], "model"])
def test_other_places_that_are_not_there_are_no_missing_model(body: object) -> None:
    assert refusal_code(404, body) == "http_404"


def test_a_model_that_is_unloaded_in_the_middle_stops_the_run_and_drops_nothing(
    tmp_path: Path, serve: Serve
) -> None:
    server = serve()
    server.reply = lambda asked: answer(asked) if len(server.asked) <= 5 else Said(404, GONE[1])
    write_rows(tmp_path / "in.jsonl", prompts(30))
    done = batch(tmp_path, "--endpoint", server.url, "--concurrency", 2)
    assert (done.code, done.errors) == (2, [])
    assert "(model_not_found): The model `m` does not exist (is the model's name right" in done.said
    server.reply = answer
    assert len(batch(tmp_path, "--endpoint", server.url, "--resume").lines) == 30


@pytest.mark.parametrize("status", [403, 404, 405])
def test_many_refusals_in_a_row_that_may_be_about_all_end_the_run(
    tmp_path: Path, serve: Serve, status: int
) -> None:
    """Row 3 alone is refused among answers; from row 10 on a gateway refuses everything."""
    server = serve()

    def reply(asked: Asked) -> Said:
        refused = number(asked) == 3 or number(asked) >= 10
        return Said(status, {"error": {"message": "not here"}}) if refused else answer(asked)

    server.reply = reply
    write_rows(tmp_path / "in.jsonl", prompts(100))
    done = batch(tmp_path, "--endpoint", f"here={server.url}", "--concurrency", 1)
    assert done.code == 2
    assert f"here refused 20 rows one after another, the last with http_{status}" in done.said
    assert [line["custom_id"] for line in done.errors] == ["r3"]
    assert len(server.asked) == 30
    server.reply = answer
    done = batch(tmp_path, "--endpoint", f"here={server.url}", "--resume")
    assert (done.code, len(done.lines), len(done.errors)) == (4, 99, 1)


def test_an_endpoint_that_answers_does_not_cover_for_one_that_refuses_all(
    tmp_path: Path, serve: Serve
) -> None:
    good, bad = serve(), serve()
    bad.reply = lambda _: Said(404, {"error": {"message": "not here"}})
    write_rows(tmp_path / "in.jsonl", prompts(2000))
    done = batch(tmp_path, "--endpoint", f"a={good.url}", "--endpoint", f"b={bad.url}",
                 "--concurrency", 2)  # fmt: skip
    assert (done.code, done.errors) == (2, [])


def bad_at_first(asked: Asked) -> Said:
    bad = number(asked) < 30
    return Said(400, {"error": {"message": "too long"}}) if bad else answer(asked)


def test_a_file_that_begins_with_bad_rows_can_be_passed(tmp_path: Path, serve: Serve) -> None:
    server = serve(bad_at_first)
    write_rows(tmp_path / "in.jsonl", prompts(50))
    words = ("--endpoint", server.url, "--concurrency", 1, "--resume")
    for _ in range(2):
        done = batch(tmp_path, *words)
        assert done.code == 2
        assert "if it is the rows that are bad, --skip-bad 200 skips that many" in done.said
    done = batch(tmp_path, *words, "--skip-bad", 200)
    assert (done.code, len(done.lines), len(done.errors)) == (4, 20, 30), done.said


def test_rows_that_an_earlier_run_finished_count_as_answered(tmp_path: Path, serve: Serve) -> None:
    """Calls in flight beside the bad ones were answered, so what is asked is right."""
    server = serve()
    server.reply = lambda asked: bad_at_first(asked) if number(asked) < 45 else Said(401, {})
    write_rows(tmp_path / "in.jsonl", [*prompts(50)[30:45], *prompts(30), *prompts(50)[45:]])
    words = ("--endpoint", server.url, "--concurrency", 1, "--resume")
    done = batch(tmp_path, *words)
    assert (done.code, len(done.lines), len(done.errors)) == (2, 15, 30), done.said
    (tmp_path / "out.errors.jsonl").unlink()
    server.reply = bad_at_first
    done = batch(tmp_path, *words)
    assert (done.code, len(done.lines), len(done.errors)) == (4, 20, 30), done.said
