"""A real Kubernetes control plane on loopback: etcd, kube-apiserver and kube-controller-manager.

They are roles of one binary, which `make apiserver` builds from Go modules.
"""

import contextlib
import datetime
import ipaddress
import json
import os
import socket
import ssl
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any, Final, Self

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from windtunnel.core.clock import monotonic_s, unix_s
from windtunnel.core.errors import InputError, WindtunnelError, printable

START_S: Final = 120.0
"""Time limit of one role; on a busy machine the API server alone takes half a minute."""
ETCD, API_SERVER, CONTROLLERS = ROLES = ("etcd", "apiserver", "controllers")
RUN_CONTROLLERS: Final = (
    "garbage-collector-controller",
    "namespace-controller",
    "disruption-controller",
    "serviceaccount-controller",
    "serviceaccount-token-controller",
    "root-ca-certificate-publisher-controller",
    "resourcequota-controller",
    "horizontal-pod-autoscaler-controller",
)


def cache_folder() -> Path:
    """The folder of built programs."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "windtunnel"


def built_binary() -> Path:
    """The newest binary that `make apiserver` has built on this machine."""
    found = [one for one in cache_folder().glob("apiserver-*") if os.access(one, os.X_OK)]
    if not found:
        raise InputError(
            "there is no API server on this machine",
            where=str(cache_folder()),
            allowed="--apiserver FILE, or --kubeconfig FILE of a cluster",
            hint="`make apiserver` in a checkout of Windtunnel builds one (needs Go 1.21)",
        )
    return max(found, key=lambda one: (one.stat().st_mtime, one.name))


class Certificates:
    """A certificate authority in a folder, for servers and clients."""

    def __init__(self, folder: Path) -> None:
        self.folder: Final = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "windtunnel rehearsal")])
        authority = x509.BasicConstraints(ca=True, path_length=None)
        made = self._builder(self._name, self._key).add_extension(authority, critical=True)
        self.ca: Final = folder / "ca.crt"
        self.ca.write_bytes(_pem(made.sign(self._key, hashes.SHA256())))
        account = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.account_key: Final = self._write_key("service-account", account)

    def _builder(self, name: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = datetime.datetime.fromtimestamp(unix_s(), datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=2))
        )

    def _write_key(self, name: str, key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> Path:
        path = self.folder / f"{name}.key"
        path.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        path.chmod(0o600)
        return path

    def issue(self, name: str, group: str = "") -> tuple[Path, Path]:
        """A certificate for a user of a group, or for a server on loopback, and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        parts = [x509.NameAttribute(NameOID.COMMON_NAME, name)]
        parts += [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group)] if group else []
        use = ExtendedKeyUsageOID.CLIENT_AUTH if group else ExtendedKeyUsageOID.SERVER_AUTH
        addresses = [
            x509.DNSName("localhost"),
            x509.DNSName("kubernetes.default.svc"),
            x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
        ]
        made = (
            self._builder(x509.Name(parts), key)
            .add_extension(x509.ExtendedKeyUsage([use]), critical=False)
            .add_extension(x509.SubjectAlternativeName(addresses), critical=False)
        )
        path = self.folder / f"{name.replace(':', '-')}.crt"
        path.write_bytes(_pem(made.sign(self._key, hashes.SHA256())))
        return path, self._write_key(path.stem, key)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


