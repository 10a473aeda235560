"""A request: what arrives, what became of it, and the notes of the server that has it."""

from typing import Any, Final

from mypy_extensions import i64, u8

from windtunnel.core.loop import Entry

UNSET: Final = -1.0
"""A time that has not come yet."""

NEVER: Final = float("inf")

MOST_TURNS: Final = 10_000
MOST_TRIES: Final = 100
"""Lost tries of one request that are kept apart; the last stands for all that follow it."""
MOST_PAUSES: Final = 200
"""Beginnings and ends of waits after preemptions that are kept of one request."""
DEFAULT_TENANT: Final = "default"
DEFAULT_SLO: Final = "standard"
"""Tenant and class of service of a request that is given none."""

# Where a request is on the server that has it.
AWAY: Final = 0
WAITING: Final = 1
RUNNING: Final = 2
ENDING: Final = 3  # preempted when only its last token was still on its way
RESERVED: Final = 4  # its KV is being moved here
TRANSFERRED: Final = 5  # that KV is here, and it waits for a slot
FETCHING: Final = 7  # the start of its prompt comes from a slower tier of memory
KEPT: Final = 6  # it has ended, and its blocks are held until their KV has been moved away
CLOSING: Final = 8  # it holds nothing any more, and ends when its last step does
WANTING: Final = 9  # it waits for blocks, for KV that was computed elsewhere

# Where a request is in a run, beside the servers.
AT_GATEWAY: Final = 1  # not decided, or queued there
ENCODING: Final = 2
ON_THE_WAY: Final = 3  # to a server
SPLIT: Final = 4  # its prompt is computed on another server, or its KV moves
AT_SERVER: Final = 5
ENDED: Final = 6
UNPLACED: Final = 7  # admitted while no server was ready
BACKING_OFF: Final = 8  # its server answered 429, and it will be sent again


class PrefixChain:
    """The start of a prompt that others may share, as segments with identity and no token values.

    Segment i is known by keys[i] and ends at token ends[i]. A key stands for its segment and all
    before it: no two chains have one key after different starts. Two prompts share their first n
    segments when their first n keys are equal. A group's system prompt is one segment; a trace with
    hashed blocks is many. What follows the last segment belongs to the request alone.
    """

    def __init__(self, keys: list[int], ends: list[int]) -> None:
        self.keys: Final[list[Any]] = keys  # numbers, looked up as the objects that they are
        self.ends: Final = ends

    def __repr__(self) -> str:
        return f"PrefixChain({self.keys}, {self.ends})"


class LostTry:
    """A try to serve a request on a server that did not finish it."""

    def __init__(self, request: "Request", server: int, ended_s: float, reason: str) -> None:
        self.server: Final = server  # whose end, or refusal, it was
        self.routed_s: Final = request.routed_s
        self.scheduled_s: Final = request.scheduled_s
        self.first_token_s: Final = request.first_token_s
        self.ended_s: float = ended_s
        self.reason: Final = reason


