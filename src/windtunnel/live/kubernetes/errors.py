"""The exceptions of a request to the API server.

KubernetesError
  NoAnswer            no complete response: a write may or may not have happened
  NoCredentials       nothing was sent, since the token could not be read
  UnreadableAnswer    a successful response of an unexpected type; a write has happened
  TooLarge            the response is larger than allowed
  NotLeader           a fenced write was not sent: this process may no longer be the leader
  ApiError            an error response with a Status: `code`, `reason`, `message`, `retry_after_s`
    Unauthorized      401
    Forbidden         403: RBAC, a quota, or admission
    NotFound          404
    Conflict          409: a stale resourceVersion, a precondition, another manager's field
      AlreadyExists   409 on create
    Gone              410: this resourceVersion or continue token is compacted
    Invalid           400, 413, 422: the object is not acceptable
    TooManyRequests   429: load is shed, or a disruption budget refuses an eviction
    ServerError       5xx and any other status: a write may have happened
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from windtunnel.core.errors import WindtunnelError, one_line

LONGEST_MESSAGE = 2_000
TOO_LARGE_VERSION = "ResourceVersionTooLarge"
"""The cause given when a resourceVersion is newer than the server's: it lags, or was restored."""


class KubernetesError(WindtunnelError):
    """A request to the API server failed."""


class NoAnswer(KubernetesError):
    """No complete response arrived. A read can be repeated; the outcome of a write is unknown."""


class NoCredentials(KubernetesError):
    """Nothing was sent: the token file or the credential plugin failed, perhaps temporarily."""


class UnreadableAnswer(KubernetesError):
    """A successful response that is not of the requested type."""


class NotLeader(KubernetesError):
    """A write was not sent: this process's lease may have passed to another."""


class StatusCause(msgspec.Struct, frozen=True):
    """One cause in a Status: an invalid field, or a manager that owns a field."""

    reason: str = ""
    message: str = ""
    field: str = ""


class _Details(msgspec.Struct, frozen=True, rename="camel"):
    causes: list[StatusCause] = []
    retry_after_seconds: int = 0


class ApiStatus(msgspec.Struct, frozen=True):
    """The Status that the API server returns instead of an object."""

    message: str = ""
    reason: str = ""
    code: int = 0
    details: _Details | None = None


class ApiError(KubernetesError):
    """The API server answered with an error."""

    def __init__(self, request: str, code: int, status: ApiStatus, retry_after_s: float) -> None:
        message = one_line(status.message, LONGEST_MESSAGE) or f"HTTP status {code}"
        super().__init__(message, where=request)
        self.code: Final = code
        self.reason: Final = status.reason
        self.message: Final = message
        self.causes: Final[Sequence[StatusCause]] = status.details.causes if status.details else ()
        self.retry_after_s: Final = retry_after_s

    def __reduce__(self) -> tuple[Any, ...]:
        details = _Details(causes=list(self.causes))
        status = ApiStatus(self.message, self.reason, self.code, details)
        return type(self), (self.where, self.code, status, self.retry_after_s)

    @property
    def version_too_large(self) -> bool:
        """Whether the server has not seen the resourceVersion yet, or never will."""
        return any(cause.reason == TOO_LARGE_VERSION for cause in self.causes) or (
            "Too large resource version" in self.message
        )


class Unauthorized(ApiError):
    """The credentials are not accepted."""


class Forbidden(ApiError):
    """Refused by RBAC, a quota or admission."""


class NotFound(ApiError):
    """The object, or its kind, does not exist."""


class Conflict(ApiError):
    """The object has changed, has another uid, or another manager owns an applied field."""


class AlreadyExists(Conflict):
    """The name of an object to create is taken."""


class TooLarge(KubernetesError):
    """A response is larger than allowed."""


class Gone(ApiError):
    """The resourceVersion or continue token is too old: list again."""


class Invalid(ApiError):
    """The API server does not accept this object; repeating the request will fail again."""


class TooManyRequests(ApiError):
    """Load is shed, or a disruption budget allows no eviction now. Nothing has happened."""


class ServerError(ApiError):
    """The server failed; a write may have happened."""


_CLASSES: Final[Mapping[int, type[ApiError]]] = {
    400: Invalid,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    413: Invalid,
    422: Invalid,
    429: TooManyRequests,
}


def error_of(request: str, code: int, body: bytes, retry_after: str = "") -> ApiError:
    """The exception for an unsuccessful response; `request` is its method and path."""
    try:
        status = msgspec.json.decode(body, type=ApiStatus)
    except (msgspec.DecodeError, UnicodeDecodeError):
        status = ApiStatus(message=body[:LONGEST_MESSAGE].decode(errors="replace").strip())
    seconds = 0.0
    if retry_after.isdigit():
        seconds = float(retry_after[:6])
    elif status.details is not None:
        seconds = float(max(status.details.retry_after_seconds, 0))
    if not 400 <= code < 600:
        code = status.code or 500
    kind = _CLASSES.get(code, ServerError)
    if kind is Conflict and status.reason == "AlreadyExists":
        kind = AlreadyExists
    return kind(request, code, status, seconds)
