"""The closed sets of words in admission's answers."""

from enum import StrEnum


class TaskDenial(StrEnum):
    """Why a task may not start now."""

    NO_CAPACITY = "no_capacity"
    GROUP_CAP = "group_cap"
    BORROW_DEBT = "borrow_debt"
    SHUTDOWN = "shutdown"


class RequestDenial(StrEnum):
    """Why a request may not start now."""

    NO_CAPACITY = "no_capacity"
    COOLDOWN = "cooldown"
    REQUEST_BUDGET = "request_budget"
    TOKEN_BUDGET = "token_budget"  # noqa: S105 - tokens of text
    QUEUED_WAITERS_AHEAD = "queued_waiters_ahead"
    QUEUE_TIMEOUT = "queue_timeout"
    QUEUE_FULL = "queue_full"
    CANCELLED = "cancelled"
    SHUTDOWN = "shutdown"
    UNREGISTERED = "unregistered"
    TOO_LARGE = "too_large"


class ReleaseResult(StrEnum):
    """The result of a release; only `released` changes anything."""

    RELEASED = "released"
    DUPLICATE = "duplicate"
    UNKNOWN = "unknown_lease"
    STALE = "stale_lease"
    WRONG_GENERATION = "wrong_controller_generation"


class Outcome(StrEnum):
    """How an admitted request ended."""

    SUCCESS = "success"
    RATE_LIMITED = "rate_limited"
    PROVIDER_OVERLOADED = "provider_overloaded"
    PROVIDER_FAILURE = "provider_failure"
    PROVIDER_TIMEOUT = "provider_timeout"
    LOCAL_CANCELLED = "local_cancelled"
    LOCAL_TIMEOUT = "local_timeout"
    UNEXPECTED = "unexpected_exception"


class Domain(StrEnum):
    """The kind of call to a model."""

    CHAT = "chat"
    COMPLETION = "completion"
    EMBEDDING = "embedding"
    IMAGE = "image"
    HEALTHCHECK = "healthcheck"
