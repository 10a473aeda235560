"""Servers that fail, refuse, stall, lie and break off, over a real socket."""

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.live.batch.running import PATIENCE_S, batch, prompts, start, write_rows
from tests.live.server import Asked, Said, Server, answer
from windtunnel.live.batch.replies import Failure, RowAnswer, judge
from windtunnel.live.wire.addresses import Api
from windtunnel.live.wire.client import LARGEST_REPLY, Reply

Serve = Callable[..., Server]

pytestmark = pytest.mark.usefixtures("short_rests")


def first_time(bad: Said) -> Callable[[Asked], Said]:
    """Goes wrong for every prompt the first time, and is right afterwards."""
    seen: Counter[str] = Counter()

    def reply(asked: Asked) -> Said:
        seen[asked.prompt] += 1
        return bad if seen[asked.prompt] == 1 else answer(asked)

    return reply


NAN = float("nan")
TEXT = {"choices": [{"message": {"content": "hi"}}]}
HUGE = b"[" + b"1," * (LARGEST_REPLY // 2 + 10)
PASSING = {
    "500": Said(500, {"error": {"message": "oops"}}),
    "502 with HTML": Said(502, b"<html>bad gateway</html>", {"content-type": "text/html"}),
    "503": Said(503, {"detail": "loading"}),
    "503 with retry-after": Said(503, {}, {"retry-after-ms": "20"}),
    "529": Said(529, {"type": "error", "error": {"type": "overloaded_error"}}),
    "408": Said(408, {}),
    "reset": Said(reset=True),
    "hung up": Said(raw=b"", hang_up=True),
    "cut in the middle": Said(raw=b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{", hang_up=True),
    "not HTTP": Said(raw=b"\x16\x03\x01 hello\r\n\r\n", hang_up=True),
    "not JSON": Said(200, b'{"choices": [', {"content-type": "application/json"}),
    "HTML with 200": Said(200, b"<html>welcome</html>", {"content-type": "text/html"}),
    "a list": Said(200, []),
    "no choices": Said(200, {"choices": []}),
    "strange choices": Said(200, {"choices": [3]}),
    "no message": Said(200, {"choices": [{"message": "text"}]}),
    "a number for text": Said(200, {"choices": [{"message": {"content": 5}}]}),
    "parts for text": Said(200, {"choices": [{"message": {"content": [{"text": "hi"}]}}]}),
    "no text and no tool": Said(200, {"choices": [{"message": {"content": None}}]}),
    "tokens below zero": Said(200, TEXT | {"usage": {"prompt_tokens": -3}}),
    "fewer tokens than none in total": Said(200, TEXT | {"usage": {"total_tokens": -5}}),
    "tokens that are text": Said(200, TEXT | {"usage": {"completion_tokens": "12"}}),
    "more tokens than there are": Said(200, TEXT | {"usage": {"prompt_tokens": 10**30}}),
    "half a token": Said(200, TEXT | {"usage": {"completion_tokens": 1.5}}),
    "NaN tokens": Said(
        200, b'{"choices":[{"message":{"content":"x"}}],"usage":{"prompt_tokens":NaN}}'
    ),
    "usage that is a list": Said(200, TEXT | {"usage": [1, 2]}),
    "an error with 200": Said(200, {"error": {"message": "oops"}}),
    "nothing": Said(200, b""),
    "204": Said(204, b""),
    "deep": Said(200, b"[" * 100_000),
    "huge": Said(200, HUGE, {"content-type": "application/json"}),
    "huge without a length": Said(
        raw=b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n" + HUGE, hang_up=True
    ),
    "a long header": Said(200, {}, {"x-long": "a" * 70_000}),
    "packed": Said(200, b"\x1f\x8b\x08not really", {"content-encoding": "gzip"}),
}


@pytest.mark.parametrize("name", PASSING)
def test_what_passes_is_tried_again(tmp_path: Path, serve: Serve, name: str) -> None:
    server = serve(first_time(PASSING[name]))
    write_rows(tmp_path / "in.jsonl", prompts(3))
    done = batch(tmp_path, "--endpoint", server.url)
    assert done.code == 0, done.said
    assert done.answers == {f"r{row}": f"SAY {row}" for row in range(3)}
    assert Counter(server.prompts) == {f"say {row}": 2 for row in range(3)}


@pytest.mark.parametrize(
    ("reply", "sentence"),
    [
        ({"choices": [{"message": {"content": 5}}]}, "the answer is 5, which is not text"),
        (TEXT | {"usage": {"prompt_tokens": -3}}, "prompt_tokens is -3, which is not a number"),
    ],
)
def test_what_is_no_answer_is_said_of_its_row(
    tmp_path: Path, serve: Serve, reply: dict[str, Any], sentence: str
) -> None:
    server = serve(lambda asked: Said(200, reply) if asked.prompt == "say 1" else answer(asked))
    write_rows(tmp_path / "in.jsonl", prompts(2))
    done = batch(tmp_path, "--endpoint", server.url, "--retries", "0", "--retry-time", "1s")
    assert done.answers == {"r0": "SAY 0"}
    (line,) = done.errors
    assert (line["custom_id"], line["error"]["reason"]) == ("r1", "bad_reply")
    assert sentence in line["error"]["message"]


def test_a_wrong_content_type_around_a_right_answer_is_an_answer(
    tmp_path: Path, serve: Serve
) -> None:
    def reply(asked: Asked) -> Said:
        return Said(200, answer(asked).content, {"content-type": "text/plain"})

    write_rows(tmp_path / "in.jsonl", prompts(1))
    assert batch(tmp_path, "--endpoint", serve(reply).url).code == 0


def test_a_server_that_never_finishes_its_reply_is_left_in_time(
    tmp_path: Path, serve: Serve
) -> None:
    """Slow-loris from the other side: the head, then a byte now and then, for ever."""
    never = asyncio.Event()

    def reply(asked: Asked) -> Said:
        if len(server.asked) == 1:
            said = Said(raw=b"")
            said.hold = trickle
            return said
        return answer(asked)

    async def trickle() -> None:
        (writer,) = server._writers
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n")
        while not never.is_set():
            writer.write(b" ")
            await writer.drain()
            await asyncio.sleep(0.02)

    server = serve(reply)
    write_rows(tmp_path / "in.jsonl", prompts(1))
    done = batch(tmp_path, "--endpoint", server.url, "--timeout", "500ms")
    assert done.code == 0, done.said
    assert len(server.asked) >= 2


@pytest.mark.parametrize("headers", [{"retry-after-ms": "30"}, {"retry-after": "0"}, {}])
def test_rate_limits_go_through_admission_and_use_up_no_retry(
    tmp_path: Path, serve: Serve, headers: dict[str, str]
) -> None:
    """Of 120 calls a third is refused; not one row is lost although --retries is 0."""

    def reply(asked: Asked) -> Said:
        if len(server.asked) % 3 == 0:
            return Said(429, {"error": {"message": "slow down"}}, headers)
        return answer(asked)

    server = serve(reply)
    write_rows(tmp_path / "in.jsonl", prompts(40))
    done = batch(tmp_path, "--endpoint", server.url, "--retries", 0, "--concurrency", 4)
    assert done.code == 0, done.said
    assert len(done.lines) == 40


def test_a_token_budget_that_is_learned_while_calls_wait_stops_nothing(
    tmp_path: Path, serve: Serve
) -> None:
    """Each call was taken for more than 500 tokens, and then there are 100 a minute."""

    def reply(asked: Asked) -> Said:
        said = answer(asked)
        said.headers["x-ratelimit-limit-tokens"] = "100"
        said.headers["x-ratelimit-remaining-tokens"] = "100"
        return said

    server = serve(reply)
    write_rows(tmp_path / "in.jsonl", prompts(6))
    done = batch(tmp_path, "--endpoint", server.url)
    assert done.code == 0, done.said
    assert len(done.lines) == 6


def test_a_refused_row_is_asked_for_again_before_rows_that_were_not(
    tmp_path: Path, serve: Serve
) -> None:
    """Refused twice; it was the last to be asked for again."""
    seen: Counter[str] = Counter()

    async def a_while() -> None:
        await asyncio.sleep(0.02)

    def reply(asked: Asked) -> Said:
        seen[asked.prompt] += 1
        if asked.prompt == "say 0" and seen[asked.prompt] <= 2:
            return Said(429, {"error": {"message": "slow down"}}, {"retry-after-ms": "20"})
        said = answer(asked)
        said.hold = a_while
        return said

    server = serve(reply)
    write_rows(tmp_path / "in.jsonl", prompts(60))
    done = batch(tmp_path, "--endpoint", server.url, "--concurrency", 1)
    assert done.code == 0, done.said
    assert [place for place, said in enumerate(server.prompts) if said == "say 0"][2] < 50


@pytest.mark.parametrize("limiter", ["aimd", "gradient", "fixed"])
def test_rate_limits_are_kept_to_by_every_limiter(
    tmp_path: Path, serve: Serve, limiter: str
) -> None:
    """Eight refusals come first: each call waits as it was told, and after an alarm all do."""

    def reply(asked: Asked) -> Said:
        if len(server.asked) <= 8:
            return Said(429, {"error": {"message": "slow down"}}, {"retry-after-ms": "40"})
        return answer(asked)

    server = serve(reply)
    write_rows(tmp_path / "in.jsonl", prompts(30))
    events = tmp_path / "events.jsonl"
    done = batch(
        tmp_path,
        *("--endpoint", server.url, "--limiter", limiter, "--concurrency", 4),
        *("--retries", 0, "--events", events),
    )
    assert done.code == 0, done.said
    assert len(done.lines) == 30
    told = [json.loads(line) for line in events.read_text().splitlines()]
    refused = [event for event in told if event["kind"] == "request_rate_limited"]
    started = [event for event in told if event["kind"] == "request_lease_acquired"]
    assert len(refused) == 8
    for event in refused:
        until_s, task = event["time"] + 0.04, event["data"]["task"]
        blocked_s = event["data"]["blocked_until_s"]
        early = [one for one in started if event["time"] < one["time"]]
        assert not [one for one in early if one["time"] < blocked_s]
        assert not [one for one in early if one["data"]["task"] == task and one["time"] < until_s]
    assert any(event["data"]["blocked_until_s"] > event["time"] for event in refused)


@pytest.mark.parametrize("limiter", ["aimd", "gradient", "fixed"])
def test_a_server_that_answers_429_for_ever_ends_the_run_with_a_report(
    tmp_path: Path, serve: Serve, limiter: str
) -> None:
    server = serve(lambda _: Said(429, {"error": {"message": "no"}}, {"retry-after": "3600"}))
    write_rows(tmp_path / "in.jsonl", prompts(1000))
    done = batch(tmp_path, "--endpoint", server.url, "--retry-time", "300ms", "--limiter", limiter)
    assert done.code == 5, done.said
    # 64 at first, and one for each reply until four that began in a row are known to be refused;
    # replies come in any order.
    assert len(server.asked) < 64 + 64 * 3 / 4
    assert done.errors == [], "refused once, and waiting: nothing was given up"
    assert "It ended because nothing has succeeded within --retry-time" in done.said
    assert "; the last failure was rate_limited: no." in done.said
    assert "1,000 rows are left; this continues with them:" in done.said
    assert "--resume" in done.said
    assert [path.name for path in tmp_path.iterdir()] == ["in.jsonl"]


def test_a_server_that_fails_for_ever_ends_it_too(tmp_path: Path, serve: Serve) -> None:
    server = serve(lambda _: Said(500, {}))
    write_rows(tmp_path / "in.jsonl", prompts(1000))
    done = batch(tmp_path, "--endpoint", server.url, "--retry-time", "300ms")
    assert done.code == 5, done.said


def test_bad_rows_are_dropped_and_listed_and_the_others_are_done(
    tmp_path: Path, serve: Serve
) -> None:
    def reply(asked: Asked) -> Said:
        status = {"say 3": 400, "say 5": 413, "say 8": 422, "say 9": 404}.get(asked.prompt)
        if status is not None and len(server.asked) > 4:
            message = f"context of {asked.prompt} is too long"
            return Said(status, {"error": {"message": message}}, {"x-request-id": "q"})
        return answer(asked)

    server = serve(reply)
    write_rows(tmp_path / "in.jsonl", prompts(12))
    done = batch(tmp_path, "--endpoint", server.url, "--concurrency", 1)
    assert done.code == 4, done.said
    assert len(done.lines) == 12 - len(done.errors)
    listed = {line["custom_id"]: line for line in done.errors}
    assert set(listed) == {"r5", "r8", "r9"}
    assert listed["r8"] == {
        "id": "batch_req_9",
        "custom_id": "r8",
        "response": {
            "status_code": 422,
            "request_id": "q",
            "body": {"error": {"message": "context of say 8 is too long"}},
        },
        "error": {
            "code": "http_422",
            "reason": "http_422",
            "message": "context of say 8 is too long",
            "line": 9,
            "column": "answer",
            "tries": 1,
        },
    }
    assert "3 dropped" in done.said


def test_when_the_first_rows_are_all_refused_the_run_ends(tmp_path: Path, serve: Serve) -> None:
    """The mistake is in what is asked: nothing is listed as dropped, a resumed run asks again."""
    server = serve(lambda _: Said(400, {"error": {"message": "max_tokens is too large"}}))
    write_rows(tmp_path / "in.jsonl", prompts(500))
    done = batch(tmp_path, "--endpoint", server.url, "--concurrency", 4)
    assert done.code == 2
    assert "rows that came back were all refused, the last with http_400: max_tokens" in done.said
    assert len(server.asked) <= 24
    assert done.errors == []
    server.reply = answer
    assert len(batch(tmp_path, "--endpoint", server.url, "--resume").lines) == 500


def test_rows_that_are_refused_sooner_than_others_are_answered_stop_nothing(
    tmp_path: Path, serve: Serve
) -> None:
    """Every second row is bad. Those are refused at once; good ones are held until all were."""
    bad, good = 30, asyncio.Event()
    refused: list[str] = []

    async def held() -> None:
        await good.wait()

    def reply(asked: Asked) -> Said:
        said = answer(asked)
        if int(asked.prompt.split()[1]) % 2:
            said.hold = held
            return said
        refused.append(asked.prompt)
        if len(refused) == bad:
            good.set()
        return Said(400, {"error": {"message": "too long"}})

    server = serve(reply)
    write_rows(tmp_path / "in.jsonl", prompts(2 * bad))
    done = batch(tmp_path, "--endpoint", server.url, "--limiter", "fixed")
    assert (done.code, len(done.lines), len(done.errors)) == (4, bad, bad), done.said


def test_a_redirect_in_the_middle_stops_the_run_and_drops_nothing(
    tmp_path: Path, serve: Serve
) -> None:
    server = serve()

    def reply(asked: Asked) -> Said:
        moved = len(server.asked) > 5
        return Said(307, {}, {"location": "http://elsewhere/login"}) if moved else answer(asked)

    server.reply = reply
    write_rows(tmp_path / "in.jsonl", prompts(30))
    done = batch(tmp_path, "--endpoint", server.url, "--concurrency", 2)
    assert (done.code, done.errors) == (2, [])
    assert "the server sends requests on to http://elsewhere/login" in done.said
    server.reply = answer
    assert len(batch(tmp_path, "--endpoint", server.url, "--resume").lines) == 30


def test_a_short_file_of_bad_rows_is_listed_whole(tmp_path: Path, serve: Serve) -> None:
    server = serve(lambda _: Said(400, {"error": {"message": "no"}}))
    write_rows(tmp_path / "in.jsonl", prompts(3))
    done = batch(tmp_path, "--endpoint", server.url)
    assert (done.code, len(done.errors)) == (4, 3)


@pytest.mark.parametrize(
    ("status", "body", "sentence"),
    [
        (401, {"error": {"message": "who?"}}, "(http_401): who? (it refused a request without"),
        (402, {}, "it requires payment"),
        (403, {"error": "go away"}, "(http_403): go away"),
        (404, {"error": {"message": "no model m"}}, "no model m (is the model's name right"),
        (
            429,
            {"error": {"message": "pay", "code": "insufficient_quota"}},
            "(quota_exhausted): pay (the quota is used up)",
        ),
    ],
)
def test_what_no_row_will_get_past_stops_the_run(
    tmp_path: Path, serve: Serve, status: int, body: object, sentence: str
) -> None:
    server = serve(lambda _: Said(status, body))
    write_rows(tmp_path / "in.jsonl", prompts(200))
    done = batch(tmp_path, "--endpoint", server.url, "--concurrency", 4)
    assert done.code == 2
    assert sentence in done.said
    assert "200 rows are left" in done.said
    assert len(server.asked) <= 8
    assert done.errors == []


def test_an_endpoint_that_breaks_every_connection_costs_a_row_one_try(
    tmp_path: Path, serve: Serve
) -> None:
    """It is always the one with the least to do; without looking elsewhere rows would be lost."""
    alive, broken = serve(), serve(lambda _: Said(reset=True))
    write_rows(tmp_path / "in.jsonl", prompts(60))
    both = ("--endpoint", alive.url, "--endpoint", broken.url)
    done = batch(tmp_path, *both, "--concurrency", 2, "--retries", 1)
    assert done.code == 0, done.said
    assert len(done.lines) == 60
    assert max(Counter(broken.prompts).values()) == 1


def test_an_endpoint_that_is_gone_in_the_middle_leaves_its_work_to_the_other(
    tmp_path: Path, serve: Serve
) -> None:
    alive = serve()
    write_rows(tmp_path / "in.jsonl", prompts(200))
    with Server().running() as dying:
        both = ("--endpoint", alive.url, "--endpoint", dying.url)
        with start(tmp_path, *both, "--concurrency", 2, "--retries", 9) as process:
            dying.wait_for(5)
            dying.close()
            said, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, said
    assert (tmp_path / "out.jsonl").read_bytes().count(b"\n") == 200


def test_a_redirect_is_never_followed_and_the_key_stays_home(
    tmp_path: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret-0123456789")
    other = serve()
    place = {"location": f"{other.url}/v1/chat/completions?key=1"}
    for status in (301, 302, 307, 308):
        server = serve(lambda _, status=status: Said(status, b"", place))
        folder = tmp_path / str(status)
        folder.mkdir()
        write_rows(folder / "in.jsonl", prompts(2))
        done = batch(folder, "--endpoint", server.url)
        assert done.code == 2
        assert f"sends requests on to {other.url}/v1/chat/completions (give that" in done.said
        assert server.asked[0].headers["authorization"] == "Bearer sk-very-secret-0123456789"
    assert other.asked == []
    assert other.probes == []


def test_a_bug_of_ours_stops_the_run_and_what_is_finished_stays(
    tmp_path: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(
        reply: Reply, api: Api, redact: Callable[[str], str], *, has_answered: bool
    ) -> RowAnswer | Failure:
        if len(server.asked) > 10:
            raise KeyError("sk-very-secret-0123456789")
        return judge(reply, api, redact, has_answered=has_answered)

    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret-0123456789")
    monkeypatch.setattr("windtunnel.live.batch.run.judge", broken)
    server = serve()
    write_rows(tmp_path / "in.jsonl", prompts(100))
    done = batch(tmp_path, "--endpoint", server.url, "--concurrency", 2)
    assert done.code == 3
    assert "a bug of windtunnel stopped the run: KeyError: '[key]'" in done.said
    assert "Traceback" in done.said
    assert "sk-very" not in done.said
    assert 8 <= len(done.lines) <= 11
    monkeypatch.setattr("windtunnel.live.batch.run.judge", judge)
    assert batch(tmp_path, "--endpoint", server.url, "--resume").code == 0
    assert len(server.asked) <= 104


def test_python_3_10_timeouts_are_timeouts(tmp_path: Path, serve: Serve) -> None:
    """A reply that does not come counts as the server's timeout, not as a bug of ours."""
    never = asyncio.Event()

    def reply(asked: Asked) -> Said:
        said = answer(asked)
        if len(server.asked) == 1:
            said.hold = never.wait  # type: ignore[assignment]
        return said

    server = serve(reply)
    write_rows(tmp_path / "in.jsonl", prompts(1))
    summary = tmp_path / "summary.json"
    events = tmp_path / "events.jsonl"
    done = batch(
        tmp_path,
        *("--endpoint", server.url, "--timeout", "500ms", "--events", events, "--json", summary),
    )
    assert done.code == 0
    released = [json.loads(line) for line in events.read_text().splitlines()]
    reasons = [e["reason"] for e in released if e["kind"] == "request_lease_released"]
    assert (reasons[0], reasons[-1]) == ("provider_timeout", "success")
    assert set(reasons) == {"provider_timeout", "success"}