class Request:
    """One prompt and its answer. A plain record, changed by the component that has it."""

    # As class attributes these cost nothing where a request is made; most are never changed.
    # The order of ends is by these two: they are first, beside what is read of any object.
    finish_clock: i64 = -1  # the decode clock at which it ends, while decoding; else -1
    admission: i64 = -1  # position in the running order of its server

    # A byte each, and eight together: 512 bytes are the most that Python allocates fast.
    place: u8 = 0  # in the run: one of AT_GATEWAY and so on
    stage: u8 = AWAY  # on the server that has it
    keeps_blocks: bool = False  # whether its blocks stay held when it ends, to be moved away
    followed: bool = False  # whether the traffic wants to hear of its end
    dropped: bool = False
    cancelled: bool = False
    sharing: bool = True  # False from the first shared block that it holds a copy of its own
    in_slot: bool = False  # whether it keeps its adapter on the accelerator

    slo: i64 = 0  # its class of service and its tenant, by number in the traffic's lists
    tenant: i64 = 0
    model: i64 = 0  # the model that it is for, by number in the traffic's list
    session: i64 = -1  # the conversation that it is a turn of; -1: none
    turn: i64 = 0
    deadline_s: float = NEVER  # its client leaves then
    media_tokens: i64 = 0  # tokens of the prompt that an encoder must make first
    adapter: i64 = -1  # LoRA adapter by number; -1: the base model
    answer_key: i64 = -1  # names its output as a segment of prompts to come; -1: none
    parent: "Request | None" = None  # for the prefill half of a split request: the whole
    server: i64 = -1
    prefill_server: i64 = -1  # where the prompt was computed, if not there
    admitted_s: float = UNSET
    encoded_s: float = UNSET  # its media were tokens then, where an encoder made them
    lost_tries: list[LostTry] | None = None  # before the one that these times are of
    restarted_s: float = UNSET  # the last of those ended
    routed_s: float = UNSET  # to a server, the prefill half where the request is split
    pauses: list[float] | None = None  # by turns: preempted at, and running again at
    sent_s: float = UNSET  # to the server that has it: what that server does counts from here
    scheduled_s: float = UNSET
    prefilled_s: float = UNSET  # the prompt was computed there
    transfer_start_s: float = UNSET  # of its KV, from the prefill server to the other
    transfer_end_s: float = UNSET
    first_token_s: float = UNSET
    finished_s: float = UNSET
    prefix_hit_tokens: i64 = 0
    preemptions: i64 = 0
    reason: str = ""
    redirects: i64 = 0  # how often a server that was to go sent it back to the router
    retries: i64 = 0  # how often it began anew because a server was lost with it

    # The twin's own notes: where it is, what is planned for it, and when its client leaves.
    planned: Entry | None = None
    alarm: Entry | None = None

    # The server's own notes while it has the request.
    ahead: "Request | None" = None  # neighbours in the line where it waits or runs
    behind: "Request | None" = None
    order: i64 = 0  # in which requests came to the server
    computed: i64 = 0  # tokens whose KV is scheduled to exist, while not decoding
    offset: i64 = 0  # computed minus the server's decode clock, while decoding
    target: i64 = 0  # tokens to prefill: prompt, and what preemption has taken back
    last: i64 = 0  # the request ends in the step that brings `computed` here
    shared_blocks: i64 = 0  # full blocks of the prompt that others may share
    pinned_blocks: i64 = 0  # how many of them this request holds in the shared chains
    window_blocks: i64 = 0  # held for layers that keep a window of it
    spare_blocks: i64 = 0  # held ahead of its tokens, for drafts
    unsettled: i64 = 0  # tokens of the step under way that may prove wrong drafts
    unheld_blocks: i64 = 0  # of its prompt, when all were cached and it did without them
    fetching_s: float = UNSET  # since when KV comes from a slower tier for it, while it does
    token_s: float = UNSET  # its latest token, where the next does not follow a step later

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
        self.id: i64 = id
        self.arrived_s = arrived_s
        self.prompt_tokens: i64 = prompt_tokens
        self.output_tokens: i64 = output_tokens
        self.priority: i64 = priority
        self.source: i64 = source
        self.prefix = prefix

    def lose_try(self, server: int, ended_s: float, reason: str) -> None:
        """Keeps what is known of a try that is over, before the next."""
        self.restarted_s = ended_s
        if self.lost_tries is None:
            self.lost_tries = []
        if len(self.lost_tries) < MOST_TRIES:
            self.lost_tries.append(LostTry(self, server, ended_s, reason))
        else:
            self.lost_tries[-1].ended_s = ended_s

    def pause(self, now_s: float) -> None:
        """It was preempted."""
        if self.pauses is None:
            self.pauses = []
        if len(self.pauses) < MOST_PAUSES and len(self.pauses) % 2 == 0:
            self.pauses.append(now_s)

    def resume(self, now_s: float) -> None:
        """It runs again."""
        if self.pauses is not None and len(self.pauses) % 2:
            self.pauses.append(now_s)

    def again(self) -> "Request":
        """The same request, for another server to begin with from its prompt.

        A record of its own: the server that had it may still have notes in this one.
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
