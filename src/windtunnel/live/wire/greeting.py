"""Checks that a server is reachable, and asks for the models it lists."""

import asyncio

from windtunnel.core.errors import InputError
from windtunnel.core.units import format_duration
from windtunnel.live.wire.addresses import MODELS
from windtunnel.live.wire.client import Endpoint, NoReply, Reply
from windtunnel.live.wire.refusals import (
    QUOTA,
    REDIRECT,
    decoded,
    refusal_code,
    refusal_line,
    refused_sentence,
)

LOOK_AGAIN_S = 0.5
REFUSES_ALL = (REDIRECT, QUOTA, "http_401", "http_402", "http_403")
"""Codes of servers that will refuse every request; others may merely not list their models."""


async def models_of(endpoint: Endpoint, wait_s: float) -> tuple[str, ...] | None:
    """A server's models, None if it does not list them; raises InputError if down or refusing."""
    loop = asyncio.get_running_loop()
    until_s = loop.time() + wait_s
    while True:
        try:
            async with (
                asyncio.timeout(max(0.0, until_s - loop.time()) + LOOK_AGAIN_S),
                endpoint.get(MODELS) as incoming,
            ):
                reply = Reply(incoming.status, incoming.headers, await incoming.whole())
        except NoReply as error:
            said = error.what
        except TimeoutError:
            said = "it accepts connections but does not respond"
        else:
            if reply.status < 500:
                return _listed(endpoint, reply)
            said = f"it answers {reply.status}"
        if loop.time() + LOOK_AGAIN_S > until_s:
            raise InputError(
                f"no answer within {format_duration(wait_s)}: {said}",
                where=endpoint.url,
                hint="is the server running? --wait gives it longer to start",
            )
        await asyncio.sleep(LOOK_AGAIN_S)


def _listed(endpoint: Endpoint, reply: Reply) -> tuple[str, ...] | None:
    body = decoded(reply.body)
    if reply.status == 200:
        try:
            names = [str(model["id"]) for model in body["data"]]
        except (LookupError, TypeError):
            return None
        # Model names appear in all output, so a name that contains a key is dropped.
        return tuple(name for name in names if endpoint.redact(name) == name)
    code = refusal_code(reply.status, body)
    if code in REFUSES_ALL:
        line = refusal_line(reply.status, reply.headers, reply.body, endpoint.redact)
        raise refused_sentence(endpoint.url, endpoint.key_env, code, line)
    return None
