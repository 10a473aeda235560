"""What a gateway says when it cannot answer: OpenAI's error objects, with the right status."""

from typing import Final

import msgspec

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
    """The body of an answer with such a status."""
    kind = TYPES.get(status, "server_error")
    error = {"message": message, "type": kind, "param": param, "code": code}
    return msgspec.json.encode({"error": error})


class ClientError(Exception):
    """A request that is refused before anything is decided about it."""

    def __init__(
        self, status: int, message: str, *, code: str | None = None, param: str | None = None
    ) -> None:
        super().__init__(message)
        self.status: Final = status
        self.body: Final = error_body(status, message, code, param)
