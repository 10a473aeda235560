"""Kubeconfig files and service accounts; wrong ones are refused with a sentence, and secrets stay
secret.
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from windtunnel.core.errors import InputError
from windtunnel.live.kubernetes.client import open_client
from windtunnel.live.kubernetes.config import (
    REREAD_S,
    Credentials,
    check_namespace,
    in_cluster,
    load_config,
)
from windtunnel.live.kubernetes.errors import NoCredentials

UNDATED = """echo '{"status": {"token": "t", "expirationTimestamp": "soon"}}'"""
CLUSTER = {"server": "http://127.0.0.1:1"}


def kubeconfig(
    folder: Path, user: dict[str, Any], cluster: dict[str, Any] | None = None, name: str = "config"
) -> Path:
    content = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u", "namespace": "team"}}],
        "clusters": [{"name": "k", "cluster": CLUSTER if cluster is None else cluster}],
        "users": [{"name": "u", "user": user}],
    }
    path = folder / name
    path.write_text(yaml.safe_dump(content))
    return path


def test_a_token_file_counts_from_the_kubeconfig_and_is_read_again(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("first\n")
    config = load_config(kubeconfig(tmp_path, {"tokenFile": "token"}))
    assert (config.server, config.namespace) == ("http://127.0.0.1:1", "team")
    credentials = config.credentials
    assert credentials.cached(0.0) is None
    assert credentials.read(0.0) == "first"
    (tmp_path / "token").write_text("second\n")
    assert credentials.cached(REREAD_S - 1) == "first"
    assert credentials.cached(REREAD_S) is None
    assert credentials.read(REREAD_S) == "second"
    credentials.refused("first")
    assert credentials.cached(REREAD_S + 1) == "second", "the refused one is replaced already"
    credentials.refused("second")
    assert credentials.cached(REREAD_S + 1) is None


def test_many_requests_read_the_token_once() -> None:
    started = []

    def read() -> tuple[str, float]:
        started.append(1)
        return f"token {len(started)}", 100.0

    async def ask() -> list[str]:
        credentials = Credentials(read)
        first = await asyncio.gather(*(credentials.token() for _ in range(20)))
        credentials.refused("token 1")
        return [*first, *await asyncio.gather(*(credentials.token() for _ in range(20)))]

    assert asyncio.run(ask()) == ["token 1"] * 20 + ["token 2"] * 20
    assert len(started) == 2


def test_a_plugin_prints_the_token_and_when_it_expires(tmp_path: Path) -> None:
    program = (
        "import json, os; asked = json.loads(os.environ['KUBERNETES_EXEC_INFO']);"
        "print(json.dumps({'status': {'token': os.environ['WHO'] + '-' + asked['kind'],"
        "'expirationTimestamp': '2001-01-01T00:00:00Z'}}))"
    )
    plugin = {"command": sys.executable, "args": ["-c", program]}
    plugin["env"] = [{"name": "WHO", "value": "me"}]  # type: ignore[list-item]
    credentials = load_config(kubeconfig(tmp_path, {"exec": plugin})).credentials
    assert credentials.read(0.0) == "me-ExecCredential"
    assert credentials.cached(0.1) is None, "it has expired"


def test_a_token_that_cannot_be_read_is_an_error_of_the_request(tmp_path: Path) -> None:
    """Reflectors and elections try again; the program does not end."""

    async def ask() -> None:
        config = load_config(kubeconfig(tmp_path, {"tokenFile": "absent"}))
        async with open_client(config) as client:
            await client.request("GET", "/version")

    with pytest.raises(NoCredentials, match="absent: the token cannot be read"):
        asyncio.run(ask())


def test_of_several_files_the_first_entry_of_a_name_counts(tmp_path: Path) -> None:
    first = kubeconfig(tmp_path, {"token": "one"}, name="first")
    second = kubeconfig(tmp_path, {"token": "two"}, {"server": "http://other"}, "second")
    named = {"KUBECONFIG": f"{tmp_path / 'absent'}:{first}:{second}"}
    config = load_config(environment=named)
    assert config.server == "http://127.0.0.1:1"
    assert config.credentials.read(0.0) == "one"
    assert "one" not in repr(config)


@pytest.mark.parametrize(
    ("user", "cluster", "said"),
    [
        ({"username": "u", "password": "p"}, None, "username are not supported"),
        ({"token": "a b\nc"}, None, "a character that no token has"),
        ({"tokenFile": "absent"}, None, "the token cannot be read"),
        ({}, {"server": "ftp://x"}, "'ftp://x' is not an http:// or https:// address"),
        ({}, {}, "the cluster's server: '' is not an http"),
        ({"token": "t"}, {"server": "https://me:pw@x"}, "server: an address has no user and no p"),
        ({"tokenFile": "/dev/zero"}, None, "the token cannot be read: it is not a regular file"),
        ({"tokenFile": "huge"}, None, "the token is too large; allowed: up to 64 KiB"),
        ({}, {"server": "https://x", "certificate-authority-data": "%"}, "is not base64"),
        ({}, {"server": "https://x", "certificate-authority-data": "YWJj"}, "not a PEM"),
        ({"client-certificate-data": "YWJj"}, {"server": "https://x"}, "needs its key"),
        ({"exec": {"command": "/absent"}}, None, "'/absent' failed"),
        ({"exec": {"args": []}}, None, "exec is malformed; allowed: a mapping with command"),
        ({"exec": {"command": "x", "env": [{"name": "A"}]}}, None, "exec is malformed"),
        ({"exec": {"command": "sh", "args": ["-c", UNDATED]}}, None, "no valid expiration date"),
        ("me", None, "an entry in the kubeconfig's users is malformed"),
    ],
)
def test_a_wrong_configuration_is_refused(
    tmp_path: Path, user: dict[str, Any], cluster: dict[str, Any] | None, said: str
) -> None:
    (tmp_path / "huge").write_bytes(b"x" * ((64 << 10) + 1))
    with pytest.raises(InputError, match=said) as error:
        load_config(kubeconfig(tmp_path, user, cluster)).credentials.read(0.0)
    assert "pw" not in str(error.value)


def test_no_configuration_at_all_says_where_one_is_looked_for(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no Kubernetes cluster is configured"):
        load_config(environment={"HOME": str(tmp_path)})
    with pytest.raises(InputError, match="no context 'b'; allowed: c"):
        load_config(kubeconfig(tmp_path, {}), "b")
    path = tmp_path / "nameless"
    path.write_text(json.dumps({"clusters": [{"cluster": {}}]}))
    with pytest.raises(InputError, match="an entry in the kubeconfig's clusters is malformed"):
        load_config(path)
    for name in ("../x", "Upper", "a" * 64):
        with pytest.raises(InputError, match="cannot be a namespace; allowed: a DNS label"):
            check_namespace(name, "--namespace")
    path = tmp_path / "list"
    path.write_text(json.dumps([1]))
    with pytest.raises(InputError, match="not a mapping"):
        load_config(path)


def test_a_pod_without_its_service_account_is_told(tmp_path: Path) -> None:
    environment = {"KUBERNETES_SERVICE_HOST": "::1", "KUBERNETES_SERVICE_PORT": "443"}
    with pytest.raises(InputError, match="the CA of the cluster cannot be read"):
        in_cluster(environment, tmp_path)
