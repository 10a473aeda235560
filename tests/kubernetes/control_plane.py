"""A real Kubernetes control plane for tests: built from Go modules once, started on loopback.

    python -m tests.kubernetes.control_plane missing   says why it cannot be started here, if so
    python -m tests.kubernetes.control_plane build     builds it and helm, unless the cache has them
    python -m tests.kubernetes.control_plane run       starts one until Ctrl-C, prints KUBECONFIG

`ControlPlane` starts etcd, kube-apiserver and kube-controller-manager, which are roles of the
binary in `tests/kubernetes/apiserver`. A test may kill, stop and start each of them, and compact
etcd's history.
"""

import asyncio
import contextlib
import ctypes
import datetime
import hashlib
import ipaddress
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from windtunnel.core.clock import monotonic_s, unix_s

SOURCES: Final = Path(__file__).with_name("apiserver")
AUDIT: Final = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "Metadata", "userGroups": ["system:serviceaccounts"]},
        {"level": "None"},
    ],
}
"""Requests of service accounts alone: tests that are about rights read them."""
START_S: Final = 120.0
"""For one role; on a busy machine the API server alone takes half a minute."""
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


def binary(sources: Path = SOURCES) -> Path:
    """Where the cache has a program, built or not: by what it is built from."""
    digest = hashlib.sha256()
    for name in ("main.go", "go.mod", "go.sum"):
        if (sources / name).is_file():
            digest.update((sources / name).read_bytes())
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "windtunnel" / f"{sources.name}-{digest.hexdigest()[:16]}"


def build(sources: Path = SOURCES, package: str = ".") -> Path:
    """Builds a program where the cache has none; that takes many minutes of CPU time, once."""
    path = binary(sources)
    if path.is_file():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        made = Path(folder) / sources.name
        jobs = str(os.cpu_count() or 1)
        command = ["nice", "-n", "5", "go", "build", "-p", jobs, "-trimpath", "-buildvcs=false"]
        subprocess.run(
            [*command, "-ldflags", "-s -w", "-o", str(made), package],
            cwd=sources,
            check=True,
        )
        made.rename(path)
    return path


def why_not() -> str:
    """Why these tests cannot run here; empty where they can."""
    if os.environ.get("KUBECONFIG") or binary().is_file() or can_build():
        return ""
    return "there is neither Go 1.21 to build an API server with, nor a cluster in KUBECONFIG"


def can_build() -> bool:
    """Go since 1.21 fetches the newer Go that `go.mod` asks for."""
    if shutil.which("go") is None:
        return False
    said = subprocess.run(["go", "env", "GOVERSION"], capture_output=True, text=True, check=False)
    numbers = said.stdout.strip().removeprefix("go").split(".")[:2]
    return len(numbers) == 2 and tuple(int("0" + one) for one in numbers) >= (1, 21)


class Certificates:
    """A certificate authority in a folder, for servers and clients."""

    def __init__(self, folder: Path) -> None:
        self.folder: Final = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "windtunnel tests")])
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


