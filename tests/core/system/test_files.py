"""Input files are read whole, but never without end."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from windtunnel.core.errors import InputError
from windtunnel.core.system.files import read_bounded
from windtunnel.settings.document import read_text

MIB = 1 << 20


def test_a_file_is_read_whole_up_to_its_limit(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * MIB)
    assert read_bounded(path, MIB) == b"x" * MIB
    path.write_bytes(b"x" * (MIB + 1))
    with pytest.raises(InputError, match=r"file: the file is too large; allowed: up to 1 MiB"):
        read_bounded(path, MIB)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes with a name here")
def test_a_pipe_is_refused_without_waiting_for_its_writer(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(
        InputError, match="pipe: the profile cannot be read: it is not a regular file"
    ):
        read_bounded(tmp_path / "pipe", MIB, subject="the profile")


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="there are no device files here")
def test_a_device_is_refused() -> None:
    with pytest.raises(
        InputError, match="/dev/zero: the file cannot be read: it is not a regular file"
    ):
        read_bounded(Path("/dev/zero"), MIB)


@pytest.mark.parametrize("name", ["absent", "null\0character", "x" * 5000])
def test_what_cannot_be_opened_gets_a_sentence(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="the file cannot be read: "):
        read_bounded(tmp_path / name, MIB)


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the file cannot be read: it is not a regular file"):
        read_bounded(tmp_path, MIB)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes with a name here")
def test_a_scenario_is_read_from_a_pipe_unless_nobody_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waited for ever for a writer."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)  # so that the writer need not wait for one
    writer = os.open(pipe, os.O_WRONLY)
    os.write(writer, b"name: piped\n")
    with ThreadPoolExecutor() as pool:
        text = pool.submit(read_text, pipe)
        os.close(writer)
        assert text.result() == "name: piped\n"
    os.close(reader)
    monkeypatch.setattr("windtunnel.core.system.files.PIPE_WAIT_S", 0.01)
    with pytest.raises(InputError, match=r"pipe: .*nothing was written to it for 0\.01 s"):
        read_text(pipe)
