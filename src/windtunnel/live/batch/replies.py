"""What a server's reply means for a row: an answer, wait, try again, drop the row, or stop.

A refusal that is about a row drops it for good. One that all rows would meet (a wrong option, a
model or a gateway that is gone) must not. Until something says which it is, `RefusedRows` keeps the
lines of such rows back; a run that ends before that is known leaves them to the next.
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
"""Refusals that may be about the key, the model or the address, and so about every row."""
TOKENS_MAX: Final = 10**9
"""No prompt and no answer has more tokens; a larger number is a fault of the server."""
INSTEAD_OF_TEXT = ("tool_calls", "function_call", "refusal", "audio")
"""What a message may have in place of text."""
PASSING = (408, 409, 425)
"""Refusals that others meet too: the request itself is not at fault."""


class FailureMeaning(StrEnum):
    """What a call that brought no answer means."""

    WAIT = "wait"
    """The server has a limit, which admission keeps to."""
    AGAIN = "again"
    """It may pass."""
    DROP = "drop"
    """This row will not do, whatever is tried."""
    STOP = "stop"
    """No row will: the key, the model or the address is wrong."""


class RowAnswer:
    """A row's answer, and what it took."""

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
        """Negative when the server did not say."""
        if self.prompt_tokens < 0:
            return -1
        return self.prompt_tokens + max(0, self.completion_tokens)


@dataclass(slots=True)
class Failure:
    """A call that brought no answer: what it means, and why."""

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
    """What a reply means; `has_answered`: this model has answered other rows of this run.

    `redact` takes keys out of what a server said before it is cut: half a key is a secret too.
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
    """What the headers say of limits; most replies say nothing, and cost nothing here."""
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
    # A redirect does not concern one row: all rows would be dropped, for good. Nor does a
    # model that is not there, or no longer: it was unloaded, or a gateway started anew.
    if status in (401, 402) or code in (REDIRECT, NO_MODEL):
        return FailureMeaning.STOP, code, Outcome.PROVIDER_FAILURE
    # A model that has answered is there, and may be asked: then it is about this row.
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
    """What is wrong with the numbers of tokens in a reply; a server may leave them out."""
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
"""So many refusals of a kind that may be about all, and no answer between: it is about all."""
MOST_FIRST: Final = 1000
"""So many bad rows before the first good one, should some of the first never come back."""

Line = dict[str, Any]


class RefusedRows:
    """What was refused and is not listed yet."""

    def __init__(self, *, skip_bad: int, has_answered: bool) -> None:
        """`has_answered`: an earlier run of the same work finished rows, so what is asked is right.

        `skip_bad` rows that come back first may all be refused, and not one more.
        """
        self._skip_bad: Final = skip_bad
        self._has_answered = has_answered
        self._first_rows: Final[dict[int, None]] = {}
        """The rows that were asked for first, as many as it takes to see what is wrong."""
        self._first_refused = 0
        self._first: list[Line] = []
        self._in_a_row: Final[dict[str, list[Line]]] = {}

    def asked(self, row: int) -> None:
        if len(self._first_rows) <= self._skip_bad:
            self._first_rows[row] = None

    def answered(self, endpoint: str) -> list[Line]:
        """An endpoint answered: the lines of rows that are at fault themselves."""
        self._has_answered = True
        lines, self._first = self._first, []
        return lines + self._in_a_row.pop(endpoint, [])

    def refused(self, row: int, failure: Failure, line: Line) -> list[Line]:
        """A row was refused: the lines that may be listed now."""
        if not self._has_answered:
            # That others were refused sooner than the first were answered says nothing.
            self._first.append(line)
            self._first_refused += row in self._first_rows
            return []
        if failure.status not in ABOUT_ALL:
            return [line]
        self._in_a_row.setdefault(failure.endpoint, []).append(line)
        return []

    def verdict(self, failure: Failure) -> str:
        """Why the run should end after this refusal, if it should."""
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
        """All that was kept back, at the end."""
        lines = self._first
        for kept in self._in_a_row.values():
            lines = lines + kept
        self._first = []
        self._in_a_row.clear()
        return lines
