"""Servers' refusals: the message in one line without keys, and whether all requests are
affected."""

import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from windtunnel.core.errors import InputError, one_line

LONGEST_MESSAGE = 500
QUOTA_CODES = ("insufficient_quota", "billing_hard_limit_reached", "billing_not_active")
QUOTA = "quota_exhausted"
REDIRECT = "redirect"
NO_MODEL = "model_not_found"

_NO_SUCH_MODEL = re.compile(
    r"\bmodel\b.*\b(does not exist|not found|not loaded)\b|\bno (such )?model\b", re.DOTALL
)
"""How servers without such an error code phrase it."""

Redact = Callable[[str], str]


def decoded(body: bytes) -> Any:
    """Decodes JSON; None if it is invalid."""
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def refusal_code(status: int, body: Any) -> str:
    """A short code for a reply whose status is not 200."""
    if 300 <= status < 400:
        return REDIRECT
    if status == 429 and _error_code(body) in QUOTA_CODES:
        return QUOTA
    if status in (403, 404) and _is_about_the_model(body):
        return NO_MODEL
    return f"http_{status}"


def refusal_line(status: int, headers: Mapping[str, str], raw: bytes, redact: Redact) -> str:
    """The server's error message, as one short line.

    Keys are removed before the line is cut: half a key is a secret too.
    """
    if 300 <= status < 400:
        return f"the server sends requests on to {_target(headers, redact)}"
    return error_line(raw, redact)


def error_line(raw: bytes, redact: Redact) -> str:
    """The error message in a reply, or else the whole reply, as one short line."""
    body = decoded(raw)
    said: Any = None
    if isinstance(body, dict):
        said = body.get("error", body.get("message", body.get("detail")))
    if isinstance(said, dict):
        said = said.get("message")
    text = redact(said if isinstance(said, str) else raw.decode(errors="replace"))
    return one_line(text, LONGEST_MESSAGE)


def refused_sentence(url: str, key_env: str, code: str, message: str) -> InputError:
    """The error for a server that will refuse every request, with a hint on what to do."""
    key = f"the key in {key_env}" if key_env else "a request without a key"
    hints = {
        "http_401": f"it refused {key}; --key-env names the variable that holds the right one",
        "http_403": f"it refused {key}",
        "http_402": "it requires payment",
        QUOTA: "the quota is used up",
        REDIRECT: "give that address as --endpoint; keys are not sent on to other places",
        NO_MODEL: "is the model's name right, and is it loaded?",
        "http_404": "is the model's name right, and the address?",
    }
    what = f"the server will not answer ({code}): {message}"
    return InputError(what, where=url, hint=hints.get(code))


def _is_about_the_model(body: Any) -> bool:
    if _error_code(body) == NO_MODEL:
        return True
    error = body.get("error", body) if isinstance(body, dict) else None
    said = error.get("message") if isinstance(error, dict) else error
    return isinstance(said, str) and _NO_SUCH_MODEL.search(said[:LONGEST_MESSAGE]) is not None


def _error_code(body: Any) -> str:
    error = body.get("error") if isinstance(body, dict) else None
    code = (error.get("code") or error.get("type")) if isinstance(error, dict) else None
    return code if isinstance(code, str) else ""


def _target(headers: Mapping[str, str], redact: Redact) -> str:
    """The target of a redirect, without parts that may be secret."""
    place = redact(headers.get("location", "")) or "nowhere"
    return one_line(place.partition("?")[0].partition("#")[0].rpartition("@")[2])
