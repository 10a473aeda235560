"""Why the gateway admitted, queued, rejected or evicted a request: a closed set of words."""

from enum import StrEnum


class Reason(StrEnum):
    """The reason for a decision; the decision also has the value `seen` and the `limit` on it."""

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