def _die_with_parent() -> None:
    """Linux kills the child when the process that started it is gone, whatever happened to it."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


class ControlPlane:
    """etcd, the API server and the controllers, in a folder of their own."""

    def __init__(self, folder: Path, *, with_controllers: bool = True) -> None:
        self.folder: Final = folder
        self.port: Final = free_port()
        self.url: Final = f"https://127.0.0.1:{self.port}"
        self.certificates: Final = Certificates(folder)
        (folder / "audit.yaml").write_text(yaml.safe_dump(AUDIT))
        self._roles = ROLES if with_controllers else ROLES[:2]
        self._binary = build()
        self._etcd = f"http://127.0.0.1:{free_port()}"
        self._peers = f"http://127.0.0.1:{free_port()}"
        self._server = self.certificates.issue("kube-apiserver")
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self.kubeconfig: Final = self.kubeconfig_of("admin", "system:masters")

    def __enter__(self) -> "ControlPlane":
        try:
            for role in self._roles:
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

    def requests_of(self, account: str) -> list[dict[str, Any]]:
        """Every request of a service account so far, as the API server's audit log has it."""
        user = f"system:serviceaccount:{account}"
        lines = (self.folder / "audit.log").read_text().splitlines()
        return [one for one in map(json.loads, lines) if one["user"]["username"] == user]

    def kubeconfig_of(self, user: str, group: str, url: str = "") -> Path:
        """A kubeconfig with a client certificate of that user; `url` names a proxy in between."""
        certificate, key = self.certificates.issue(user, group)
        server = {"server": url or self.url, "certificate-authority": str(self.certificates.ca)}
        client = {"client-certificate": str(certificate), "client-key": str(key)}
        path = self.folder / f"kubeconfig-{certificate.stem}-{(url or self.url)[-5:]}"
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "tests",
            "clusters": [{"name": "tests", "cluster": server}],
            "users": [{"name": user, "user": client}],
            "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": user}}],
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
                f"--audit-policy-file={folder / 'audit.yaml'}",
                f"--audit-log-path={folder / 'audit.log'}",
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
        """Only in the main thread: the role ends with the thread that launched it."""
        with (self.folder / f"{role}.log").open("ab") as written:
            self._running[role] = subprocess.Popen(
                [self._binary, role, *self._arguments(role)],
                stdin=subprocess.DEVNULL,
                stdout=written,
                stderr=written,
                preexec_fn=_die_with_parent if sys.platform == "linux" else None,  # noqa: PLW1509
                env={**os.environ, "GOGC": "200", "GOMAXPROCS": "2"},
            )

    def await_ready(self, role: str) -> None:
        if role == CONTROLLERS:
            return  # what it does shows in the API
        process = self._running[role]
        until = monotonic_s() + START_S
        while not self._answers(role):
            if process.poll() is not None or monotonic_s() > until:
                end = (self.folder / f"{role}.log").read_text(errors="replace")[-3000:]
                raise RuntimeError(f"{role} did not start; the end of its log:\n{end}")
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
        with urllib.request.urlopen(url, data, timeout=5, context=context) as answer:
            content: bytes = answer.read()
            return content

    def check(self) -> None:
        """That all that was started still runs: a role may fail, or a test may have killed it."""
        for role, process in self._running.items():
            if process.poll() is not None:
                end = (self.folder / f"{role}.log").read_text(errors="replace")[-3000:]
                ended = f"{role} ended with status {process.returncode}"
                raise RuntimeError(f"{ended}; the end of its log:\n{end}")
        missing = [role for role in self._roles if role not in self._running]
        if missing:
            raise RuntimeError(f"a test before has killed {', '.join(missing)}")

    def kill(self, role: str) -> None:
        """SIGKILL, also of a role that is stopped; nothing where it does not run."""
        process = self._running.pop(role, None)
        if process is not None:
            process.kill()
            process.wait()

    @contextlib.contextmanager
    def stopped(self, role: str) -> Iterator[None]:
        """SIGSTOP, and SIGCONT at the end: connections stay open and nothing answers."""
        process = self._running[role]
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)  # its threads stop one after another
        try:
            yield
        finally:
            process.send_signal(signal.SIGCONT)

    async def restart(self) -> None:
        """The API server again, after a kill, while the event loop goes on."""
        self.launch(API_SERVER)
        await asyncio.to_thread(self.await_ready, API_SERVER)

    def save_etcd(self) -> None:
        """A copy of all that etcd holds, for `restore_etcd`; the API server is killed before."""
        self.kill(ETCD)
        shutil.copytree(self.folder / "etcd", self.folder / "saved")
        self.start(ETCD)

    def restore_etcd(self) -> None:
        self.kill(ETCD)
        shutil.rmtree(self.folder / "etcd")
        (self.folder / "saved").rename(self.folder / "etcd")
        self.start(ETCD)

    def compact(self, version: int) -> None:
        """Drops etcd's history before this revision."""
        self._read(f"{self._etcd}/v3/kv/compaction", {"revision": version, "physical": True})


def main(arguments: list[str]) -> None:
    if arguments == ["missing"]:
        sys.stdout.write(why_not())
    elif arguments == ["build"]:
        helm = build(SOURCES.with_name("helm"), "helm.sh/helm/v3/cmd/helm")
        sys.stdout.write(f"{build()}\n{helm}\n")
    elif arguments == ["run"]:
        with tempfile.TemporaryDirectory() as folder, ControlPlane(Path(folder)) as plane:
            sys.stdout.write(f"export KUBECONFIG={plane.kubeconfig}\n")
            sys.stdout.flush()
            ends = {signal.SIGINT, signal.SIGTERM}
            signal.pthread_sigmask(signal.SIG_BLOCK, ends)
            signal.sigwait(ends)
    else:
        raise SystemExit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
