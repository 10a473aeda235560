"""Address and credentials of the API server: from kubeconfig files or the pod's service account.

`load_config()` uses the first of these: the given file, the files in `KUBECONFIG`, the pod's
service account, `~/.kube/config`. Certificates and tokens may be inline or in files; token files
are read again every minute, since Kubernetes rotates them, and tokens of `exec` plugins when they
expire. Secrets appear in no `repr` and no message.
"""

import asyncio
import base64
import binascii
import math
import os
import ssl
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from windtunnel.core.addresses import address_fault
from windtunnel.core.clock import monotonic_s, unix_s
from windtunnel.core.errors import InputError
from windtunnel.core.system.files import read_bounded
from windtunnel.live.wire.keys import checked_token, read_token
from windtunnel.settings.manifests import DNS_LABEL

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
LARGEST_FILE: Final = 4 << 20
REREAD_S: Final = 60.0
"""Token files are read again after this; the kubelet renews them long before they expire."""
PLUGIN_S: Final = 60.0
"""Time limit of an `exec` plugin."""
EXPIRES_EARLY_S: Final = 60.0


class Credentials:
    """The token of requests; empty with a client certificate.

    `read` returns a token and for how many seconds it may be used. It may block, so it runs in a
    thread.
    """

    def __init__(self, read: Callable[[], tuple[str, float]]) -> None:
        self._read = read
        self._token: str | None = None
        self._until_s = 0.0
        self._reading: asyncio.Task[str] | None = None

    def cached(self, now_s: float) -> str | None:
        """The token, or None if it must be read."""
        return self._token if now_s < self._until_s else None

    def read(self, now_s: float) -> str:
        token, usable_s = self._read()
        self._token, self._until_s = token, now_s + usable_s
        return token

    async def token(self) -> str:
        """The token; concurrent requests share one read."""
        token = self.cached(monotonic_s())
        if token is not None:
            return token
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(asyncio.to_thread(self.read, monotonic_s()))
        return await asyncio.shield(self._reading)

    def refused(self, token: str) -> None:
        """Has a token that the server refused read again, unless that has already happened."""
        if token == self._token:
            self._until_s = 0.0


def static_token(token: str) -> Credentials:
    """A token that does not change, or none."""
    return Credentials(lambda: (token, math.inf))


def token_file(path: Path) -> Credentials:
    """A token in a file that is replaced from time to time."""
    return Credentials(lambda: (read_token(path), REREAD_S))


class _ExecStatus(msgspec.Struct, rename="camel"):
    token: str = ""
    expiration_timestamp: str = ""


class _ExecCredential(msgspec.Struct, rename="camel"):
    status: _ExecStatus = msgspec.field(default_factory=_ExecStatus)


class _ExecPlugin:
    """A credential plugin: a program that prints a token, as managed clusters use."""

    def __init__(self, section: Mapping[str, Any], where: str) -> None:
        self._where = where
        wrong = not isinstance(section, Mapping) or not section.get("command")
        if wrong or not all(_has(one, "name", "value") for one in section.get("env") or ()):
            raise InputError(
                "the user's exec is malformed",
                where=where,
                allowed="a mapping with command, args, and env as a list of name and value",
            )
        self._command = [str(section["command"]), *map(str, section.get("args") or ())]
        version = str(section.get("apiVersion", "client.authentication.k8s.io/v1"))
        asked = {"apiVersion": version, "kind": "ExecCredential", "spec": {"interactive": False}}
        self._environment = {"KUBERNETES_EXEC_INFO": msgspec.json.encode(asked).decode()}
        for one in section.get("env") or ():
            self._environment[str(one["name"])] = str(one["value"])

    def read(self) -> tuple[str, float]:
        try:
            done = subprocess.run(  # noqa: S603 - the user's own kubeconfig names it
                self._command,
                env={**os.environ, **self._environment},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                timeout=PLUGIN_S,
                check=True,
            )
            status = msgspec.json.decode(done.stdout, type=_ExecCredential).status
        except (OSError, subprocess.SubprocessError, msgspec.DecodeError) as error:
            raise InputError(
                f"the credential plugin {self._command[0]!r} failed ({type(error).__name__})",
                where=self._where,
            ) from None
        if not status.token:
            raise InputError(
                f"the credential plugin {self._command[0]!r} gave no token",
                where=self._where,
                allowed="plugins that give tokens",
            )
        usable_s = math.inf
        if status.expiration_timestamp:
            try:
                expires = datetime.fromisoformat(status.expiration_timestamp).timestamp()
            except (ValueError, OverflowError):
                raise InputError(
                    f"the credential plugin {self._command[0]!r} gave no valid expiration date",
                    where=self._where,
                    allowed="an expirationTimestamp like 2030-01-31T12:00:00Z",
                ) from None
            usable_s = max(expires - unix_s() - EXPIRES_EARLY_S, 0.0)
        return checked_token(status.token.encode()), usable_s


