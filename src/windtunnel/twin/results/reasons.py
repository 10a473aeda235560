"""Why requests ended as they did, in a few sentences that can be counted.

A reason includes its numbers ("needs 12 KV blocks, the server has 9"), so that a person can act on
it. For counting, the numbers are removed ("needs N KV blocks, the server has N"), which leaves one
of a few fixed sentences.
"""

from typing import Final

from windtunnel.core.vocabulary import ENCODING, general
from windtunnel.workload.request import BACKING_OFF, UNPLACED, UNSET, Request

MOST_REASONS: Final = 64
"""The most different reasons per outcome; further ones share one name."""
OTHER: Final = "other reasons"
NOWHERE: Final = {UNPLACED: "before a server was ready", BACKING_OFF: "before the next attempt"}
"""The stage of a request outside gateway, encoder and servers, by its place."""
MOST_KNOWN: Final = 256
"""Sentences cached with their general form, so that most are processed once."""


def stage_of(request: Request) -> str:
    """The stage of a request, in words that follow "the run ended" or "the client left"."""
    if request.place in NOWHERE:
        return NOWHERE[request.place]
    if request.first_token_s != UNSET:
        return "during decode"
    stayed = request.prefilled_s != UNSET and request.server == request.prefill_server
    if stayed or request.transfer_end_s != UNSET:
        return "before the first token on the decode server"
    if request.transfer_start_s != UNSET:
        return "during the KV transfer"
    if request.prefilled_s != UNSET:
        return "before the decode server had room for its KV cache"
    if request.scheduled_s != UNSET:
        return "during prefill"
    if request.server >= 0:
        waits = request.fetching_s == UNSET
        return "before prefill began" if waits else "during the load of its KV cache"
    return f"during {ENCODING}" if request.admitted_s != UNSET else "in the queue of the gateway"


def reason_of(request: Request, outcome: str) -> str:
    """Why it ended as it did; empty for a request that went normally."""
    if outcome == "unfinished":
        return f"the run ended {stage_of(request)}"
    return request.reason


class ReasonCounts:
    """How often each reason was given, by outcome."""

    def __init__(self, outcomes: tuple[str, ...]) -> None:
        self.counts: Final[dict[str, dict[str, int]]] = {outcome: {} for outcome in outcomes}
        self._known: Final[dict[str, str]] = {}

    def add(self, outcome: str, reason: str, times: int = 1) -> None:
        counts = self.counts[outcome]
        found = self._known.get(reason)
        if found is None:
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            found = general(reason)
            self._known[reason] = found
        reason = found
        if reason not in counts and len(counts) >= MOST_REASONS:
            reason = OTHER
        counts[reason] = counts.get(reason, 0) + times
