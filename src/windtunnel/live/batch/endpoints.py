"""Which servers there are, whether they answer, and which of them has which model."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple
from urllib.parse import urlsplit

import msgspec

from windtunnel.core.errors import InputError
from windtunnel.core.units import format_duration
from windtunnel.live.batch.client import Client, NoReply
from windtunnel.live.batch.plan import Api, EndpointPlan
from windtunnel.live.batch.replies import Failure, Means, Reply, judge
from windtunnel.live.batch.work import Wanted

LOOK_AGAIN_S = 0.5
NO_LIST = (404, 405, 501)
"""What servers answer that do not tell their models."""
MOST_SHOWN = 12


class Route(NamedTuple):
    """Who is asked: an interface, a model, and every endpoint that has it."""

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


def checked_url(url: str, where: str) -> str:
    """An address of a server's interface, without a slash at the end."""
    allowed = "an address, such as http://localhost:8000/v1"
    try:
        parts = urlsplit(url.strip())
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port, parts = None, None, urlsplit("")
    if parts.scheme not in ("http", "https") or not host or not url.isascii():
        raise InputError(f"{_shown(url)} is no address", where=where, allowed=allowed)
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        raise InputError(
            "an address has no user, no password and no '?'",
            where=where,
            allowed=allowed,
            hint="keys come from the environment: --key-env",
        )
    path = parts.path.rstrip("/")
    for api in Api:
        path = path.removesuffix(f"/{api.value}")
    shown_host = f"[{host}]" if ":" in host else host
    place = shown_host if port is None else f"{shown_host}:{port}"
    return f"{parts.scheme}://{place}{path or '/v1'}"


def _shown(url: str) -> str:
    """An address without what may be secret in it."""
    return repr(url.rpartition("@")[2].partition("?")[0][:80])


def name_of(url: str) -> str:
    """What an endpoint is called when nobody gave it a name."""
    parts = urlsplit(url)
    return parts.netloc if parts.path == "/v1" else f"{parts.netloc}{parts.path}"


async def find_models(
    client: Client, endpoints: Sequence[EndpointPlan], wait_s: float
) -> dict[str, tuple[str, ...] | None]:
    """The models of each endpoint, None where it does not say; an endpoint that is down is told."""
    found = await asyncio.gather(*(_models(client, one, wait_s) for one in endpoints))
    return {one.name: models for one, models in zip(endpoints, found, strict=True)}


async def _models(client: Client, endpoint: EndpointPlan, wait_s: float) -> tuple[str, ...] | None:
    loop = asyncio.get_running_loop()
    until_s = loop.time() + wait_s
    while True:
        try:
            async with asyncio.timeout(max(0.0, until_s - loop.time()) + LOOK_AGAIN_S):
                reply = await client.models(endpoint.name)
        except NoReply as error:
            said = error.what
        except TimeoutError:
            said = "it takes connections and says nothing"
        else:
            if reply.status < 500:
                return _listed(endpoint, reply, client.redact)
            said = f"it answers {reply.status}"
        if loop.time() + LOOK_AGAIN_S > until_s:
            raise InputError(
                f"no answer within {format_duration(wait_s)}: {said}",
                where=endpoint.url,
                hint="is the server running? --wait gives it longer to start",
            )
        await asyncio.sleep(LOOK_AGAIN_S)


def _listed(
    endpoint: EndpointPlan, reply: Reply, redact: Callable[[str], str]
) -> tuple[str, ...] | None:
    if reply.status == 200:
        try:
            data = msgspec.json.decode(reply.body)["data"]
            return tuple(str(model["id"]) for model in data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, LookupError, TypeError):
            return None
    judged = judge(reply, Api.CHAT, redact, has_answered=False)
    if isinstance(judged, Failure) and judged.means is Means.STOP and reply.status not in NO_LIST:
        raise refused_sentence(endpoint, judged.code, judged.message)
    return None


def refused_sentence(endpoint: EndpointPlan, code: str, message: str) -> InputError:
    """Why a server will answer nothing, and what to do about it."""
    key = f"the key in {endpoint.key_env}" if endpoint.key_env else "a request without a key"
    hints = {
        "http_401": f"it refused {key}; --key-env names the variable that holds the right one",
        "http_403": f"it refused {key}",
        "http_402": "it wants to be paid",
        "quota_exhausted": "the quota is used up",
        "redirect": "give that address as --endpoint; keys are not sent on to other places",
        "http_404": "is the model's name right, and the address?",
    }
    what = f"the server will not answer ({code}): {message}"
    return InputError(what, where=endpoint.url, hint=hints.get(code))


def route_of(
    wanted: Wanted,
    endpoints: Sequence[EndpointPlan],
    models: Mapping[str, tuple[str, ...] | None],
    where: str,
) -> Route:
    """Who answers what is wanted."""
    names = [one.name for one in endpoints if wanted.endpoint in ("", one.name)]
    assert names, "endpoints that columns name were checked"
    model = wanted.model or _only_model(names, models, where)
    having = [name for name in names if model in (models[name] or ())]
    # Lists are not always whole, and some servers know models by several names.
    return Route(wanted.api, model, tuple(having or names))


def unlisted(route: Route, models: Mapping[str, tuple[str, ...] | None]) -> str:
    """A warning, when none of the endpoints says that it has the model; else nothing."""
    known = [models[name] for name in route.endpoints]
    if any(listed is None or route.model in listed for listed in known):
        return ""
    there = _some(model for listed in known for model in listed or ())
    return f"no endpoint lists the model {route.model!r}, only {there}; it is asked for anyway"


def _only_model(names: list[str], models: Mapping[str, tuple[str, ...] | None], where: str) -> str:
    known = sorted({model for name in names for model in models[name] or ()})
    if len(known) == 1:
        return known[0]
    raise InputError(
        "nothing says which model to ask",
        where=where,
        allowed=_some(known) if known else None,
        hint="--model names it",
    )


def _some(models: Iterable[str]) -> str:
    known = sorted(set(models))
    more = f" and {len(known) - MOST_SHOWN} more" if len(known) > MOST_SHOWN else ""
    return ", ".join(known[:MOST_SHOWN]) + more
