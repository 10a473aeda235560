"""How much memory this process uses, and how much more it may use: machine, cgroups, ulimit."""

import os
from pathlib import Path

PROC = Path("/proc")
CGROUP = Path("/sys/fs/cgroup")
NO_LIMIT = 1 << 62
"""Control groups without a limit report at least this number, or `max`."""


def used_bytes() -> int:
    """Resident memory of this process; 0 where the system does not report it."""
    return _pages("statm", 1)


def _pages(file: str, field: int) -> int:
    try:
        with open(f"/proc/self/{file}", "rb") as said:
            return int(said.read().split()[field]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def available_bytes(proc: Path = PROC, cgroup: Path = CGROUP) -> int | None:
    """Memory that this process may still allocate; None where the system does not report it.

    It is the least of what the machine, the control groups of the process and `ulimit -v` leave.
    """
    left = [_of_machine(proc), *_of_groups(proc, cgroup), _of_address_space()]
    known = [one for one in left if one is not None]
    return max(0, min(known)) if known else None


def _of_machine(proc: Path) -> int | None:
    for line in _lines(proc / "meminfo"):
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def _of_groups(proc: Path, cgroup: Path) -> list[int]:
    """What each control group leaves, from that of this process up to the root: any may have a
    limit."""
    found = []
    for line in _lines(proc / "self" / "cgroup"):
        _, kinds, inside = line.strip().split(":", 2)
        if kinds == "":
            root, limit, usage, cached = cgroup, "memory.max", "memory.current", "file"
        elif "memory" in kinds.split(","):
            root, limit = cgroup / "memory", "memory.limit_in_bytes"
            usage, cached = "memory.usage_in_bytes", "total_cache"
        else:
            continue
        group = Path(inside.lstrip("/"))
        for one in (root / group, *[root / above for above in group.parents], root):
            most, used = _number(one / limit), _number(one / usage)
            if most is not None and used is not None and most < NO_LIMIT:
                # Pages of files are dropped when memory is short.
                found.append(most - used + _of_stat(one / "memory.stat", cached))
    return found


def _of_stat(file: Path, name: str) -> int:
    for line in _lines(file):
        if line.startswith(f"{name} "):
            return int(line.split()[1])
    return 0


def _of_address_space() -> int | None:
    try:
        import resource
    except ImportError:
        return None
    most, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if most == resource.RLIM_INFINITY else most - _pages("statm", 0)


def _number(file: Path) -> int | None:
    for line in _lines(file):
        return int(line) if line.strip().isdigit() else None
    return None


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text().splitlines()
    except OSError:
        return []
