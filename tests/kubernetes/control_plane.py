"""A real Kubernetes control plane for tests: built from Go modules once, started on loopback.

    python -m tests.kubernetes.control_plane missing   prints why it cannot start here, if so
    python -m tests.kubernetes.control_plane build     builds it and helm, unless they are cached
    python -m tests.kubernetes.control_plane apiserver the same without helm
    python -m tests.kubernetes.control_plane run       starts one until Ctrl-C, prints KUBECONFIG

`KubernetesControlPlane` of `windtunnel.live.rehearse` starts the roles of the binary that is built
from `tests/kubernetes/apiserver`; `StageControlPlane` also stops and restores them.
"""

import asyncio
import contextlib
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from windtunnel.live.rehearse.control_plane import (
    API_SERVER,
    ETCD,
    ROLES,
    KubernetesControlPlane,
    cache_folder,
)

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
"""Logs only the requests of service accounts, which the tests of permissions read."""


class StageControlPlane(KubernetesControlPlane):
    """Its roles may be killed, stopped and started, and etcd's history compacted and restored."""

    def __init__(self, folder: Path, binary: Path) -> None:
        super().__init__(folder, binary)
        (folder / "audit.yaml").write_text(yaml.safe_dump(AUDIT))

    def _arguments(self, role: str) -> list[str]:
        found = super()._arguments(role)
        if role == API_SERVER:
            found.append(f"--audit-policy-file={self.folder / 'audit.yaml'}")
            found.append(f"--audit-log-path={self.folder / 'audit.log'}")
        return found

    def pids(self) -> list[int]:
        """The running processes."""
        return [process.pid for process in self._running.values()]

    def requests_of(self, account: str) -> list[dict[str, Any]]:
        """All requests of a service account so far, from the API server's audit log."""
        user = f"system:serviceaccount:{account}"
        lines = (self.folder / "audit.log").read_text().splitlines()
        return [one for one in map(json.loads, lines) if one["user"]["username"] == user]

    def check(self) -> None:
        """Raises if something started no longer runs: it may have failed, or a test killed it."""
        for role, process in self._running.items():
            if process.poll() is not None:
                end = (self.folder / f"{role}.log").read_text(errors="replace")[-3000:]
                ended = f"{role} ended with status {process.returncode}"
                raise RuntimeError(f"{ended}; the end of its log:\n{end}")
        missing = [role for role in ROLES if role not in self._running]
        if missing:
            raise RuntimeError(f"these were killed: {', '.join(missing)}")

    @contextlib.contextmanager
    def stopped(self, role: str) -> Iterator[None]:
        """Sends SIGSTOP, and SIGCONT at the end: connections stay open and nothing answers."""
        process = self._running[role]
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)  # its threads stop one after another
        try:
            yield
        finally:
            process.send_signal(signal.SIGCONT)

    async def restart(self) -> None:
        """Starts the API server again after a kill, without blocking the event loop."""
        self.launch(API_SERVER)
        await asyncio.to_thread(self.await_ready, API_SERVER)

    def save_etcd(self) -> None:
        """Saves all of etcd's data for `restore_etcd`; the API server must have been killed."""
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


def binary(sources: Path = SOURCES) -> Path:
    """Where the cache has a program, built or not: by what it is built from."""
    digest = hashlib.sha256(" ".join(version_flags(sources)).encode())
    for name in ("main.go", "go.mod", "go.sum"):
        if (sources / name).is_file():
            digest.update((sources / name).read_bytes())
    return cache_folder() / f"{sources.name}-{digest.hexdigest()[:16]}"


def version_flags(sources: Path) -> list[str]:
    """What tells an API server which version it is of; none for other programs."""
    text = (sources / "go.mod").read_text(encoding="utf-8")
    found = re.search(r"^\tk8s\.io/kubernetes (v(\d+)\.(\d+)\S*)$", text, re.MULTILINE)
    names = ("gitVersion", "gitMajor", "gitMinor")
    values = () if found is None else found.groups()
    return [
        f"-X k8s.io/component-base/version.{name}={value}"
        for name, value in zip(names, values, strict=False)
    ]


def build(sources: Path = SOURCES, package: str = ".") -> Path:
    """Builds a program where the cache has none; that takes many minutes of CPU time, once."""
    path = binary(sources)
    if path.is_file():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        made = Path(folder) / sources.name
        jobs = str(os.cpu_count() or 1)
        linked = ["-s", "-w", *version_flags(sources)]
        command = ["nice", "-n", "5", "go", "build", "-p", jobs, "-trimpath", "-buildvcs=false"]
        subprocess.run(
            [*command, "-ldflags", " ".join(linked), "-o", str(made), package],
            cwd=sources,
            check=True,
        )
        made.rename(path)
    return path


def why_not() -> str:
    """Why these tests cannot run here; empty if they can."""
    if os.environ.get("KUBECONFIG") or binary().is_file() or can_build():
        return ""
    return "there is neither Go 1.21 to build an API server with, nor a cluster in KUBECONFIG"


def can_build() -> bool:
    """Whether Go is available; since 1.21 it fetches the newer Go that `go.mod` asks for."""
    if shutil.which("go") is None:
        return False
    said = subprocess.run(["go", "env", "GOVERSION"], capture_output=True, text=True, check=False)
    numbers = said.stdout.strip().removeprefix("go").split(".")[:2]
    return len(numbers) == 2 and tuple(int("0" + one) for one in numbers) >= (1, 21)


def main(arguments: list[str]) -> None:
    if arguments == ["missing"]:
        sys.stdout.write(why_not())
    elif arguments == ["build"]:
        helm = build(SOURCES.with_name("helm"), "helm.sh/helm/v3/cmd/helm")
        sys.stdout.write(f"{build()}\n{helm}\n")
    elif arguments == ["apiserver"]:
        sys.stdout.write(f"{build()}\n")
    elif arguments == ["run"]:
        with (
            tempfile.TemporaryDirectory() as folder,
            KubernetesControlPlane(Path(folder), build()) as plane,
        ):
            sys.stdout.write(f"export KUBECONFIG={plane.kubeconfig}\n")
            sys.stdout.flush()
            ends = {signal.SIGINT, signal.SIGTERM}
            signal.pthread_sigmask(signal.SIG_BLOCK, ends)
            signal.sigwait(ends)
    else:
        raise SystemExit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
