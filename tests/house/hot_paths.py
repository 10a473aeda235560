"""What hot paths cost: as a program, it writes the record that tests hold them to.

Lines of Python are counted in the interpreted form, and are the same on every machine. What grows
with servers, queues or machines shows here long before a clock would show it. Instructions of the
processor are counted by valgrind in the compiled form: they show what lines hide, such as a copied
list or a number that is no longer kept unboxed. They depend on the Python and the processor.
"""

import gc
import json
import os
import platform
import re
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any

import windtunnel
from windtunnel.admission.leases import TaskLease
from windtunnel.admission.queues.groups import GroupShare
from windtunnel.admission.tasks.admission import LLM_WAIT, SUBMISSION, TaskAdmission
from windtunnel.core.random import Stream
from windtunnel.gangs.placement.placer import GangPlacer
from windtunnel.gangs.placement.requests import (
    GangRequest,
    GroupRequest,
    PackConstraint,
    UnboundPod,
)
from windtunnel.gangs.placement.space import Space
from windtunnel.twin.fleet.bench import Bench
from windtunnel.twin.fleet.workloads import world
from windtunnel.twin.run import run
from windtunnel.twin.scenario.load import load_text

RECORD = Path(__file__).parent / "hot_paths.json"
SOURCE = str(Path(windtunnel.__file__).parent)
SCENARIO = """
name: hot
seed: 1
model: llama-3.1-8b
workload:
  - name: chat
    count: {count}
    arrivals: {{process: poisson, rate: {rate}/s}}
    prompt_tokens: {{distribution: lognormal, mean: 512, cv: 0.5, min: 4, max: 8192}}
    output_tokens: {{distribution: lognormal, mean: {lengths}, cv: 0.5, min: 1, max: 8192}}
    prefix: {{tokens: 256, groups: 16}}
serving:
  pools: {pools}
  router: {router}
"""
SPLIT = """
  - {name: prompts, role: prefill, replicas: 2, accelerator: h200}
  - {name: answers, role: decode, replicas: 2, accelerator: h200}"""
AWARE = "{policy: weighted, scorers: {prefix-cache: 2, queue-depth: 1}, staleness: 50ms}"
LEAST_LOADED = "{policy: least-loaded}"
GATEWAY = """
  admission: {policy: tier-shed, threshold: 20}"""
Work = Callable[[], object]


def lines_of(work: Callable[[], object]) -> int:
    """How many lines of this package `work` runs."""
    count = 0

    def line(_: FrameType, event: str, __: Any) -> Any:
        nonlocal count
        count += event == "line"
        return line

    def call(frame: FrameType, _: str, __: Any) -> Any:
        return line if frame.f_code.co_filename.startswith(SOURCE) else None

    before = sys.gettrace()
    sys.settrace(call)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def _requests(count: int, *, check: bool = False, **settings: str) -> Work:
    """Whole requests, from their arrival to the result."""
    values = {"rate": "60", "lengths": "256", "router": LEAST_LOADED, "pools": _pool(4)} | settings
    plan = load_text(SCENARIO.format(count=count, **values))
    return lambda: run(plan, check=check)


def _pool(replicas: int, more: str = "") -> str:
    return f"[{{name: main, replicas: {replicas}, accelerator: h200{more}}}]"


def _tasks(count: int) -> Work:
    """Cycles of task admission on capacity that is taken."""
    admission = TaskAdmission("hot", {SUBMISSION: 16, LLM_WAIT: 8})
    demand = admission.demand({SUBMISSION: 1, LLM_WAIT: 1})
    groups = [GroupShare(f"g{number}", admitted_limit=8) for number in range(10)]
    for number in range(count + 100):
        admission.enqueue(f"t{number}", groups[number % 10], demand, 0.0)
    leases: list[TaskLease] = []
    while (selection := admission.select()) is not None:
        leases.append(admission.admit(selection, 0.0))

    def cycles() -> None:
        for number in range(count):
            admission.release(leases[number], 1.0)
            selection = admission.select()
            assert selection is not None
            leases.append(admission.admit(selection, 1.0))

    return cycles


