"""What a server's reply means for a row: answered, wait, retry, drop the row, or stop the run.

A refusal that concerns a single row drops it for good. A refusal that every row would get (a wrong
option, a model or gateway that is gone) must not. Until it is clear which of the two it is,
`RefusedRows` holds the error lines of such rows back; if the run ends before that, the next run
tries those rows again.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from windtunnel.admission.reasons import Outcome
from windtunnel.admission.requests.budgets import ObservedLimits
from windtunnel.admission.requests.headers import read_limits
from windtunnel.live.wire.addresses import Api
from windtunnel.live.wire.client import Reply
from windtunnel.live.wire.refusals import (
    NO_MODEL,
    QUOTA,
    REDIRECT,
    Redact,
    decoded,
    refusal_code,
    refusal_line,
)
from windtunnel.settings.fields import shown

OVERLOADED = (503, 529)
ABOUT_ALL = (403, 404, 405)
"""Statuses that may concern the key, the model or the address, and so every row."""
TOKENS_MAX: Final = 10**9
"""No prompt or answer has more tokens; a larger count is a server fault."""
INSTEAD_OF_TEXT = ("tool_calls", "function_call", "refusal", "audio")
"""Fields that a message may have in place of text."""
PASSING = (408, 409, 425)
"""Transient refusals: the request itself is not at fault."""


class FailureMeaning(StrEnum):
    """What to do after a call without an answer."""

    WAIT = "wait"
    """The server enforces a limit, which admission respects."""
    AGAIN = "again"
    """A retry may succeed."""
    DROP = "drop"
    """This row will fail however often it is tried."""
    STOP = "stop"
    """Every row will fail: the key, the model or the address is wrong."""


class RowAnswer:
    """A row's answer and the tokens it used."""

    def __init__(self, body: dict[str, Any], content: str | None, request_id: str) -> None:
        self.body: Final = body
        self.content: Final = content
        self.request_id: Final = request_id
        self.endpoint = ""
        usage = body.get("usage")
        used = usage if isinstance(usage, dict) else {}
        self.prompt_tokens: Final = _count(used.get("prompt_tokens"))
        self.completion_tokens: Final = _count(used.get("completion_tokens"))

    @property
    def tokens(self) -> int:
        """Negative if the server did not report usage."""
        if self.prompt_tokens < 0:
            return -1
        return self.prompt_tokens + max(0, self.completion_tokens)


@dataclass(slots=True)
class Failure:
    """A call without an answer: what to do, and why."""

    means: FailureMeaning
    code: str
    message: str
    outcome: Outcome = Outcome.PROVIDER_FAILURE
    status: int = 0
    body: Any = None
    request_id: str = ""
    endpoint: str = ""
    retry_after_s: float = 0.0


def judge(reply: Reply, api: Api, redact: Redact, *, has_answered: bool) -> RowAnswer | Failure:
    """Classifies a reply; `has_answered`: this model has answered other rows of this run.

    `redact` removes keys from the server's message before it is cut: half a key is a secret too.
    """
    request_id = reply.headers.get("x-request-id", "")
    body = decoded(reply.body)
    if reply.status == 200:
        return _answer(body, api, request_id)
    message = refusal_line(reply.status, reply.headers, reply.body, redact)
    means, code, outcome = _refusal(reply.status, body, has_answered=has_answered)
    return Failure(
        means,
        code,
        message,
        outcome,
        status=reply.status,
        body=body if body is not None else message,
        request_id=request_id,
    )


def observed_limits(headers: Mapping[str, str], unix_s: float) -> ObservedLimits | None:
    """The limits in a reply's headers; most replies have none, and then nothing is parsed."""
    for name in headers:
        low = name.lower()
        if "ratelimit" in low or low.startswith("retry-after"):
            return read_limits(headers, unix_s)
    return None


def _refusal(status: int, body: Any, *, has_answered: bool) -> tuple[FailureMeaning, str, Outcome]:
    code = refusal_code(status, body)
    if code == QUOTA:
        return FailureMeaning.STOP, code, Outcome.PROVIDER_FAILURE
    if status == 429:
        return FailureMeaning.WAIT, "rate_limited", Outcome.RATE_LIMITED
    if status in OVERLOADED:
        return FailureMeaning.AGAIN, code, Outcome.PROVIDER_OVERLOADED
    if status >= 500 or status in PASSING:
        return FailureMeaning.AGAIN, code, Outcome.PROVIDER_FAILURE
    # A redirect does not concern a single row: all rows would be dropped, for good. Nor does
    # a missing model: it was unloaded, or a gateway restarted.
    if status in (401, 402) or code in (REDIRECT, NO_MODEL):
        return FailureMeaning.STOP, code, Outcome.PROVIDER_FAILURE
    # A model that has answered exists and is permitted, so the refusal concerns this row.
    if not has_answered and status in ABOUT_ALL:
        return FailureMeaning.STOP, code, Outcome.PROVIDER_FAILURE
    if status >= 300:
        return FailureMeaning.DROP, code, Outcome.PROVIDER_FAILURE
    return FailureMeaning.AGAIN, "bad_reply", Outcome.PROVIDER_FAILURE


