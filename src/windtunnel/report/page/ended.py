"""A request as its row in `requests.parquet` tells it, and where its time went."""

from __future__ import annotations

from windtunnel.core.vocabulary import ENCODING
from windtunnel.report.phases import Phase, Times, phases

Owner = tuple[str | None, int | None]
"""A server: its pool and its number there; nothing for a request that was sent nowhere."""


class Ended(Times, frozen=True, kw_only=True):
    """A row, as far as a report shows it; times are None where they never came."""

    id: int
    source: str
    slo: str
    outcome: str
    reason: str | None
    prompt_tokens: int
    output_tokens: int
    prefix_hit_tokens: int
    preemptions: int
    pool: str | None
    replica: int | None
    prefill_pool: str | None
    prefill_replica: int | None

    @property
    def server(self) -> Owner:
        """Where its answer is made."""
        return self.pool, self.replica

    @property
    def prompt_server(self) -> Owner:
        """Where its prompt is computed."""
        if self.prefill_pool is None:
            return self.server
        return self.prefill_pool, self.prefill_replica

    def phases(self, end_s: float) -> list[Phase]:
        """Where its time went, in a run that ended so."""
        split = self.prompt_server != self.server
        return phases(self, end_s, split=split, encoding=(self.reason or "").endswith(ENCODING))
