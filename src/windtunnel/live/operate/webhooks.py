"""The operator's webhooks: served over TLS, with certificates that it mints and rotates.

All replicas serve. The certificate is in a Secret in the operator's namespace; the CAs are in the
webhook configurations, which an installation creates and this module fills in. The order is: write
the Secret, put the CAs into the configurations, then serve the certificate, so that the API server
never meets a certificate it does not trust. Any replica may do any step: a create may fail on a
name that is taken, an update on a version that has changed.

The certificate's host names are those by which the configurations call the webhooks.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import logging
import os
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import msgspec

from windtunnel.gangs.kubernetes.admission import (
    AdmissionReview,
    Review,
    answer,
    defaulted,
    probe_set,
    validated,
)
from windtunnel.gangs.objects import SET
from windtunnel.live.kubernetes.client import STRATEGIC_PATCH, Client
from windtunnel.live.kubernetes.config import load_chain
from windtunnel.live.kubernetes.errors import (
    ApiError,
    Conflict,
    KubernetesError,
    NotFound,
)
from windtunnel.live.kubernetes.resources import Object, Plain, Resource
from windtunnel.live.operate.certificates import Minted, mint
from windtunnel.live.operate.mirror import RESOURCES

if TYPE_CHECKING:
    from aiohttp import web

ADMISSION: Final = "admissionregistration.k8s.io"
CONFIGURATIONS: Final = tuple(
    Resource(ADMISSION, "v1", f"{word.lower()}webhookconfigurations", f"{word}WebhookConfiguration",
             namespaced=False)
    for word in ("Mutating", "Validating")
)  # fmt: skip
NAME: Final = "windtunnel-operator"
"""The name of both configurations."""
SECRET: Final = "windtunnel-webhook"  # noqa: S105 - a name
PARTS: Final = ("tls.crt", "tls.key", "ca.crt")
PATHS: Final = ("/webhooks/default-podcliqueset", "/webhooks/validate-podcliqueset")
LARGEST_REVIEW: Final = 8 << 20
"""An API server accepts objects of 3 MiB, and a review may contain two of them."""
LOOK_S: Final = 60.0
RETRY_S: Final = 2.0
TRIES: Final = 5
"""Attempts before a pause, if several replicas write the Secret at once."""
KNOWN_S: Final = 5.0
"""Time until every API server has probably seen a changed configuration."""

Levels = dict[str, dict[str, str]]
log: Final = logging.getLogger("windtunnel.operator")


class WebhookConfiguration(Object, frozen=True, kw_only=True):
    webhooks: list[dict[str, Any]] = msgspec.field(default_factory=list)


class SecretData(Object, frozen=True, kw_only=True):
    data: dict[str, str] = msgspec.field(default_factory=dict)


class Webhooks:
    """Serves the webhooks, and keeps the certificate and configurations up to date."""

    def __init__(
        self,
        client: Client,
        namespace: str,
        levels: Callable[[], Levels],
        now_s: Callable[[], float],
    ) -> None:
        self._client: Final = client
        self._namespace: Final = namespace
        self._levels: Final = levels
        self._now_s: Final = now_s
        self._tls: Final = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._tls.minimum_version = ssl.TLSVersion.TLSv1_2
        self._served: Minted | None = None
        self.why_not = "the webhooks have no certificate yet"
        """Why the API server does not reach them now; empty if it does."""
        self.reached = False
        """Whether it ever did."""
        self.counts: Final[dict[tuple[str, str], int]] = {}
        """Reviews by webhook and outcome."""

    # Serving.

    @contextlib.asynccontextmanager
    async def serve(self, bound: socket.socket) -> AsyncIterator[None]:
        from aiohttp import web

        app = web.Application(client_max_size=LARGEST_REVIEW)
        app.router.add_post(PATHS[0], self._default)
        app.router.add_post(PATHS[1], self._validate)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=2.0)
        await runner.setup()
        try:
            await web.SockSite(runner, bound, ssl_context=self._tls).start()
            yield
        finally:
            await runner.cleanup()

    async def _default(self, request: web.Request) -> web.Response:
        return await self._answer(request, "default", defaulted)

    async def _validate(self, request: web.Request) -> web.Response:
        return await self._answer(
            request, "validate", lambda asked: validated(asked, self._levels() or None)
        )

    async def _answer(
        self, request: web.Request, name: str, decide: Callable[[Review], dict[str, Any]]
    ) -> web.Response:
        """Answers a review without calling the API server, which is waiting for it."""
        from aiohttp import web

        try:
            asked = msgspec.json.decode(await request.read(), type=AdmissionReview).request
        except msgspec.DecodeError as error:
            raise web.HTTPBadRequest(text=f"this is not an AdmissionReview: {error}\n") from None
        response = decide(asked)
        outcome = "allowed" if response["allowed"] else "refused"
        self.counts[name, outcome] = self.counts.get((name, outcome), 0) + 1
        body = msgspec.json.encode(answer(response))
        return web.Response(body=body, content_type="application/json")

    # Certificates.

    async def run(self) -> None:
        """Maintains the certificate and configurations until cancelled."""
        while True:
            try:
                await self._look()
            except KubernetesError as error:
                self._note_reach(f"the webhooks cannot be set up: {error}")
                await asyncio.sleep(RETRY_S)
                continue
            await asyncio.sleep(RETRY_S if self.why_not else LOOK_S)

    async def _look(self) -> None:
        found = [await self._configuration(one) for one in CONFIGURATIONS]
        names = sorted({_host(one["clientConfig"]) for _, hooks in found for one in hooks})
        minted = await self._certificate(names)
        changed = False
        for resource, hooks in found:
            changed = await self._trust(resource, hooks, minted.authorities) or changed
        if minted != self._served:
            if changed and self._served is not None:
                await asyncio.sleep(KNOWN_S)
            load_chain(self._tls, minted.certificate, minted.key, f"Secret {SECRET}")
            self._served = minted
            log.info("the webhooks serve a certificate for %s", ", ".join(names))
        await self._probe()

    async def _configuration(self, resource: Resource) -> tuple[Resource, list[dict[str, Any]]]:
        found = await self._client.get(resource, "", NAME, WebhookConfiguration)
        ours = [one for one in found.webhooks if _path(one["clientConfig"]) in PATHS]
        if not ours:
            what = f"{resource.kind} {NAME} has no webhook with a path of {' and '.join(PATHS)}"
            raise KubernetesError(what)
        return resource, ours

    async def _certificate(self, names: list[str]) -> Minted:
        """The certificate in the Secret, or a new one."""
        for _ in range(TRIES):
            with contextlib.suppress(Conflict):  # another replica was faster
                return await self._held_or_made(names)
        raise KubernetesError(f"Secret {SECRET} changed {TRIES} times while it was written")

    async def _held_or_made(self, names: list[str]) -> Minted:
        space, secrets = self._namespace, RESOURCES["Secret"]
        held, version = None, ""
        try:
            found = await self._client.get(secrets, space, SECRET, SecretData)
            held, version = _minted(found.data), found.metadata.resource_version
            if held is not None and not held.due(names, self._now_s()):
                return held
        except NotFound:
            pass
        made = mint(names, self._now_s(), held)
        meta = {"name": SECRET, "namespace": space}
        parts = zip(PARTS, made, strict=True)
        data = {name: base64.b64encode(part).decode() for name, part in parts}
        body: Plain = {"metadata": meta, "type": "Opaque", "data": data}
        if version:
            meta["resourceVersion"] = version
            await self._client.replace(secrets, body, Object)
        else:
            await self._client.create(secrets, body, Object)
        return made

    async def _trust(
        self, resource: Resource, hooks: list[dict[str, Any]], authorities: bytes
    ) -> bool:
        bundle = base64.b64encode(authorities).decode()
        if all(one["clientConfig"].get("caBundle") == bundle for one in hooks):
            return False
        trusted = [{"name": one["name"], "clientConfig": {"caBundle": bundle}} for one in hooks]
        await self._client.patch(
            resource, "", NAME, {"webhooks": trusted}, Object, content=STRATEGIC_PATCH
        )
        return True

    async def _probe(self) -> None:
        """Checks, by the dry run of a create, whether the API server calls the webhooks."""
        nonce = os.urandom(8).hex()
        body = probe_set(self._namespace, nonce)
        try:
            await self._client.create(RESOURCES[SET], body, Object, dry_run=True)
        except ApiError as error:
            reached = f"probe {nonce}" in error.message
            self._note_reach("" if reached else f"the webhooks are not reached: {error.message}")
        else:
            self._note_reach("the webhooks are not reached: the API server did not call them")

    def _note_reach(self, why_not: str) -> None:
        if self.why_not and why_not != self.why_not:
            log.info("%s", why_not or "the API server reaches the webhooks")
        elif why_not and not self.why_not:
            log.warning("%s", why_not)
        self.why_not = why_not
        self.reached = self.reached or not why_not


def _minted(data: Mapping[str, str]) -> Minted | None:
    try:
        parts = [base64.b64decode(data[key], validate=True) for key in PARTS]
    except (KeyError, binascii.Error):
        return None
    return Minted(*parts)


def _host(called: Mapping[str, Any]) -> str:
    """The host name by which the API server calls a webhook: its service's, or that of a URL."""
    service = called.get("service")
    if service:
        return f"{service['name']}.{service['namespace']}.svc"
    return urlsplit(str(called.get("url") or "")).hostname or ""


def _path(called: Mapping[str, Any]) -> str:
    service = called.get("service") or {}
    return str(service.get("path") or urlsplit(str(called.get("url") or "")).path)
