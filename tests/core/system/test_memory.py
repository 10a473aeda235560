"""What a process may still take is the least of machine, control groups and limits."""

from pathlib import Path

from windtunnel.core.system.memory import available_bytes, used_bytes

GIB = 1 << 30


def system(root: Path, groups: str) -> tuple[Path, Path]:
    proc = root / "proc"
    put(proc / "meminfo", f"MemTotal: 1 kB\nMemAvailable:    {8 * GIB >> 10} kB")
    put(proc / "self" / "cgroup", groups)
    return proc, root / "cgroup"


def put(path: Path, content: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{content}\n")


def test_the_machine_says_how_much_there_is(tmp_path: Path) -> None:
    assert available_bytes(*system(tmp_path, "9:cpu:/")) == 8 * GIB


def test_a_group_and_those_above_it_have_limits(tmp_path: Path) -> None:
    proc, cgroup = system(tmp_path, "0::/pods/one")
    put(cgroup / "pods" / "one" / "memory.max", "max")
    put(cgroup / "pods" / "one" / "memory.current", GIB)
    assert available_bytes(proc, cgroup) == 8 * GIB
    put(cgroup / "pods" / "memory.max", 4 * GIB)
    put(cgroup / "pods" / "memory.current", 3 * GIB)
    put(cgroup / "pods" / "memory.stat", f"anon 1\nfile {GIB // 2}")
    assert available_bytes(proc, cgroup) == GIB + GIB // 2


def test_the_older_form_of_groups(tmp_path: Path) -> None:
    proc, cgroup = system(tmp_path, "5:devices:/\n4:memory:/one\n0::/")
    put(cgroup / "memory" / "one" / "memory.limit_in_bytes", 2 * GIB)
    put(cgroup / "memory" / "one" / "memory.usage_in_bytes", GIB)
    put(cgroup / "memory" / "memory.limit_in_bytes", 9223372036854771712)
    put(cgroup / "memory" / "memory.usage_in_bytes", GIB)
    assert available_bytes(proc, cgroup) == GIB


def test_a_system_that_says_nothing(tmp_path: Path) -> None:
    assert available_bytes(tmp_path, tmp_path) is None


def test_this_process_uses_memory() -> None:
    before = used_bytes()
    held = bytearray(64 << 20)
    assert used_bytes() - before > (32 << 20)
    assert len(held) == 64 << 20
