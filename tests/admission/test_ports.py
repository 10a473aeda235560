"""Admission is driven through its ports with nothing of the twin or the engine imported."""

import subprocess
import sys


def test_admission_needs_neither_twin_nor_engine() -> None:
    command = [sys.executable, "-m", "tests.admission.ports"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
