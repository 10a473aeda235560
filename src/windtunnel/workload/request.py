"""A request: its properties, its progress through a run, and the bookkeeping of its server."""

from typing import Any, Final

from mypy_extensions import i64, u8

from windtunnel.core.loop import Entry

UNSET: Final = -1.0
"""A time that is not known yet."""

NEVER: Final = float("inf")

MOST_TURNS: Final = 10_000
MOST_TRIES: Final = 100
"""Lost tries kept per request: the first ones, and the last."""
MOST_PAUSES: Final = 200
"""Starts and ends of preemption pauses kept per request."""
DEFAULT_TENANT: Final = "default"
DEFAULT_SLO: Final = "standard"
"""Tenant and class of service of a request that names none."""

# State of a request on its server.
AWAY: Final = 0
WAITING: Final = 1
RUNNING: Final = 2
ENDING: Final = 3  # preempted while only its last token was outstanding
RESERVED: Final = 4  # its KV is being moved here
TRANSFERRED: Final = 5  # that KV is here, and it waits for a slot
FETCHING: Final = 7  # the start of its prompt comes from a slower tier of memory
KEPT: Final = 6  # it has ended, and its blocks are held until their KV has been moved away
CLOSING: Final = 8  # it holds no blocks, and ends with its last step
WANTING: Final = 9  # it waits for blocks, for KV that was computed elsewhere

# Where a request is in a run.
AT_GATEWAY: Final = 1  # not decided, or queued there
ENCODING: Final = 2
ON_THE_WAY: Final = 3  # to a server
SPLIT: Final = 4  # its prompt is computed on another server, or its KV moves
AT_SERVER: Final = 5
ENDED: Final = 6
UNPLACED: Final = 7  # admitted while no server was ready
BACKING_OFF: Final = 8  # its server answered 429, and it will be sent again


class PrefixChain:
    """The shareable start of a prompt, as segments with keys instead of token values.

    Segment i has the key keys[i] and ends at token ends[i]. A key identifies its segment and all
    segments before it: no two chains have the same key after different starts. Two prompts share
    their first n segments if their first n keys are equal. A group's system prompt is one segment;
    a trace with hashed blocks has many. Tokens after the last segment belong to this request alone.
    """

    def __init__(self, keys: list[int], ends: list[int]) -> None:
        self.keys: Final[list[Any]] = keys  # numbers, kept as objects for look-ups
        self.ends: Final = ends

    def __repr__(self) -> str:
        return f"PrefixChain({self.keys}, {self.ends})"


class LostTry:
    """An attempt to serve a request on a server that did not finish it."""

    def __init__(self, request: "Request", server: int, ended_s: float, reason: str) -> None:
        self.server: Final = server  # the server that failed or rejected it
        self.routed_s: Final = request.routed_s
        self.scheduled_s: Final = request.scheduled_s
        self.first_token_s: Final = request.first_token_s
        self.ended_s: Final = ended_s
        self.reason: Final = reason


