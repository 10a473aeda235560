"""Why requests ended as they did, in a few sentences that can be counted.

A reason includes its numbers ("needs 12 KV blocks, the server has 9"), so that a person can act on
it. Reasons that differ in their numbers alone are counted together, and the one with the largest
numbers stands for them.
"""

import re
from typing import Final

from windtunnel.core.vocabulary import ENCODING, NUMBERS, general
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
        self._counts: Final[dict[str, dict[str, int]]] = {outcome: {} for outcome in outcomes}
        self._largest: Final[dict[str, dict[str, str]]] = {outcome: {} for outcome in outcomes}
        self._known: Final[dict[str, dict[str, str]]] = {outcome: {} for outcome in outcomes}

    def add(self, outcome: str, reason: str, times: int = 1) -> None:
        counts, known = self._counts[outcome], self._known[outcome]
        found = known.get(reason)
        if found is None:
            found = general(reason)
            if found not in counts and len(counts) >= MOST_REASONS:
                found = OTHER
            else:
                largest = self._largest[outcome]
                largest[found] = max(largest.get(found, reason), reason, key=_by_numbers)
            if len(known) >= MOST_KNOWN:
                known.clear()
            known[reason] = found
        counts[found] = counts.get(found, 0) + times

    def counts(self) -> dict[str, dict[str, int]]:
        """The counts by outcome and reason, each reason with its largest numbers."""
        return {
            outcome: {
                self._largest[outcome].get(reason, reason): count
                for reason, count in counts.items()
            }
            for outcome, counts in self._counts.items()
        }


def _by_numbers(reason: str) -> tuple[list[float], str]:
    numbers = []
    for number in NUMBERS.findall(reason):
        whole, _, rest = re.sub("[,_]", "", number).partition(".")
        numbers.append(float(f"{whole}.{rest.replace('.', '')}"))
    return numbers, reason