DIES_WITH_PARENT: Final = """\
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 9)
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""
"""Becomes a program that Linux kills when the process that started it is gone, for whatever
reason. In a `preexec_fn` this could deadlock on a lock held by a thread that does not exist in
the child."""


def bound_to_us(program: Path) -> list[str]:
    """The command that starts a program, without its arguments."""
    if sys.platform != "linux":
        return [str(program)]
    return [sys.executable, "-I", "-S", "-c", DIES_WITH_PARENT, str(os.getpid()), str(program)]


class KubernetesControlPlane:
    """etcd, the API server and the controllers, in their own folder."""

    def __init__(self, folder: Path, binary: Path) -> None:
        self.folder: Final = folder
        self.port: Final = free_port()
        self.url: Final = f"https://127.0.0.1:{self.port}"
        self.certificates: Final = Certificates(folder)
        self._binary = binary
        self._etcd = f"http://127.0.0.1:{free_port()}"
        self._peers = f"http://127.0.0.1:{free_port()}"
        self._server = self.certificates.issue("kube-apiserver")
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self.kubeconfig: Final = self.kubeconfig_of("admin", "system:masters")

    def __enter__(self) -> Self:
        try:
            for role in ROLES:
                self.start(role)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        for role in reversed(ROLES):
            self.kill(role)

    def kubeconfig_of(self, user: str, group: str, url: str = "") -> Path:
        """A kubeconfig with a client certificate for this user; `url` is that of a proxy."""
        certificate, key = self.certificates.issue(user, group)
        server = {"server": url or self.url, "certificate-authority": str(self.certificates.ca)}
        client = {"client-certificate": str(certificate), "client-key": str(key)}
        path = self.folder / f"kubeconfig-{certificate.stem}-{(url or self.url)[-5:]}"
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "rehearsal",
            "clusters": [{"name": "rehearsal", "cluster": server}],
            "users": [{"name": user, "user": client}],
            "contexts": [{"name": "rehearsal", "context": {"cluster": "rehearsal", "user": user}}],
        }
        path.write_text(yaml.safe_dump(content))
        return path

    def _arguments(self, role: str) -> list[str]:
        folder, issued = self.folder, self.certificates
        if role == ETCD:
            return [
                f"--data-dir={folder / 'etcd'}",
                f"--listen-client-urls={self._etcd}",
                f"--advertise-client-urls={self._etcd}",
                f"--listen-peer-urls={self._peers}",
                f"--initial-advertise-peer-urls={self._peers}",
                f"--initial-cluster=default={self._peers}",
                "--unsafe-no-fsync",
                "--log-level=warn",
            ]
        if role == API_SERVER:
            return [
                f"--etcd-servers={self._etcd}",
                "--bind-address=127.0.0.1",
                "--advertise-address=127.0.0.1",
                f"--secure-port={self.port}",
                f"--tls-cert-file={self._server[0]}",
                f"--tls-private-key-file={self._server[1]}",
                f"--client-ca-file={issued.ca}",
                f"--cert-dir={folder}",
                "--authorization-mode=RBAC",
                "--service-account-issuer=https://kubernetes.default.svc",
                f"--service-account-signing-key-file={issued.account_key}",
                f"--service-account-key-file={issued.account_key}",
                "--service-cluster-ip-range=10.0.0.0/24",
                "--disable-admission-plugins=ServiceAccount",
                "--allow-privileged",
                "--watch-cache",
            ]
        return [
            f"--kubeconfig={self.kubeconfig}",
            f"--controllers={','.join(RUN_CONTROLLERS)}",
            "--leader-elect=false",
            "--bind-address=127.0.0.1",
            f"--secure-port={free_port()}",
            f"--cert-dir={folder / 'controllers'}",
            f"--root-ca-file={issued.ca}",
            f"--service-account-private-key-file={issued.account_key}",
            "--kube-api-qps=200",
            "--kube-api-burst=400",
            "--concurrent-gc-syncs=2",
        ]

    def start(self, role: str) -> None:
        """Starts a role and waits until it answers."""
        self.launch(role)
        self.await_ready(role)

    def launch(self, role: str) -> None:
        """Starts a role; only in the main thread, as it ends with the thread that launched it."""
        with (self.folder / f"{role}.log").open("ab") as written:
            self._running[role] = subprocess.Popen(  # noqa: S603 - the binary that was named
                [*bound_to_us(self._binary), role, *self._arguments(role)],
                stdin=subprocess.DEVNULL,
                stdout=written,
                stderr=written,
                env={**os.environ, "GOGC": "200", "GOMAXPROCS": "2"},
                # Ctrl-C in a terminal is for us: an API server whose etcd ends first takes 30 s.
                start_new_session=True,
            )

    def await_ready(self, role: str) -> None:
        if role == CONTROLLERS:
            return  # its effects show in the API
        process = self._running[role]
        until = monotonic_s() + START_S
        while not self._answers(role):
            if process.poll() is not None or monotonic_s() > until:
                end = (self.folder / f"{role}.log").read_text(errors="replace")[-3000:]
                said = f"the end of its log:\n{printable(end)}" if end else "it printed nothing"
                raise WindtunnelError(f"{role} did not start; {said}", where=str(self._binary))
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.05)

    def _answers(self, role: str) -> bool:
        try:
            if role == ETCD:
                return bool(self._read(f"{self._etcd}/health"))
            return self._read(f"{self.url}/readyz") == b"ok"
        except OSError:
            return False

    def _read(self, url: str, body: dict[str, Any] | None = None) -> bytes:
        context = None
        if url.startswith("https"):
            context = ssl.create_default_context(cafile=str(self.certificates.ca))
            stem = self.certificates.folder / "admin"
            context.load_cert_chain(f"{stem}.crt", f"{stem}.key")
        data = None if body is None else json.dumps(body).encode()
        with urllib.request.urlopen(url, data, timeout=5, context=context) as answer:  # noqa: S310
            content: bytes = answer.read()
            return content

    def kill(self, role: str) -> None:
        """Sends SIGKILL, also to a stopped role; does nothing if it does not run."""
        process = self._running.pop(role, None)
        if process is not None:
            process.kill()
            process.wait()
