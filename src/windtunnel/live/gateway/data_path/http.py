"""HTTP/1.1 messages: which headers are passed on, how heads are written, and what is refused.

A message is parsed and then written anew: nothing that a client hides between headers and framing
reaches a server.
"""

import re
from typing import Final

from windtunnel.live.gateway.data_path.errors import ClientError

REASONS: Final = {
    200: b"OK",
    400: b"Bad Request",
    401: b"Unauthorized",
    403: b"Forbidden",
    404: b"Not Found",
    405: b"Method Not Allowed",
    408: b"Request Timeout",
    411: b"Length Required",
    413: b"Content Too Large",
    415: b"Unsupported Media Type",
    429: b"Too Many Requests",
    431: b"Request Header Fields Too Large",
    500: b"Internal Server Error",
    501: b"Not Implemented",
    502: b"Bad Gateway",
    503: b"Service Unavailable",
    504: b"Gateway Timeout",
}

HOP_BY_HOP: Final = frozenset(
    (
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
        b"host",
        b"content-length",
        b"expect",
    )
)
NOT_SENT: Final = HOP_BY_HOP | frozenset(
    (
        b"authorization",
        b"api-key",
        b"x-api-key",
        b"cookie",
        b"accept-encoding",
        b"content-type",
        b"traceparent",
        b"tracestate",
        b"x-request-id",
        b"x-data-parallel-rank",
        b"x-prefiller-host-port",
        b"x-gateway-destination-endpoint",
        b"x-gateway-destination-endpoint-subset",
        b"x-gateway-inference-objective",
        b"x-gateway-inference-fairness-id",
        b"x-gateway-model-name-rewrite",
        b"x-llm-d-inference-objective",
        b"x-llm-d-inference-fairness-id",
        b"x-llm-d-model-name-rewrite",
        b"x-llm-d-slo-ttft-ms",
        b"x-llm-d-slo-tpot-ms",
        b"x-encoder-hosts-ports",
        b"x-data-parallel-host-port",
        b"x-slo-class",
        b"x-windtunnel-explain",
        b"forwarded",
        b"x-forwarded-for",
        b"x-forwarded-host",
        b"x-forwarded-proto",
        b"x-real-ip",
    )
)
"""Client headers that are not sent to servers: of the connection, of identity, of routing."""

NOT_RETURNED: Final = HOP_BY_HOP | frozenset(
    (b"server", b"date", b"x-request-id", b"set-cookie", b"endpoint-load-metrics")
)

MOST_HEADERS: Final = 128
ABSOLUTE: Final = re.compile(rb"https?://[^/?#]+", re.IGNORECASE)
UNDERSCORE: Final = 95
"""As a number: searching for one byte costs a tenth of searching for a bytes object."""


class RequestHead:
    """The parsed head of a request."""

    __slots__ = ("headers", "http_10", "keep_alive", "method", "path")

    def __init__(
        self, method: bytes, path: bytes, headers: list[tuple[bytes, bytes]], *, http_10: bool
    ) -> None:
        self.method = method
        self.path = path
        self.headers = headers  # names in lower case
        self.http_10 = http_10
        self.keep_alive = not http_10

    def get(self, name: bytes) -> bytes | None:
        for key, value in self.headers:
            if key == name:
                return value
        return None

    def without_upgrade(self) -> bytes:
        """The head without its request to upgrade to another protocol."""
        lines = [b"%b %b HTTP/1.%d" % (self.method, self.path, 0 if self.http_10 else 1)]
        lines += [b"%b: %b" % (name, value) for name, value in self.headers if name != b"upgrade"]
        return b"\r\n".join(lines) + b"\r\n\r\n"


def origin_form(target: bytes) -> bytes:
    """The path and query of a request's target, which may be a full URL."""
    if target.startswith(b"/"):
        return target
    found = ABSOLUTE.match(target)
    if found is None:
        return target
    path = target[found.end() :]
    return path if path.startswith(b"/") else b"/" + path


def check_head(head: RequestHead) -> None:
    """Checks rules of HTTP that the parser does not enforce; raises ClientError."""
    hosts = 0
    for name, value in head.headers:
        if name == b"host":
            hosts += 1
        elif name == b"transfer-encoding" and value.strip().lower() != b"chunked":
            raise ClientError(501, "The only transfer encoding that is accepted is chunked.")
        elif UNDERSCORE in name:
            shown = name[:60].decode("ascii", "replace")
            raise ClientError(400, f"A header name with an underscore is not accepted: {shown!r}.")
    if hosts > 1 or (hosts == 0 and not head.http_10):
        raise ClientError(400, f"The request has {hosts} Host headers; it must have one.")


def named_by_connection(headers: list[tuple[bytes, bytes]]) -> list[bytes]:
    """The headers that `Connection` lists as hop-by-hop."""
    named: list[bytes] = []
    for name, value in headers:
        if name == b"connection":
            named += [part.strip().lower() for part in value.split(b",")]
    return named


def content_length(headers: list[tuple[bytes, bytes]]) -> int:
    """The length of a body; -1 if unknown."""
    return int(digits(headers, b"content-length") or b"-1")


def digits(headers: list[tuple[bytes, bytes]], wanted: bytes) -> bytes:
    """The value of a header that is a number of up to 15 digits; empty if there is none."""
    for name, value in headers:
        if name == wanted and value.isdigit() and len(value) < 16:
            return value
    return b""


def upstream_head(
    method: bytes, path: bytes, host: bytes, own: bytes, head: RequestHead, size: int
) -> bytes:
    """The head of the request to a server; `own` holds the gateway's header lines."""
    dropped = named_by_connection(head.headers)
    lines = [method, b" ", path, b" HTTP/1.1\r\nhost: ", host, b"\r\n", own]
    for name, value in head.headers:
        if name not in NOT_SENT and (not dropped or name not in dropped):
            lines.append(b"%b: %b\r\n" % (name, value))
    lines.append(b"content-type: application/json\r\ncontent-length: %d\r\n\r\n" % size)
    return b"".join(lines)


def response_head(
    status: int, headers: list[tuple[bytes, bytes]], own: bytes, framing: bytes
) -> bytes:
    """The head of a response to a client."""
    reason = REASONS.get(status, b"Status")
    dropped = named_by_connection(headers)
    lines = [b"HTTP/1.1 %d " % status, reason, b"\r\n", own]
    for name, value in headers:
        if name not in NOT_RETURNED and (not dropped or name not in dropped):
            lines.append(b"%b: %b\r\n" % (name, value))
    lines.append(framing)
    lines.append(b"\r\n")
    return b"".join(lines)