class Request:
    """One prompt and its answer: a plain record, changed by whichever component holds it."""

    # Slots: plain Python would keep more than 30 attributes in a dict of their own, which is slow.
    # Ends are ordered by these two, so they come first, in the cache line of the object's header.
    finish_clock: i64  # the decode clock at which it ends, while decoding; else -1
    admission: i64  # position in the running order of its server

    # Eight fields of one byte: Python's fast allocator serves objects of up to 512 bytes.
    place: u8  # in the run: one of AT_GATEWAY and so on
    stage: u8  # on the server that has it
    keeps_blocks: bool  # whether its blocks stay held when it ends, to be moved away
    followed: bool  # whether its source is notified of its end
    dropped: bool
    cancelled: bool
    sharing: bool  # False once it holds its own copy of a shared block
    in_slot: bool  # whether it keeps its adapter on the accelerator

    id: i64
    arrived_s: float
    prompt_tokens: i64
    output_tokens: i64
    priority: i64
    source: i64
    prefix: PrefixChain | None
    slo: i64  # its class of service and its tenant, by number in the traffic's lists
    tenant: i64
    model: i64  # the model that it is for, by number in the traffic's list
    session: i64  # the conversation that it is a turn of; -1: none
    turn: i64
    deadline_s: float  # when its client gives up
    media_tokens: i64  # prompt tokens that an encoder must compute first
    adapter: i64  # LoRA adapter by number; -1: the base model
    answer_key: i64  # key of its output as a segment of later prompts; -1: none
    parent: "Request | None"  # for the prefill half of a split request: the whole
    server: i64
    prefill_server: i64  # where the prompt was computed, if not there
    admitted_s: float
    encoded_s: float  # when its media were encoded, if an encoder did so
    lost_tries: list[LostTry] | None  # earlier attempts; times are of the current one
    restarted_s: float  # when the latest lost attempt ended
    routed_s: float  # to a server, the prefill half where the request is split
    pauses: list[float] | None  # alternating: preempted at, resumed at
    sent_s: float  # to its current server: that server's times count from here
    scheduled_s: float
    prefilled_s: float  # the prompt was computed there
    transfer_start_s: float  # of its KV, from the prefill server to the other
    transfer_end_s: float
    first_token_s: float
    finished_s: float
    prefix_hit_tokens: i64
    preemptions: i64
    reason: str
    redirects: i64  # times that a draining server sent it back to the router
    retries: i64  # times that it restarted because its server was lost

    # Bookkeeping of the twin: the next planned event, and the timer of the client's deadline.
    planned: Entry | None
    alarm: Entry | None

    # Bookkeeping of the server that has the request.
    ahead: "Request | None"  # neighbours in the queue or running list
    behind: "Request | None"
    order: i64  # order of arrival at the server
    computed: i64  # tokens whose KV is scheduled to exist, while not decoding
    offset: i64  # computed minus the server's decode clock, while decoding
    target: i64  # tokens to prefill: the prompt, and after a preemption the output so far
    last: i64  # the request ends in the step that brings `computed` here
    shared_blocks: i64  # full blocks of the prompt that others may share
    pinned_blocks: i64  # how many of them this request holds in the shared chains
    window_blocks: i64  # held for sliding-window layers
    spare_blocks: i64  # held ahead of its tokens, for speculative drafts
    unsettled: i64  # draft tokens of the running step that may be rejected
    unheld_blocks: i64  # blocks of a fully cached prompt that it did not need to hold
    fetching_s: float  # start of the current KV fetch from a slower tier
    token_s: float  # time of its latest token, if the next is not due one step later

    __slots__ = tuple(__annotations__)

    def __init__(
        self,
        id: int,  # noqa: A002 - it is the request's id
        arrived_s: float,
        prompt_tokens: int,
        output_tokens: int,
        priority: int = 0,
        source: int = 0,
        prefix: PrefixChain | None = None,
    ) -> None:
        self.id = id
        self.arrived_s = arrived_s
        self.prompt_tokens = prompt_tokens
        self.output_tokens = output_tokens
        self.priority = priority
        self.source = source
        self.prefix = prefix
        self.finish_clock = self.admission = -1
        self.place = 0
        self.stage = AWAY
        self.keeps_blocks = self.followed = self.dropped = self.cancelled = self.in_slot = False
        self.sharing = True
        self.slo = self.tenant = self.model = self.turn = self.media_tokens = 0
        self.session = self.adapter = self.answer_key = -1
        self.deadline_s = NEVER
        self.parent = self.ahead = self.behind = None
        self.server = self.prefill_server = -1
        self.lost_tries = None
        self.pauses = None
        self.admitted_s = self.encoded_s = self.restarted_s = self.routed_s = self.sent_s = UNSET
        self.scheduled_s = self.prefilled_s = self.first_token_s = self.finished_s = UNSET
        self.transfer_start_s = self.transfer_end_s = self.fetching_s = self.token_s = UNSET
        self.prefix_hit_tokens = self.preemptions = self.redirects = self.retries = 0
        self.reason = ""
        self.planned = self.alarm = None
        self.order = self.computed = self.offset = self.target = self.last = 0
        self.shared_blocks = self.pinned_blocks = self.window_blocks = self.spare_blocks = 0
        self.unsettled = self.unheld_blocks = 0

    def lose_try(self, server: int, ended_s: float, reason: str) -> None:
        """Records an attempt that is over, before the next one starts."""
        self.restarted_s = ended_s
        if self.lost_tries is None:
            self.lost_tries = []
        if len(self.lost_tries) < MOST_TRIES:
            self.lost_tries.append(LostTry(self, server, ended_s, reason))
        else:
            self.lost_tries[-1] = LostTry(self, server, ended_s, reason)

    def pause(self, now_s: float) -> None:
        """Records a preemption."""
        if self.pauses is None:
            self.pauses = []
        if len(self.pauses) < MOST_PAUSES and len(self.pauses) % 2 == 0:
            self.pauses.append(now_s)

    def resume(self, now_s: float) -> None:
        """Records that the request runs again after a preemption."""
        if self.pauses is not None and len(self.pauses) % 2:
            self.pauses.append(now_s)

    def again(self) -> "Request":
        """A copy of the request, to be started from its prompt on another server.

        It is a separate record because the previous server may still have bookkeeping in this one.
        """
        other = Request(
            self.id,
            self.arrived_s,
            self.prompt_tokens,
            self.output_tokens,
            self.priority,
            self.source,
            self.prefix,
        )
        other.slo = self.slo
        other.tenant = self.tenant
        other.model = self.model
        other.session = self.session
        other.turn = self.turn
        other.deadline_s = self.deadline_s
        other.media_tokens = self.media_tokens
        other.adapter = self.adapter
        other.answer_key = self.answer_key
        other.followed = self.followed
        other.admitted_s = self.admitted_s
        other.encoded_s = self.encoded_s
        other.lost_tries = self.lost_tries
        other.restarted_s = self.restarted_s
        other.preemptions = self.preemptions
        other.reason = self.reason
        other.redirects = self.redirects
        other.retries = self.retries
        return other
