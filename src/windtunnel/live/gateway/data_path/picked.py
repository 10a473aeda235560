"""A request that Envoy forwards: decided here, carried there."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from windtunnel.live.gateway.data_path.errors import LEFT_STATUS, error_body
from windtunnel.live.gateway.data_path.exchange import (
    COMPLETED,
    CUT_OFF,
    EVICTED,
    FAILED,
    LEFT,
    MESSAGES,
    STATUSES,
    TIMED_OUT,
    Exchange,
)
from windtunnel.live.gateway.data_path.http import RequestHead
from windtunnel.live.gateway.data_path.structs import BodyFields

if TYPE_CHECKING:
    from windtunnel.live.gateway.data_path.proxy import Proxy

UNDECIDED: Final = 0
PICKED: Final = 1
REFUSED: Final = 2
STOPPED: Final = 3


class PickedRequest(Exchange):
    """An exchange without connections of its own. The picker's stream reports what passes through
    Envoy, and is called back when there is a decision, which `state` holds."""

    __slots__ = ("_decided", "prefill", "refusal", "refusal_headers", "refusal_status", "state")

    def __init__(
        self,
        proxy: "Proxy",
        head: RequestHead,
        fields: BodyFields,
        number: int,
        arrived_s: float,
        decided: Callable[[], None],
    ) -> None:
        super().__init__(proxy, None, head, fields, number, arrived_s)
        self.state = UNDECIDED
        self.prefill = -1
        self.refusal = b""
        self.refusal_headers = b""
        self.refusal_status = 0
        self._decided: Final = decided

    # Decisions.

    def send(self, server: int, reason: str, prefill: int) -> None:
        self.server = server
        self.reason = reason
        self.prefill = prefill
        self.attempt += 1
        self.sent_s = self._proxy.now_s()
        self.state = PICKED
        self._proxy.first_bytes.add(self, self.sent_s)
        self._decided()

    def refuse(self, reason: str, seen: float, limit: float) -> None:
        status, self.refusal, self.refusal_headers = self._refusal(reason, seen, limit)
        self.refusal_status = status
        self.state = STOPPED if self.state == PICKED else REFUSED
        self._decided()

    def stop(self, reason: str) -> None:
        self._stop(EVICTED, reason, MESSAGES.get(reason, reason), STATUSES.get(reason, 503))

    def late(self) -> None:
        """Has Envoy end a request whose response did not begin in time, or stalled."""
        if self._status == 0:
            self._status = 504
            self._fail("no answer in time", again=False)
        else:
            message = "The answer stood still for too long."
            self._stop(TIMED_OUT, "the answer stood still", message, 504)

    def _stop(self, outcome: str, reason: str, message: str, status: int) -> None:
        self.refusal = error_body(status, message, code=reason)
        self.refusal_headers = self.own_headers(reason)
        self.refusal_status = status
        self.said = self.said or status
        self.state = STOPPED
        self._finish(outcome, reason)
        self._decided()

    # Traffic.

    @property
    def body(self) -> bytes:
        """The body for the server."""
        return self._body

    def answer_began(self, status: int, *, is_stream: bool) -> None:
        """Handles the head of the server's response; from here on there is no retry."""
        proxy = self._proxy
        now_s = proxy.now_s()
        self.said = self._status = status
        proxy.first_bytes.remove(self)
        proxy.streams.add(self, now_s)
        if self.prefill >= 0:
            self.prefill = -1
            proxy.core.prefilled(self.number, now_s, good=status < 500)
        if not is_stream or status >= 400:
            self.stream = None
        proxy.core.answered(self.number, now_s, good=status < 500)
        proxy.pump()

    def answer_data(self, data: bytes, *, last: bool) -> bytes:
        """Handles a piece of the response body; returns the part that goes to the client."""
        if data:
            data = self._follow(data)
        if last:
            data += self._answer_ended()
        return data

    def answer_ended(self) -> None:
        """Handles a response that ended with trailers or had no body."""
        if not self.over:
            self._answer_ended()

    def left(self) -> None:
        """Handles the end of Envoy's stream: the client left or, after the response began, the
        cause is unknown."""
        if not self.over:
            begun = self.first_byte_s >= 0.0
            reason = "the answer was not passed on whole" if begun else "the client left"
            self.said = self.said or LEFT_STATUS
            self._finish(CUT_OFF if begun else LEFT, reason)

    def _answer_ended(self) -> bytes:
        held, outcome, reason = b"", COMPLETED, self.reason
        if self.stream is not None:
            held = self.stream.end()
            self.usage = self.stream.usage
            if not self.stream.done:
                outcome, reason = CUT_OFF, "the server ended its answer early"
        else:
            self.usage = self._kept_usage()
        if self._status >= 400:
            outcome, reason = FAILED, f"status {self._status}"
        self._finish(outcome, reason)
        return held
