"""kill -9 at random moments of simulate, sweep and batch: no result torn, lost or duplicated."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.live.server import Server

from benchmarks.claim import Claim, report
from windtunnel.core.clock import monotonic_s
from windtunnel.core.random import Stream
from windtunnel.core.system.files import DRAFT
from windtunnel.search.execution.cache import Cache

KILLS = {"simulate": 80, "sweep": 60, "batch": 60}
SEED = 20261116
LATE_SHARE, LATE_S = 0.4, 0.12
"""Share of kills while files are written, and how long after the first file appears."""
ROWS = 300

SCENARIO = """\
name: killed
duration: 8s
workload:
  - name: chat
    arrivals: {process: poisson, rate: 30/s}
    prompt_tokens: 200
    output_tokens: {distribution: uniform, min: 1, max: 60}
model: llama-3.1-8b
serving:
  pools:
    - {name: main, replicas: 2, accelerator: h200}
"""

Folder = dict[str, str]


class Tally:
    """The findings after the kills; each sentence is a failure."""

    def __init__(self) -> None:
        self.kills = 0
        self.torn: list[str] = []
        self.lost: list[str] = []
        self.twice: list[str] = []

    @property
    def broken(self) -> list[str]:
        return [*self.torn, *self.lost, *self.twice]


def content_of(folder: Path) -> Folder:
    """A digest of every file, by name; empty if there is no folder."""
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.glob("*"))
        if path.is_file()
    }


class Killer:
    """Starts commands and kills them: at a share of their CPU time, or while they write."""

    def __init__(self, tally: Tally, dice: Stream) -> None:
        self._tally = tally
        self._dice = dice

    def whole(self, *args: object) -> float:
        """Runs a command to its end, and returns its CPU time."""
        before = os.times()
        subprocess.run(_command(args), check=True, capture_output=True)
        after = os.times()
        return after.children_user + after.children_system - before[2] - before[3]

    def kill(self, cpu_s: float, writes: Callable[[], bool], *args: object) -> bool:
        """Kills a command; False if it ended before."""
        process = subprocess.Popen(
            _command(args), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        late = self._dice.uniform() < LATE_SHARE
        at_s = self._dice.uniform() * (LATE_S if late else cpu_s)
        try:
            while process.poll() is None and not (
                writes() if late else _cpu_s(process.pid) >= at_s
            ):
                pass
            if late:
                since_s = monotonic_s()
                while process.poll() is None and monotonic_s() - since_s < at_s:
                    pass
        finally:
            process.send_signal(signal.SIGKILL)
        self._tally.kills += 1
        return process.wait() == -signal.SIGKILL


def _command(args: tuple[object, ...]) -> list[str]:
    return [sys.executable, "-m", "windtunnel", *map(str, args)]


def _cpu_s(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return float("inf")
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def drafts_in(folder: Path) -> list[str]:
    return [path.name for path in folder.glob(f"{DRAFT}*")]


def simulate(place: Path, kills: int, dice: Stream) -> Tally:
    """After each kill the folder is that of one of two runs, file by file."""
    tally = Tally()
    killer = Killer(tally, dice)
    (place / "one.yaml").write_text(SCENARIO)
    expected = []
    for seed in (1, 2):
        cpu_s = killer.whole(
            "simulate", place / "one.yaml", "--seed", seed, "-o", place / f"{seed}"
        )
        expected.append(content_of(place / f"{seed}"))
    folder = place / "run"
    killer.whole("simulate", place / "one.yaml", "--seed", 1, "-o", folder)
    held = 0
    while tally.kills < kills:
        seed = 2 - held

        def writes() -> bool:
            return any(place.glob(f"{DRAFT}*/run/result.json"))

        killer.kill(cpu_s, writes, "simulate", place / "one.yaml", "--seed", seed, "-o", folder)
        found = content_of(folder)
        if found in expected:
            held = expected.index(found)
        elif not found:
            tally.lost.append(f"simulate, kill {tally.kills}: the folder is gone")
        else:
            tally.torn.append(f"simulate, kill {tally.kills}: {sorted(found)}")
    killer.whole("simulate", place / "one.yaml", "--seed", 1, "-o", folder)
    if content_of(folder) != expected[0] or drafts_in(place):
        tally.torn.append(f"simulate, at the end: {drafts_in(place)}")
    return tally


def sweep(place: Path, kills: int, dice: Stream) -> Tally:
    """Finished points are kept, and the results are those of an undisturbed sweep."""
    tally = Tally()
    killer = Killer(tally, dice)
    (place / "one.yaml").write_text(SCENARIO)
    points = ("--vary", "serving.pools.0.replicas=1..3", "--seeds", 2, "--jobs", 2)
    args = ("sweep", place / "one.yaml", *points, "-o")
    cpu_s = killer.whole(*args, place / "whole")
    expected = content_of(place / "whole")
    folder, number, kept = place / "0", 0, set[str]()
    while tally.kills < kills:

        def writes() -> bool:
            return bool(_points_in(folder))  # noqa: B023 - called in this round

        killer.kill(cpu_s, writes, *args, folder)
        there = {f"{one.parent.name}{one.stem}" for one in _points_in(folder)}
        bad = [one for one in sorted(there) if Cache(folder / "points").find(one) is None]
        tally.torn += [f"sweep, kill {tally.kills}: point {one} is damaged" for one in bad]
        tally.lost += [f"sweep, kill {tally.kills}: point {one}" for one in sorted(kept - there)]
        kept = there
        found = content_of(folder)
        known = {name: expected[name] for name in found if name in expected}
        if found != known or ("results.parquet" in found) != ("report.html" in found):
            tally.torn.append(f"sweep, kill {tally.kills}: {sorted(found)}")
        if len(kept) == 6:
            killer.whole(*args, folder)
            left = [*drafts_in(folder), *drafts_in(folder / "points")]
            if content_of(folder) != expected or left:
                tally.torn.append(f"sweep, after kill {tally.kills}: {left}")
            number += 1
            folder, kept = place / str(number), set()
    return tally


def _points_in(folder: Path) -> list[Path]:
    """The files of finished points; the sweep may rename and remove drafts meanwhile."""
    points = folder / "points"
    return [
        Path(where, name)
        for where, _, names in os.walk(points)
        for name in names
        if name.endswith(".json") and Path(where).parent == points
    ]


def batch(place: Path, kills: int, dice: Stream) -> Tally:
    """Finished rows are kept and not sent again, and in the end each exists once."""
    tally = Tally()
    killer = Killer(tally, dice)
    rows = "".join(json.dumps({"id": f"r{n}", "prompt": f"say {n}"}) + "\n" for n in range(ROWS))
    (place / "in.jsonl").write_text(rows)
    with Server().running() as server:
        how = ("--endpoint", server.url, "--concurrency", 8, "--resume", "-o")
        args = ("batch", place / "in.jsonl", *how)
        cpu_s = killer.whole(*args, place / "whole.jsonl")
        number = 0
        while tally.kills < kills:
            out = place / f"{number}.jsonl"
            before = _finished(out)
            asked = len(server.asked)
            killer.kill(cpu_s, lambda: len(_finished(out)) > len(before), *args, out)  # noqa: B023
            after = _finished(out)
            if after[: len(before)] != before:
                tally.lost.append(f"batch, kill {tally.kills}: finished rows are gone")
            done = {f"say {one[1:]}" for one in before}
            again = [one.prompt for one in server.asked[asked:] if one.prompt in done]
            tally.twice += [f"batch, kill {tally.kills}: {one} asked again" for one in again]
            if len(after) == ROWS:
                killer.whole(*args, out)
                if sorted(_finished(out)) != sorted(f"r{n}" for n in range(ROWS)):
                    tally.lost.append(f"batch, after kill {tally.kills}: not each row once")
                number += 1
    return tally


def _finished(out: Path) -> list[str]:
    raw = out.read_bytes() if out.exists() else b""
    return [json.loads(line)["custom_id"] for line in raw[: raw.rfind(b"\n") + 1].splitlines()]


COMMANDS = {"simulate": simulate, "sweep": sweep, "batch": batch}


def main() -> None:
    kills = 0
    broken: list[str] = []
    for name, command in COMMANDS.items():
        with tempfile.TemporaryDirectory() as place:
            tally = command(Path(place), KILLS[name], Stream(SEED, name))
        print(f"{name}: {tally.kills} kills, {len(tally.torn)} torn, {len(tally.lost)} lost, "
              f"{len(tally.twice)} twice", flush=True)  # fmt: skip
        kills += tally.kills
        broken += tally.broken
    print("\n".join(broken))
    report(
        Claim(
            f"results torn, lost or made twice after {kills} kills at random moments",
            ours=float(len(broken)),
            baseline=float(kills),
            most=0.0,
            unit="",
            against="kills",
        )
    )


if __name__ == "__main__":
    main()
