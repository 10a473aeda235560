"""The endpoints of a batch: the models of each, and the client that sends requests to them."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import NamedTuple
from urllib.parse import urlsplit

from windtunnel.admission.reasons import Outcome
from windtunnel.core.errors import InputError, one_line
from windtunnel.live.batch.settings import EndpointSettings
from windtunnel.live.batch.work import WantedServer
from windtunnel.live.wire.addresses import Api, checked_url
from windtunnel.live.wire.calls import Caller
from windtunnel.live.wire.client import (
    CANNOT_CONNECT,
    TIMEOUT,
    Endpoint,
    NoReply,
    Reply,
    open_session,
)
from windtunnel.live.wire.greeting import models_of
from windtunnel.live.wire.keys import Keys

MOST_SHOWN = 12

_LEARNED = {
    CANNOT_CONNECT: Outcome.PROVIDER_OVERLOADED,
    TIMEOUT: Outcome.PROVIDER_TIMEOUT,
}


def outcome_of(error: NoReply) -> Outcome:
    """The outcome that admission learns from a call without a reply."""
    return _LEARNED.get(error.code, Outcome.PROVIDER_FAILURE)


class EndpointClient:
    """Sends requests and reads complete replies."""

    def __init__(self, endpoints: Mapping[str, Endpoint], callers: Mapping[str, Caller]) -> None:
        self.endpoints = endpoints
        self._callers = callers

    async def post(self, endpoint: str, api: Api, body: bytes) -> Reply:
        """Returns the reply to a request, or raises NoReply."""
        return await self._callers[endpoint].ask(api, body)


@asynccontextmanager
async def open_client(
    endpoints: Mapping[str, EndpointSettings], keys: Keys, timeout_s: float
) -> AsyncIterator[EndpointClient]:
    """A client, closed at the end together with its connections."""
    async with open_session(timeout_s, name="batch") as session:
        asked = {
            name: Endpoint(session, one.url, keys, one.key_env or "")
            for name, one in endpoints.items()
        }
        callers = {
            name: Caller(one.url, Api, keys.header(one.key_env or ""), "batch", timeout_s)
            for name, one in endpoints.items()
        }
        try:
            yield EndpointClient(asked, callers)
        finally:
            for caller in callers.values():
                caller.close()


class Route(NamedTuple):
    """An API, a model, and all endpoints that serve it."""

    api: Api
    model: str
    endpoints: tuple[str, ...]

    @property
    def pool(self) -> str:
        return "+".join(self.endpoints)


def parse_endpoint(text: str) -> tuple[str, str]:
    """A name and an address from `http://localhost:8000` or `local=http://localhost:8000/v1`."""
    name, equals, url = text.partition("=")
    if not equals or "/" in name or ":" in name:
        name, url = "", text
    return name, checked_url(url, "--endpoint")


def name_of(url: str) -> str:
    """The name of an endpoint that was given without one."""
    parts = urlsplit(url)
    return parts.netloc if parts.path == "/v1" else f"{parts.netloc}{parts.path}"


async def find_models(client: EndpointClient, wait_s: float) -> dict[str, tuple[str, ...] | None]:
    """The models of each endpoint, None if it lists none; raises InputError if one is down."""
    endpoints = client.endpoints
    found = await asyncio.gather(*(models_of(one, wait_s) for one in endpoints.values()))
    return dict(zip(endpoints, found, strict=True))


def route_of(
    wanted: WantedServer,
    endpoints: Iterable[str],
    models: Mapping[str, tuple[str, ...] | None],
    where: str,
) -> Route:
    """The endpoints that serve a wanted model."""
    names = [name for name in endpoints if wanted.endpoint in ("", name)]
    assert names, "endpoints that columns name were checked"
    model = wanted.model or _only_model(names, models, where)
    having = [name for name in names if model in (models[name] or ())]
    # Model lists may be incomplete, and some servers accept several names for a model.
    return Route(wanted.api, model, tuple(having or names))


def unlisted(route: Route, models: Mapping[str, tuple[str, ...] | None]) -> str:
    """A warning if none of the endpoints lists the model; otherwise empty."""
    known = [models[name] for name in route.endpoints]
    if any(listed is None or route.model in listed for listed in known):
        return ""
    there = _some(model for listed in known for model in listed or ())
    return f"no endpoint lists the model {route.model!r}, only {there}; it is requested anyway"


def _only_model(names: list[str], models: Mapping[str, tuple[str, ...] | None], where: str) -> str:
    known = sorted({model for name in names for model in models[name] or ()})
    if len(known) == 1:
        return known[0]
    raise InputError(
        "it is not clear which model to use",
        where=where,
        allowed=_some(known) if known else None,
        hint="--model names it",
    )


def _some(models: Iterable[str]) -> str:
    known = sorted(set(models))
    more = f" and {len(known) - MOST_SHOWN} more" if len(known) > MOST_SHOWN else ""
    return ", ".join(one_line(name) for name in known[:MOST_SHOWN]) + more
