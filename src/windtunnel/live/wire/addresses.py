"""Addresses of servers, as people write them, and what comes after them."""

from enum import StrEnum
from urllib.parse import urlsplit

from windtunnel.admission.reasons import Domain
from windtunnel.core.errors import InputError

MODELS = "models"
"""Where a server lists its models."""


class Api(StrEnum):
    """What is asked of a server, by the end of its address."""

    CHAT = "chat/completions"
    COMPLETIONS = "completions"
    EMBEDDINGS = "embeddings"

    @property
    def domain(self) -> Domain:
        return _DOMAINS[self]


_DOMAINS = {
    Api.CHAT: Domain.CHAT,
    Api.COMPLETIONS: Domain.COMPLETION,
    Api.EMBEDDINGS: Domain.EMBEDDING,
}


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