class ClusterConfig:
    """The address of an API server, its TLS settings, and our credentials."""

    def __init__(
        self,
        server: str,
        tls: ssl.SSLContext | None,
        credentials: Credentials,
        namespace: str,
        server_name: str | None = None,
    ) -> None:
        self.server: Final = server.rstrip("/")
        self.tls: Final = tls
        self.credentials: Final = credentials
        self.namespace: Final = namespace
        self.server_name: Final = server_name
        """The name on its certificate, if that is not the address."""

    def __repr__(self) -> str:
        return f"ClusterConfig({self.server})"


def check_namespace(name: str, where: str) -> None:
    """Checks a namespace, since it becomes part of request paths; empty is allowed."""
    if name and not DNS_LABEL.fullmatch(name):
        allowed = "a DNS label: small letters, digits and '-', at most 63"
        raise InputError(f"{name[:80]!r} cannot be a namespace", where=where, allowed=allowed)


def load_config(
    kubeconfig: Path | None = None, context: str = "", environment: Mapping[str, str] = os.environ
) -> ClusterConfig:
    """The configuration of the cluster to use; raises `InputError` if it is invalid."""
    if kubeconfig is not None:
        return _from_files([kubeconfig], context)
    named = [Path(name) for name in environment.get("KUBECONFIG", "").split(os.pathsep) if name]
    if named:
        present = [path for path in named if path.exists()]
        return _from_files(present or named, context)
    if environment.get("KUBERNETES_SERVICE_HOST") and not context:
        return in_cluster(environment)
    usual = Path(environment.get("HOME") or "~").expanduser() / ".kube" / "config"
    if usual.is_file():
        return _from_files([usual], context)
    raise InputError(
        "no Kubernetes cluster is configured",
        allowed="the environment variable KUBECONFIG, ~/.kube/config, a pod with a service "
        "account, or --kubeconfig FILE of commands that have it",
    )


def in_cluster(
    environment: Mapping[str, str] = os.environ, folder: Path = SERVICE_ACCOUNT
) -> ClusterConfig:
    """The configuration of a pod with a service account."""
    host = environment["KUBERNETES_SERVICE_HOST"]
    port = environment.get("KUBERNETES_SERVICE_PORT", "443")
    host = f"[{host}]" if ":" in host else host
    tls = _tls(read_bounded(folder / "ca.crt", LARGEST_FILE, subject="the CA of the cluster"))
    space = folder / "namespace"
    namespace = read_bounded(space, LARGEST_FILE).decode().strip() if space.is_file() else "default"
    return ClusterConfig(f"https://{host}:{port}", tls, token_file(folder / "token"), namespace)


def _from_files(paths: list[Path], context: str) -> ClusterConfig:
    """Merges several files; of entries with the same name the first counts."""
    import yaml

    merged: dict[str, dict[str, tuple[Any, Path]]] = {"clusters": {}, "users": {}, "contexts": {}}
    current = context
    for path in paths:
        try:
            text = read_bounded(path, LARGEST_FILE, subject="the kubeconfig")
            content = yaml.safe_load(text) or {}
        except (yaml.YAMLError, UnicodeDecodeError):
            raise InputError("the kubeconfig is not YAML", where=str(path)) from None
        if not isinstance(content, dict):
            raise InputError("the kubeconfig is not a mapping", where=str(path))
        current = current or str(content.get("current-context") or "")
        for section, entries in merged.items():
            found = content.get(section) or ()
            for entry in found if isinstance(found, list | tuple) else (found,):
                if not _has(entry, "name") or not isinstance(entry.get(section[:-1]) or {}, dict):
                    raise InputError(
                        f"an entry in the kubeconfig's {section} is malformed",
                        where=str(path),
                        allowed=f"mappings with name and {section[:-1]}",
                    )
                entries.setdefault(str(entry["name"]), (entry.get(section[:-1]) or {}, path))
    where = str(paths[0])
    chosen, _ = _entry(merged, "contexts", current, where)
    cluster, beside = _entry(merged, "clusters", str(chosen.get("cluster", "")), where)
    user: Mapping[str, Any] = {}
    user_path = beside
    if chosen.get("user"):
        user, user_path = _entry(merged, "users", str(chosen["user"]), where)
    namespace = str(chosen.get("namespace") or "default")
    check_namespace(namespace, where)
    return ClusterConfig(
        _server(cluster, where),
        _cluster_tls(cluster, beside, user, user_path),
        _credentials(user, user_path),
        namespace,
        cluster.get("tls-server-name"),
    )


