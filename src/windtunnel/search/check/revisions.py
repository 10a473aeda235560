"""Files at a Git revision: the whole tree is unpacked, since a scenario refers to other files."""

import subprocess
import tarfile
import tempfile
from contextlib import ExitStack
from pathlib import Path

from windtunnel.core.errors import InputError

MOST_BYTES = 2 << 30
MOST_FILES = 200_000
SHORT = 8
"""Characters of an abbreviated commit hash."""


class Revisions(ExitStack):
    """Trees of the repository that contains a file, each unpacked once and removed at the end."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self._file = file
        self._folders: dict[str, Path] = {}
        folder = file.resolve().parent
        if not folder.is_dir():
            raise InputError("there is no such folder", where=str(folder))
        self.root = Path(_git(folder, "rev-parse", "--show-toplevel", where=str(file)))

    def commit(self, revision: str, option: str) -> str:
        """The full hash of the commit that a revision names."""
        hint = "`git fetch` gets remote branches; a shallow clone lacks their history"
        what = f"{revision!r} is not a revision of {self.root}"
        arguments = (
            "rev-parse",
            "--verify",
            "--quiet",
            "--end-of-options",
            f"{revision}^{{commit}}",
        )
        return _git(self.root, *arguments, where=option, what=what, hint=hint)

    def file(self, commit: str, path: Path, option: str) -> Path:
        """The path of the file in the tree of a commit; raises InputError if the commit lacks
        it."""
        found = self.find(commit, path)
        if found is None:
            what = f"the revision {commit[:SHORT]} has no file {path}"
            raise InputError(what, where=option, hint="name a revision that has it")
        return found

    def find(self, commit: str, path: Path) -> Path | None:
        """The same; None if the commit lacks it."""
        try:
            place = path.resolve().relative_to(self.root.resolve())
        except ValueError:
            return None
        found = self.tree(commit) / place
        return found if found.is_file() else None

    def tree(self, commit: str) -> Path:
        """The folder with all files of a commit."""
        if commit not in self._folders:
            folder = Path(self.enter_context(tempfile.TemporaryDirectory(prefix="windtunnel-")))
            _unpack(self.root, commit, folder)
            self._folders[commit] = folder
        return self._folders[commit]


def _unpack(root: Path, commit: str, folder: Path) -> None:
    command = ["git", "-C", str(root), "archive", "--format=tar", commit]
    size = files = 0
    with subprocess.Popen(  # noqa: S603 - no shell, and the commit is a hash from git
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None
        try:
            with tarfile.open(fileobj=process.stdout, mode="r|") as archive:
                for member in archive:
                    size += member.size
                    files += 1
                    if size > MOST_BYTES or files > MOST_FILES:
                        what = "the tree of this revision is too large to unpack"
                        allowed = f"{MOST_FILES:,} files and {MOST_BYTES >> 30} GiB"
                        raise InputError(what, where=commit[:SHORT], allowed=allowed)
                    archive.extract(member, folder, filter="data")
        except (tarfile.TarError, OSError) as error:
            what = f"the tree of this revision cannot be unpacked: {error}"
            raise InputError(what, where=commit[:SHORT]) from None
        finally:
            process.kill()


def _git(folder: Path, *arguments: str, where: str, what: str = "", hint: str | None = None) -> str:
    try:
        done = subprocess.run(  # noqa: S603 - no shell, and revisions cannot be options
            ["git", "-C", str(folder), *arguments],  # noqa: S607 - the user's own git
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError:
        what = "git is not installed, so there are no revisions"
        raise InputError(what, where=where, hint="give two files") from None
    if done.returncode:
        said = done.stderr.strip().splitlines()
        what = what or f"git cannot tell which repository it is in: {said[-1] if said else 'no'}"
        raise InputError(what, where=where, hint=hint)
    return done.stdout.strip()
