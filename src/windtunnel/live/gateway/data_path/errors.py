"""The gateway's error responses: OpenAI's error objects, with the matching status."""

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from windtunnel.live.wire.refusals import error_line

KEPT_BODY: Final = 1 << 20
"""Bytes of a response that are kept, to pass on an error or to read the usage."""
LEFT_STATUS: Final = 499
"""The status in the access log for a client that left before it got one, as in nginx."""

TYPES: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "invalid_request_error",
    405: "invalid_request_error",
    408: "invalid_request_error",
    411: "invalid_request_error",
    413: "invalid_request_error",
    415: "invalid_request_error",
    429: "rate_limit_error",
    431: "invalid_request_error",
}


def error_body(
    status: int, message: str, code: str | None = None, param: str | None = None
) -> bytes:
    """The body of an error response with this status."""
    kind = TYPES.get(status, "server_error")
    error = {"message": message, "type": kind, "param": param, "code": code}
    return msgspec.json.encode({"error": error})


def server_error(status: int, body: bytes, redact: Callable[[str], str]) -> bytes:
    """A server's error as the client gets it: without server keys, and in OpenAI's format."""
    body = redacted(body, redact)
    if b'"error":{' not in body and b'"error": {' not in body:
        said = error_line(body, redact) or f"The server answered {status}."
        return error_body(status, said)
    return body


def redacted(body: bytes, redact: Callable[[str], str]) -> bytes:
    """A body in any encoding without server keys; empty if truncated, perhaps within a key."""
    if len(body) >= KEPT_BODY:
        return b""
    shown = redact(body.decode("utf-8", "surrogateescape"))
    return shown.encode("utf-8", "surrogateescape")


class ClientError(Exception):
    """A request that is refused before any decision is made about it."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        headers: bytes = b"",
    ) -> None:
        super().__init__(message)
        self.status: Final = status
        self.body: Final = error_body(status, message, code, param)
        self.headers: Final = headers
        """Header lines that belong to the status."""


class NoServerYet(ClientError):
    """No model is known yet; the first server that becomes ready may bring it."""

    def __init__(self) -> None:
        super().__init__(
            503, "No server is ready.", code="no-server", headers=b"retry-after: 1\r\n"
        )


def method_error(allowed: Sequence[str]) -> ClientError:
    """Status 405: the path exists, with these methods."""
    message = f"Use {' or '.join(allowed)} for this path."
    return ClientError(405, message, headers=f"allow: {', '.join(allowed)}\r\n".encode())
