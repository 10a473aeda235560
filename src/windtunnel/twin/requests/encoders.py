"""The encode stage: images and sound become tokens on separate machines, one request at a time."""

from typing import Final

from mypy_extensions import i64

from windtunnel.core.statistics.distribution import Distribution
from windtunnel.workload.request import Request


class Encoders:
    """Identical encoders with one first-come-first-served queue."""

    def __init__(self, count: int, fixed_s: float, per_token_s: float) -> None:
        self._count: Final = count
        self._fixed_s: Final = fixed_s
        self._per_token_s: Final = per_token_s
        self._queued: Final[dict[int, tuple[Request, float]]] = {}  # by id: request, queued since
        self._begun_s: Final[dict[int, float]] = {}  # by id, of requests being encoded
        self._busy_s = 0.0  # of encodings that have ended
        self.taken: i64 = 0
        self.tokens: i64 = 0
        self.wait: Final = Distribution()  # seconds until an encoder was free

    def take(self, request: Request, now_s: float) -> None:
        """Queues a request; `next` returns it when an encoder is free."""
        self.taken += 1
        self.tokens += request.media_tokens
        self._queued[request.id] = (request, now_s)

    def next(self, now_s: float) -> tuple[Request, float] | None:
        """The request that an encoder begins now, and when it will be done; None when none can
        begin."""
        if not self._queued or len(self._begun_s) == self._count:
            return None
        request, since_s = self._queued.pop(next(iter(self._queued)))
        self._begun_s[request.id] = now_s
        self.wait.add(now_s - since_s)
        return request, now_s + self._fixed_s + self._per_token_s * float(request.media_tokens)

    def leave(self, request: Request, now_s: float) -> None:
        """Frees the encoder or the queue position of a request that is encoded or whose client
        left."""
        if self._queued.pop(request.id, None) is None:
            self._busy_s += now_s - self._begun_s.pop(request.id)

    def busy(self, now_s: float) -> float:
        """The share of time until now in which encoders were busy."""
        working_s = sum([now_s - begun_s for begun_s in self._begun_s.values()])
        whole_s = now_s * float(self._count)
        return (self._busy_s + working_s) / whole_s if whole_s > 0.0 else 0.0
