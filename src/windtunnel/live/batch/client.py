"""The endpoints of a batch by their names: requests are sent, and whole replies read."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from windtunnel.admission.reasons import Outcome
from windtunnel.live.batch.plan import EndpointPlan
from windtunnel.live.wire.addresses import Api
from windtunnel.live.wire.client import (
    CANNOT_CONNECT,
    TIMEOUT,
    Endpoint,
    NoReply,
    Reply,
    open_session,
)
from windtunnel.live.wire.keys import Keys

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

_LEARNED = {
    CANNOT_CONNECT: Outcome.PROVIDER_OVERLOADED,
    TIMEOUT: Outcome.PROVIDER_TIMEOUT,
}


def outcome_of(error: NoReply) -> Outcome:
    """What admission learns from a call that brought no reply."""
    return _LEARNED.get(error.code, Outcome.PROVIDER_FAILURE)


class Client:
    """Sends requests and reads whole replies."""

    def __init__(self, endpoints: Mapping[str, Endpoint]) -> None:
        self.endpoints = endpoints

    async def post(self, endpoint: str, api: Api, body: bytes) -> Reply:
        """The reply to a request, or NoReply."""
        async with self.endpoints[endpoint].post(api, body) as incoming:
            return Reply(incoming.status, incoming.headers, await incoming.whole())


@asynccontextmanager
async def open_client(
    plans: tuple[EndpointPlan, ...], keys: Keys, timeout_s: float
) -> AsyncIterator[Client]:
    """A client, closed with its connections at the end."""
    async with open_session(timeout_s, name="batch") as session:
        yield Client({one.name: Endpoint(session, one.url, keys, one.key_env) for one in plans})
