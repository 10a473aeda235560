"""What a server says when it refuses is one short line."""

import pytest

from windtunnel.live.wire.refusals import LONGEST_MESSAGE, error_line, refusal_code, refusal_line


def as_it_is(text: str) -> str:
    return text


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b'{"error":{"message":"too\\n many"}}', "too many"),
        (b'{"error":"no"}', "no"),
        (b'{"detail":"odd"}', "odd"),
        (b'{"detail":["odd"]}', '{"detail":["odd"]}'),
        (b"<html>\x1b[31m</html>", "<html>\\u001b[31m</html>"),
        (b"[1]", "[1]"),
        (b"\xff" * 600, "\ufffd" * (LONGEST_MESSAGE - 3) + "..."),
        (b"[" * 600, "[" * (LONGEST_MESSAGE - 3) + "..."),
        (b"", ""),
    ],
)
def test_errors_are_one_short_line(body: bytes, says: str) -> None:
    assert error_line(body, as_it_is) == says


def test_keys_are_taken_out_before_a_line_is_cut() -> None:
    body = b'{"error": "' + b"x" * (LONGEST_MESSAGE - 4) + b'SECRET"}'
    assert error_line(body, lambda text: text.replace("SECRET", "[key]")).endswith("x[...")


def test_where_a_redirect_leads_is_told_without_what_may_be_secret() -> None:
    headers = {"location": "https://me:secret@there.example/v1?token=secret#secret"}
    line = refusal_line(302, headers, b"", as_it_is)
    assert line == "the server sends requests on to there.example/v1"


def test_quota_is_told_from_a_rate_limit() -> None:
    assert refusal_code(429, {"error": {"code": "insufficient_quota"}}) == "quota_exhausted"
    assert refusal_code(429, {"error": {"code": "rate_limit_exceeded"}}) == "http_429"
    assert refusal_code(429, "odd") == "http_429"
    assert refusal_code(308, None) == "redirect"