def _gangs(count: int) -> Work:
    """Gangs of eight pods, each in one rack."""
    space = Space()
    space.add_topology("fleet", ["block", "rack"])
    for number in range(1_500):
        labels = {"block": f"b{number // 100}", "rack": f"r{number // 20}"}
        space.add_node(f"n{number}", {"nvidia.com/gpu": 8}, labels)
    shape = space.shape({"nvidia.com/gpu": 4})
    asks = []
    for number in range(count):
        name = f"g{number}"
        group = GroupRequest(name, 8, [UnboundPod(f"{name}-{pod}", shape) for pod in range(8)])
        asks.append(GangRequest(name, [group], order=number, pack=PackConstraint("rack")))
    placer = GangPlacer(space)
    return lambda: placer.plan(asks)


def _fleet(count: int) -> Work:
    """Needs of machines in the first step of a fleet, which has as many machines each time."""
    made = world(2_000, count, Stream(1, "hot"), merging=False)
    bench = Bench(made, lambda: 0.0, actions_per_cycle=0)
    bench.load_ms()
    bench.rollup_ms()
    return bench.step


PATHS: dict[str, Callable[[int], Work]] = {
    "request, 4 servers": _requests,
    "request, 64 servers": lambda count: _requests(count, pools=_pool(64)),
    "request, weighted routing, 4 servers": lambda count: _requests(count, router=AWARE),
    "request, weighted routing, 64 servers": lambda count: _requests(
        count, router=AWARE, pools=_pool(64)
    ),
    "request, split into prefill and decode": lambda count: _requests(count, pools=SPLIT),
    "request, overloaded gateway": lambda count: _requests(
        count, rate="400", pools=_pool(1), router=f"{LEAST_LOADED}{GATEWAY}"
    ),
    "request, server that preempts": lambda count: _requests(
        count, rate="400", lengths="1500", pools=_pool(1, ", engine: {kv_blocks: 6000}")
    ),
    "request, every invariant checked": lambda count: _requests(count, check=True),
    "cycle of task admission": _tasks,
    "gang of eight in a rack": _gangs,
    "need, first step of a fleet": _fleet,
}
COUNT = 150


_BUILT = sysconfig.get_config_var("CONFIG_ARGS") or ""
_FASTER = [flag for flag in ("--enable-optimizations", "--with-lto") if flag in _BUILT]
PLATFORM = " ".join([sysconfig.get_config_var("SOABI"), platform.python_compiler(), *_FASTER])
"""What counts of instructions depend on: the Python, how it was built, and the processor."""


def lines_each(name: str) -> float:
    """Lines that one more thing on this path takes."""
    few, many = (lines_of(PATHS[name](count)) for count in (COUNT, 2 * COUNT))
    return round((many - few) / COUNT, 1)


def instructions_each() -> dict[str, int]:
    """Instructions that one more thing on each path takes, in the compiled form."""
    with TemporaryDirectory() as folder:
        out = Path(folder) / "counts"
        # Each call of getsid, which nothing else calls, ends a file of counts and begins another.
        valgrind = ["valgrind", "-q", "--tool=callgrind", "--dump-before=getsid"]
        work = [sys.executable, "-m", "tests.house.hot_paths", "--run"]
        environment = os.environ | {"WINDTUNNEL_FORM": "compiled", "PYTHONHASHSEED": "0"}
        command = [*valgrind, f"--callgrind-out-file={out}", *work]
        subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
        counts = [_total(Path(f"{out}.{number}")) for number in range(1, 4 * len(PATHS) + 1)]
    during = counts[1::2]
    spread = zip(PATHS, during[::2], during[1::2], strict=True)
    return {name: round((many - few) / COUNT) for name, few, many in spread}


def _total(counts: Path) -> int:
    found = re.search(r"^totals: (\d+)", counts.read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1])


def _run_all() -> None:
    """Runs every path, for fewer things and for more, with a call of getsid around each."""
    gc.disable()  # a collection may fall into any of them
    for work in PATHS.values():
        work(COUNT)()  # what is done once, such as an import
        for count in (COUNT, 2 * COUNT):
            prepared = work(count)
            os.getsid(0)
            prepared()
            os.getsid(0)


def write() -> None:
    """Writes the record of this platform, and keeps those of others."""
    kept = json.loads(RECORD.read_text())
    record = {
        "lines": {name: lines_each(name) for name in PATHS},
        "instructions": kept["instructions"] | {PLATFORM: instructions_each()},
    }
    RECORD.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    if sys.argv[1:] == ["--run"]:
        _run_all()
    elif windtunnel.FORM == "compiled":  # there are no lines in it
        interpreted = os.environ | {"WINDTUNNEL_FORM": "interpreted"}
        subprocess.run([sys.executable, "-m", "tests.house.hot_paths"], env=interpreted, check=True)
    else:
        write()