def _answer(body: Any, api: Api, request_id: str) -> RowAnswer | Failure:
    fault = ""
    content = None
    if not isinstance(body, dict):
        fault = "the reply is not a JSON object"
    elif api is Api.EMBEDDINGS:
        data = body.get("data")
        if not isinstance(data, list) or not all(
            isinstance(one, dict) and isinstance(one.get("embedding"), list | str) for one in data
        ):
            fault = "the reply has no embeddings"
    else:
        content, fault = _first_choice(body, api)
    fault = fault or _usage_fault(body.get("usage"))
    if fault:
        return Failure(FailureMeaning.AGAIN, "bad_reply", fault, status=200, request_id=request_id)
    return RowAnswer(body, content, request_id)


def _first_choice(body: dict[str, Any], api: Api) -> tuple[str | None, str]:
    choices = body.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    if not isinstance(first, dict):
        return None, "the reply has no choices"
    if api is Api.COMPLETIONS:
        text = first.get("text")
    else:
        message = first.get("message")
        if not isinstance(message, dict):
            return None, "the reply has no message"
        text = message.get("content")
        if text is None and any(message.get(key) for key in INSTEAD_OF_TEXT):
            return None, ""
    if not isinstance(text, str):
        return None, f"the answer is {shown(text)}, which is not text"
    return text, ""


def _usage_fault(usage: Any) -> str:
    """What is wrong with the token counts in a reply, if anything; a server may omit them."""
    if usage is not None and not isinstance(usage, dict):
        return f"the usage is {shown(usage)}, which is not a mapping"
    for key in ("prompt_tokens", "completion_tokens", "total_tokens"):
        value = (usage or {}).get(key)
        if value is not None and _count(value) < 0:
            return f"{key} is {shown(value)}, which is not a number of tokens"
    return ""


def _count(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        return -1
    return value if 0 <= value <= TOKENS_MAX else -1


# Refused rows

IN_A_ROW: Final = 20
"""Consecutive refusals that may concern every row, after which the run stops."""
MOST_FIRST: Final = 1000
"""Refusals before the first answer that stop the run, even if some first rows never return."""

Line = dict[str, Any]


class RefusedRows:
    """The error lines of refused rows that are not written yet."""

    def __init__(self, *, skip_bad: int, has_answered: bool) -> None:
        """`has_answered`: an earlier run of the same work finished rows, so the requests are valid.

        The first `skip_bad` rows that return may all be refused, but not one more.
        """
        self._skip_bad: Final = skip_bad
        self._has_answered = has_answered
        self._first_rows: Final[dict[int, None]] = {}
        """The rows sent first, as many as are needed to judge the requests."""
        self._first_refused = 0
        self._first: list[Line] = []
        self._in_a_row: Final[dict[str, list[Line]]] = {}

    def asked(self, row: int) -> None:
        if len(self._first_rows) <= self._skip_bad:
            self._first_rows[row] = None

    def answered(self, endpoint: str) -> list[Line]:
        """Records an endpoint's answer; returns the error lines of rows that are at fault."""
        self._has_answered = True
        lines, self._first = self._first, []
        return lines + self._in_a_row.pop(endpoint, [])

    def refused(self, row: int, failure: Failure, line: Line) -> list[Line]:
        """Records a refused row; returns the error lines that may be written now."""
        if not self._has_answered:
            # Later rows may be refused before the first are answered; that proves nothing.
            self._first.append(line)
            self._first_refused += row in self._first_rows
            return []
        if failure.status not in ABOUT_ALL:
            return [line]
        self._in_a_row.setdefault(failure.endpoint, []).append(line)
        return []

    def verdict(self, failure: Failure) -> str:
        """Why the run should end after this refusal; empty if it should not."""
        last = f"the last with {failure.code}: {failure.message}"
        first = len(self._first)
        if self._first_refused > self._skip_bad or first >= max(MOST_FIRST, self._skip_bad + 1):
            return (
                f"the first {first:,} rows that came back were all refused, {last}; if it is the "
                f"rows that are bad, --skip-bad {10 * first} skips that many"
            )
        count = len(self._in_a_row.get(failure.endpoint, ()))
        if count >= IN_A_ROW:
            return f"{failure.endpoint} refused {count:,} rows one after another, {last}"
        return ""

    def rest(self) -> list[Line]:
        """All lines still held back, at the end of the run."""
        lines = self._first
        for kept in self._in_a_row.values():
            lines = lines + kept
        self._first = []
        self._in_a_row.clear()
        return lines
