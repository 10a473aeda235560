"""The system's limit on open files is raised as far as it goes, and said where it ends."""

import os
import subprocess
import sys

import pytest

pytest.importorskip("resource")

SCRIPT = """
import resource
from windtunnel.live.system import connections_allowed
resource.setrlimit(resource.RLIMIT_NOFILE, (128, 1024))
print([connections_allowed(wanted) for wanted in (10, 500, 5000)])
print(resource.getrlimit(resource.RLIMIT_NOFILE))
"""


def test_a_limit_is_raised_as_far_as_it_goes() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, env=os.environ
    )
    assert done.stdout == "[10, 500, 960]\n(1024, 1024)\n"
