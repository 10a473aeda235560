"""Time around a server that its clients see."""

from typing import Final

from mypy_extensions import i64

from windtunnel.engine.step import on_tick
from windtunnel.workload.request import Request


class Overheads:
    """Time around the engine that a client sees, per pool."""

    def __init__(
        self,
        queueing_s: float = 0.0,
        per_token_s: float = 0.0,
        completion_s: float = 0.0,
        ticks_per_s: float = 0.0,
        back_s: float = 0.0,
        accumulating_s: float = 0.0,
        per_prompt_token_s: float = 0.0,
    ) -> None:
        self.queueing_s: Final = queueing_s
        self.per_prompt_token_s: Final = per_prompt_token_s
        self.per_token_s: Final = per_token_s  # delay of every token
        self.accumulating_s: Final = accumulating_s  # and additional delay for each further token
        self.completion_s: Final = completion_s
        self._ticks_per_s: Final = ticks_per_s
        self._back_s: Final = back_s  # network time from the server to the client

    def before_s(self, prompt_tokens: i64) -> float:
        """Delay from a request's arrival at a server until it is queued."""
        return self.queueing_s + self.per_prompt_token_s * float(prompt_tokens)

    def after_s(self, tokens: i64) -> float:
        """Delay of the `tokens`-th token in the server."""
        return self.per_token_s + self.accumulating_s * float(tokens)

    def queued_s(self, arrived_s: float, prompt_tokens: i64) -> float:
        """When a request that arrives at a server is in its queue, on the clock of its steps."""
        queued_s = arrived_s + self.before_s(prompt_tokens)
        return on_tick(queued_s, self._ticks_per_s) if self._ticks_per_s else queued_s

    def reach_client(self, request: Request) -> None:
        """Converts the times of a completed request from the server's to the client's."""
        delay_s = self.per_token_s + self._back_s
        request.first_token_s += delay_s + self.accumulating_s
        after_s = self.accumulating_s * float(request.output_tokens) + self.completion_s
        request.finished_s += delay_s + after_s
