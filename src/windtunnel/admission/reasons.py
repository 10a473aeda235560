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


class Reason(StrEnum):
    """Why a gateway admitted, queued, rejected or evicted a request.

    The decision also has the value `seen` and the `limit` on it.
    """

    ALWAYS = "always"  # no request is rejected here

    BUCKET_HOLDS = "bucket-holds"  # seen: prompt tokens; limit: tokens in the bucket
    BUCKET_SHORT = "bucket-short"  # as above
    BUCKET_TOO_SMALL = "bucket-too-small"  # limit: what the bucket holds when it is full

    PROTECTED = "protected"  # seen: the request's priority; limit: none are shed from here on
    LIGHT_LOAD = "light-load"  # seen: requests on the busiest server; limit: the threshold
    HEAVY_LOAD = "heavy-load"  # as above

    ROOM = "room"  # seen: saturation; limit: where it stops this request
    SATURATED = "saturated"  # as above
    IDLE_FLEET = "idle-fleet"  # as above, and nothing is in flight, so one may go
    NO_SERVERS = "no-servers"

    OVER_BUDGET = "over-budget"  # seen: the tenant's requests with this one; limit: its budget

    QUEUE_FULL = "queue-full"  # seen: queued with this one; limit: the most that may be
    BAND_FULL = "band-full"  # as above, within the request's priority
    OUTRANKED = "outranked"  # seen: its priority; limit: that of the request that took its place
    EXPIRED = "expired"  # seen: seconds queued; limit: the time to live
    MADE_WAY = "made-way"  # stopped in flight for a higher priority; seen, limit: saturation
