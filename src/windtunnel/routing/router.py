"""The router port: a request and the time in, a server and the reason for it out.

With disaggregation, a second router may choose the server that computes the prompt, where
`SplitDecider` says that it is another than the one that decodes.
"""

from typing import Final

from mypy_extensions import i64, mypyc_attr

from windtunnel.workload.request import Request

IN_TURN: Final = "next in turn"
AT_RANDOM: Final = "drawn at random"
FEWEST_IN_FLIGHT: Final = "fewest requests in flight"
FEWER_OF_TWO: Final = "fewer requests in flight of two drawn at random"
ONLY_SERVER: Final = "the only server"
SAME_SESSION: Final = "server of the session"
SAME_PREFIX: Final = "server of prompts with this prefix"
HASH_OWNER: Final = "owner of the hash"
HASH_SUCCESSOR: Final = "owner of the hash is at its load limit"
BEST_SCORE: Final = "highest score"
BEST_SCORE_FOR_PROMPT: Final = "highest score with what is known of this prompt"
BEST_SCORE_OF_FILTERED: Final = "highest score of the servers that pass the filters"
DRAWN_BY_SCORE: Final = "drawn at random by score"
CUSTOM_POLICY: Final = "chosen by a custom policy"
NO_SERVER_READY: Final = "no server is ready"

REASONS: Final = (
    IN_TURN,
    AT_RANDOM,
    FEWEST_IN_FLIGHT,
    FEWER_OF_TWO,
    ONLY_SERVER,
    SAME_SESSION,
    SAME_PREFIX,
    HASH_OWNER,
    HASH_SUCCESSOR,
    BEST_SCORE,
    BEST_SCORE_FOR_PROMPT,
    BEST_SCORE_OF_FILTERED,
    DRAWN_BY_SCORE,
    CUSTOM_POLICY,
    NO_SERVER_READY,
)
"""Every reason that a decision can have; `Router.explain` gives the numbers behind it."""


class Routed:
    """The request goes to this server."""

    def __init__(self, server: i64, reason: str) -> None:
        self.server: Final[i64] = server
        self.reason: Final = reason

    def __repr__(self) -> str:
        return f"Routed({self.server}, {self.reason!r})"


class NoServer:
    """No server can take the request now."""

    def __init__(self, reason: str) -> None:
        self.reason: Final = reason

    def __repr__(self) -> str:
        return f"NoServer({self.reason!r})"


_NONE_READY: Final = NoServer(NO_SERVER_READY)


@mypyc_attr(allow_interpreted_subclasses=True)
class Router:
    """Chooses among `candidates`, from the signals and caches that it was built with.

    A policy implements `pick`, and `scores` when it compares servers.
    """

    def __init__(self, candidates: list[int]) -> None:
        self.candidates = candidates
        self.reads_signals = False  # whether the driver must keep the signals fresh for it
        self.follows_changes = True
        """Whether it must be told of every change of candidates: what it remembers depends on the
        changes themselves. If not, the driver may tell it once, before the next choice."""

    def set_candidates(self, candidates: list[int]) -> None:
        """Servers have come or gone: from now on it chooses among these.

        A new server has a number that no server had before, and an entry in the signals.
        """
        self.candidates = candidates

    def gone(self, server: int) -> None:
        """This server will never be a candidate again: what was remembered of it can go."""

    def choose(self, request: Request, now_s: float) -> Routed | NoServer:
        """The server for a request that will be sent there now."""
        if not self.candidates:
            return _NONE_READY
        return self.pick(request, now_s)

    def explain(self, request: Request, now_s: float) -> list[tuple[int, float]]:
        """The score of every candidate, higher is better; empty if the policy does not compare.

        Call it before `choose`, which may change the scores.
        """
        return self.scores(request, now_s) if self.candidates else []

    def pick(self, request: Request, now_s: float) -> Routed:
        """One of the candidates, of which there is at least one."""
        raise NotImplementedError

    def scores(self, request: Request, now_s: float) -> list[tuple[int, float]]:  # noqa: ARG002
        return []


ALWAYS: Final = "always"
NEVER: Final = "never"
PREFIX_THRESHOLD: Final = "prefix-threshold"
CACHED: Final = "enough of the prompt is cached on the decode server"


class SplitDecision:
    """Whether a prompt is computed on another server than the one that decodes, and why."""

    def __init__(self, reason: str, *, split: bool) -> None:
        self.split: Final = split
        self.reason: Final = reason


class SplitDecider:
    """Splits always, never, or when more than `threshold` prompt tokens are not cached."""

    def __init__(self, kind: str, threshold: int) -> None:
        self._never: Final = kind == NEVER
        self._threshold: Final[i64] = threshold if kind == PREFIX_THRESHOLD else -1
        self._split: Final = SplitDecision(kind, split=True)
        self._whole: Final = SplitDecision(NEVER if kind == NEVER else CACHED, split=False)

    def decide(self, prompt_tokens: i64, cached_tokens: i64) -> SplitDecision:
        """`cached_tokens` of the prompt are cached on the server that will decode."""
        if self._never or prompt_tokens - cached_tokens <= self._threshold:
            return self._whole
        return self._split
