"""The processes of a rehearsal's control plane end with the process that started them."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from threading import Event

import pytest

from windtunnel.core.clock import monotonic_s
from windtunnel.core.errors import WindtunnelError
from windtunnel.live.rehearse.control_plane import KubernetesControlPlane

PARENT = """
import subprocess, sys
from pathlib import Path
from windtunnel.live.rehearse.control_plane import bound_to_us
child = subprocess.Popen([*bound_to_us(Path(sys.argv[1])), "600"])
print(child.pid, flush=True)
sys.stdin.read()
"""


def ended(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends children with their parent")
def test_a_role_ends_when_its_parent_is_killed() -> None:
    sleep = shutil.which("sleep")
    assert sleep is not None
    command = [sys.executable, "-c", PARENT, sleep]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        until_s = monotonic_s() + 30.0
        while os.readlink(f"/proc/{child}/exe") != os.path.realpath(sleep):
            assert monotonic_s() < until_s
            Event().wait(0.01)
        os.kill(parent.pid, signal.SIGKILL)
    while not ended(child):
        assert monotonic_s() < until_s
        Event().wait(0.01)


def test_a_program_that_is_no_api_server_is_named(tmp_path: Path) -> None:
    program = shutil.which("true")
    assert program is not None
    plane = KubernetesControlPlane(tmp_path, Path(program))
    with (
        pytest.raises(WindtunnelError, match="etcd did not start; it printed nothing") as caught,
        plane,
    ):
        pass
    assert caught.value.where == program
    (tmp_path / "etcd.log").write_text("\x1b[31mno such role")
    with (
        pytest.raises(WindtunnelError, match=r"the end of its log:\n\\u001b\[31mno such role"),
        plane,
    ):
        pass
