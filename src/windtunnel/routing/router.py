"""The router port: takes a request and the time, returns a server and the reason for it.

With disaggregation, a second router may choose the server that computes the prompt, if
`SplitDecider` decides that this is not the decode server.
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
"""All reasons that a decision can have; `Router.explain` gives the scores behind it."""


class Routed:
    """A decision to send the request to this server."""

    def __init__(self, server: i64, reason: str) -> None:
        self.server: Final[i64] = server
        self.reason: Final = reason

    def __repr__(self) -> str:
        return f"Routed({self.server}, {self.reason!r})"


class NoServer:
    """A decision that no server can take the request now."""

    def __init__(self, reason: str) -> None:
        self.reason: Final = reason

    def __repr__(self) -> str:
        return f"NoServer({self.reason!r})"


_NONE_READY: Final = NoServer(NO_SERVER_READY)


@mypyc_attr(allow_interpreted_subclasses=True)
class Router:
    """Chooses among `candidates`, using the signals and caches that it was built with.

    A policy implements `pick`, and `scores` if it compares servers.
    """

    def __init__(self, candidates: list[int]) -> None:
        self.candidates = candidates
        self.reads_signals = False  # whether the driver must keep the signals fresh for it
        self.follows_changes = True
        """Whether it must see every change of candidates, because its state depends on the changes
        themselves. If not, the driver may call `set_candidates` once, before the next choice."""

    def set_candidates(self, candidates: list[int]) -> None:
        """Replaces the candidates, after servers were added or removed.

        A new server has a number that no server had before, and an entry in the signals.
        """
        self.candidates = candidates

    def gone(self, server: int) -> None:
        """Drops the state of a server that will never be a candidate again."""

    def choose(self, request: Request, now_s: float) -> Routed | NoServer:
        """Chooses the server for a request that will be sent there now."""
        if not self.candidates:
            return _NONE_READY
        return self.pick(request, now_s)

    def explain(self, request: Request, now_s: float) -> list[tuple[int, float]]:
        """The score of every candidate, higher is better; empty if the policy does not compare.

        It must be called before `choose`, which may change the scores.
        """
        return self.scores(request, now_s) if self.candidates else []

    def pick(self, request: Request, now_s: float) -> Routed:
        """Chooses one of the candidates, of which there is at least one."""
        raise NotImplementedError

    def scores(self, request: Request, now_s: float) -> list[tuple[int, float]]:  # noqa: ARG002
        return []


ALWAYS: Final = "always"
NEVER: Final = "never"
PREFIX_THRESHOLD: Final = "prefix-threshold"
CACHED: Final = "enough of the prompt is cached on the decode server"


class SplitDecision:
    """Whether a prompt is computed on another server than the decode server, and why."""

    def __init__(self, reason: str, *, split: bool) -> None:
        self.split: Final = split
        self.reason: Final = reason


class SplitDecider:
    """Splits always, never, or if more than `threshold` prompt tokens are not cached."""

    def __init__(self, kind: str, threshold: int) -> None:
        self._never: Final = kind == NEVER
        self._threshold: Final[i64] = threshold if kind == PREFIX_THRESHOLD else -1
        self._split: Final = SplitDecision(kind, split=True)
        self._whole: Final = SplitDecision(NEVER if kind == NEVER else CACHED, split=False)

    def decide(self, prompt_tokens: i64, cached_tokens: i64) -> SplitDecision:
        """Decides for a prompt of which the decode server has `cached_tokens` cached."""
        if self._never or prompt_tokens - cached_tokens <= self._threshold:
            return self._whole
        return self._split