def _has(entry: object, *names: str) -> bool:
    return isinstance(entry, Mapping) and all(name in entry for name in names)


def _entry(
    merged: Mapping[str, Mapping[str, tuple[Any, Path]]], section: str, name: str, where: str
) -> tuple[Mapping[str, Any], Path]:
    known = merged[section]
    if name not in known:
        names = ", ".join(sorted(known)) or "none is declared"
        raise InputError(
            f"the kubeconfig has no {section[:-1]} {name!r}", where=where, allowed=names
        )
    return known[name]


def _server(cluster: Mapping[str, Any], where: str) -> str:
    server = str(cluster.get("server", ""))
    what = address_fault(server)
    if what:
        allowed = "http(s)://HOST[:PORT], with the credentials in the user of the context"
        raise InputError(f"the cluster's server: {what}", where=where, allowed=allowed)
    if cluster.get("proxy-url"):
        raise InputError("proxy-url is not supported", where=where)
    return server


def _cluster_tls(
    cluster: Mapping[str, Any], beside: Path, user: Mapping[str, Any], user_path: Path
) -> ssl.SSLContext | None:
    if str(cluster["server"]).startswith("http://"):
        return None
    tls = _tls(_content(cluster, "certificate-authority", beside))
    if cluster.get("insecure-skip-tls-verify"):
        tls.check_hostname = False
        tls.verify_mode = ssl.CERT_NONE
    certificate = _content(user, "client-certificate", user_path)
    key = _content(user, "client-key", user_path)
    if certificate and key:
        load_chain(tls, certificate, key, str(user_path))
    elif certificate or key:
        raise InputError("a client certificate needs its key, and a key its certificate")
    return tls


def _tls(authority: bytes) -> ssl.SSLContext:
    try:
        tls = ssl.create_default_context(cadata=authority.decode() if authority else None)
    except (ssl.SSLError, ValueError):
        raise InputError("the CA of the cluster is not a PEM certificate") from None
    return tls


def load_chain(tls: ssl.SSLContext, certificate: bytes, key: bytes, where: str) -> None:
    """Loads a certificate and key through a private folder, since Python only reads files."""
    with tempfile.TemporaryDirectory() as folder:
        both = Path(folder) / "client.pem"
        both.touch(mode=0o600)
        both.write_bytes(certificate.strip() + b"\n" + key)
        try:
            tls.load_cert_chain(both)
        except (ssl.SSLError, ValueError):
            raise InputError("the client certificate and key do not match", where=where) from None


def _content(section: Mapping[str, Any], name: str, beside: Path) -> bytes:
    """A certificate or key: inline, or in a file relative to the kubeconfig; empty if absent."""
    inline = section.get(f"{name}-data")
    if inline:
        try:
            return base64.b64decode(str(inline), validate=True)
        except binascii.Error:
            raise InputError(f"{name}-data is not base64", where=str(beside)) from None
    path = section.get(name)
    if not path:
        return b""
    return read_bounded(beside.parent / str(path), LARGEST_FILE, subject=name)


def _credentials(user: Mapping[str, Any], path: Path) -> Credentials:
    where = str(path)
    if user.get("tokenFile"):
        return token_file(path.parent / str(user["tokenFile"]))
    if user.get("token"):
        return static_token(checked_token(str(user["token"]).encode()))
    if user.get("exec"):
        return Credentials(_ExecPlugin(user["exec"], where).read)
    for name in ("auth-provider", "username"):
        if user.get(name):
            raise InputError(
                f"users with {name} are not supported",
                where=where,
                allowed="token, tokenFile, client-certificate with client-key, exec",
            )
    return static_token("")
