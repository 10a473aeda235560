"""Speculative decoding: how many drafted tokens a server verifies in a step, and which it accepts.

Whether drafts are right depends on the request and its position in the answer, not on a sequence of
draws: the same request accepts the same drafts whatever the schedule, the server and the router.
"""

from typing import Final

from mypy_extensions import i64

from windtunnel.core.random import Stream
from windtunnel.workload.request import Request

PRIME: Final = 2147483647  # 2**31 - 1: products of two remainders fit into 64 bits
STRIDE: Final = 48271


def _mixed(value: i64) -> i64:
    """The fifth power modulo PRIME, a permutation, since 5 does not divide PRIME - 1."""
    square = value * value % PRIME
    return square * square % PRIME * value % PRIME


class DraftLimits:
    """How many tokens a server drafts, and how often they are right."""

    def __init__(
        self,
        tokens: int,
        acceptance: list[float],  # by position: the share of drafts accepted up to there
        *,
        keeps_kv: bool,  # the drafter has its own KV, which needs slots ahead
        settles_late: bool,  # the next step is planned before the drafts of this one are verified
        seed: int = 0,
        stream: str = "speculation",
    ) -> None:
        assert len(acceptance) == tokens
        self.tokens: Final[i64] = tokens
        self.acceptance: Final = acceptance
        self.lookahead: Final[i64] = tokens if keeps_kv else 0
        self.settles_late: Final = settles_late
        self.most_ahead: Final[i64] = tokens + self.lookahead + (tokens if settles_late else 0)
        draws = Stream(seed, stream)
        self._first: Final[i64] = draws.integer(1, 2**31 - 2)
        self._second: Final[i64] = draws.integer(1, 2**31 - 2)

    def __repr__(self) -> str:
        return f"DraftLimits({self.tokens}, {self.acceptance}, lookahead={self.lookahead})"

    def accepted(self, request: Request, drafted: i64) -> i64:
        """How many of the tokens drafted at this position of the answer are right."""
        place = request.computed - request.prompt_tokens
        drawn = _mixed((_mixed((request.id + self._first) % PRIME) + place * STRIDE) % PRIME)
        share = float(_mixed((drawn + self._second) % PRIME)) / float(PRIME)
        right: i64 = 0
        while right < drafted and share < self.acceptance[right]:
            right += 1
        return right


class Drafts:
    """Counts of one server's drafted and accepted tokens."""

    def __init__(self, limits: DraftLimits) -> None:
        self.limits: Final = limits
        self.steps: i64 = 0  # request steps: each verified one draft, however long
        self.drafted: i64 = 0  # tokens
        self.accepted: i64 = 0
        self.gained: i64 = 0  # answer tokens beyond one per draft; an answer may end first

    def advance(self, request: Request, want: i64) -> i64:
        """Verifies a draft; returns how many tokens the request gains."""
        limits = self.limits
        right = limits.accepted(request, want - 1)
        self.steps += 1
        self.drafted += want - 1
        self.accepted += right
        more = min(1 + right, request.last - request.computed)
        self.gained += more - 1
        request.unsettled = want - more if limits.settles_late else 0
        return more
