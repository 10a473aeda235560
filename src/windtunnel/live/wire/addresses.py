"""Server addresses as users write them, and the API paths below them."""

from enum import StrEnum
from urllib.parse import urlsplit

from windtunnel.admission.reasons import Domain
from windtunnel.core.addresses import address_fault
from windtunnel.core.errors import InputError

MODELS = "models"
"""The path at which a server lists its models."""


class Api(StrEnum):
    """The APIs of a server, by the last part of the address."""

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
    """Returns the base address of a server's API, without a trailing slash."""
    allowed = "an address, such as http://localhost:8000/v1"
    url = url.strip()
    what = address_fault(url)
    if not what and set("?#") & set(url):
        what = "an address has no '?' and no '#'"
    if what:
        hint = "keys come from the environment: --key-env" if "@" in url or "?" in url else ""
        raise InputError(what, where=where, allowed=allowed, hint=hint)
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port
    path = parts.path.rstrip("/")
    for api in Api:
        path = path.removesuffix(f"/{api.value}")
    shown_host = f"[{host}]" if ":" in host else host
    place = shown_host if port is None else f"{shown_host}:{port}"
    return f"{parts.scheme}://{place}{path or '/v1'}"
