"""Runs the benchmark of the fleet, alone and beside the other work of a busy process."""

import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

import windtunnel
from windtunnel.core.clock import cpu_s, lap_s, monotonic_s
from windtunnel.core.random import Stream
from windtunnel.fleet.instruments import Instruments
from windtunnel.fleet.orders import MachineOrder
from windtunnel.twin.fleet.bench import MACHINES_PER_HOLDER, Bench, preemption_ms
from windtunnel.twin.fleet.workloads import URGENT, ZONES, BenchWorld, world

NEIGHBOUR_MACHINES = 2000
NO_LIMIT = 0
URGENT_NEEDS = (100, 500)


def measure(machines: int, needs: int, *, cap: int, seed: int, contention: bool) -> dict[str, Any]:
    """Measures all figures of one fleet, as plain data."""
    bench = Bench(_world(machines, needs, seed), cpu_s, actions_per_cycle=cap)
    figures: dict[str, Any] = {
        "machines": machines,
        "needs": needs,
        "form": windtunnel.FORM,
        "load_ms": bench.load_ms(),
        "rollup_ms": bench.rollup_ms(),
        "rows": bench.planner.needs.live,
        "satisfiable": bench.world.is_satisfiable,
    }
    gc.collect()
    figures |= _step(bench)
    done = bench.converge()
    gc.collect()
    figures["quiet_ms"] = bench.quiet_ms()
    figures["warm_ms"], figures["warm_fold_ms"] = bench.warm_ms()
    figures |= {
        "satisfied": done.satisfied,
        "actions": done.actions,
        "deferred": done.deferred,
        "deferral_reasons": done.deferral_reasons,
        "landed": done.landed,
        "duplicate_actions": done.duplicates,
        "cycles_to_converge": done.cycles,
        "events_per_s": done.events_per_s,
        "fetch_s_p50": done.fetch_s_p50,
        "fetch_s_p99": done.fetch_s_p99,
        "bytes_per_machine": bench.bytes_per_machine(),
    }
    del bench
    figures["unmerged"] = _unmerged(machines, needs, cap, seed)
    figures["preemption_ms"] = {
        kind: {
            f"{urgent}": preemption_ms(machines, urgent, kind, cpu_s)
            for urgent in URGENT_NEEDS
            if urgent * MACHINES_PER_HOLDER * len(ZONES) <= machines
        }
        for kind in URGENT
    }
    if contention:
        alone = _on_the_clock(machines, needs, seed)
        with _neighbours(seed):
            loaded = _on_the_clock(machines, needs, seed)
        figures["alone"], figures["loaded"] = alone, loaded
        figures["slower"] = {name: loaded[name] / alone[name] for name in alone}
    return figures


def _world(machines: int, needs: int, seed: int, *, merging: bool = True) -> BenchWorld:
    return world(machines, needs, Stream(seed, "fleet.bench"), merging=merging)


def _step(bench: Bench) -> dict[str, float]:
    took = bench.step()
    return {
        "step_ms": took.whole_ms,
        "list_ms": took.list_ms,
        "cold_ms": took.plan_ms,
        "execute_ms": took.emit_ms,
    }


def _unmerged(machines: int, needs: int, cap: int, seed: int) -> dict[str, float]:
    """The same step with all needs distinct, so that none are merged."""
    bench = Bench(_world(machines, needs, seed, merging=False), cpu_s, actions_per_cycle=cap)
    bench.load_ms()
    bench.rollup_ms()
    gc.collect()
    return {"rows": bench.planner.needs.live, **_step(bench)}


def _on_the_clock(machines: int, needs: int, seed: int) -> dict[str, float]:
    """The same cycles in wall time, which competing threads stretch."""
    bench = Bench(_world(machines, needs, seed), monotonic_s, instruments=Instruments(lap_s))
    bench.load_ms()
    bench.rollup_ms()
    gc.collect()
    cold_ms = bench.step().plan_ms
    warm_ms, _ = bench.warm_ms()
    return {"cold_ms": cold_ms, "warm_ms": warm_ms}


@contextmanager
def _neighbours(seed: int) -> Iterator[None]:
    """Runs threads with the other work of a shard for the duration of the measurement."""
    over = threading.Event()
    work = (_fold_events, _call_providers, _export)
    threads = [threading.Thread(target=_again, args=(one(seed), over)) for one in work]
    for one in threads:
        one.start()
    try:
        yield
    finally:
        over.set()
        for one in threads:
            one.join()


def _again(once: Callable[[], object], over: threading.Event) -> None:
    while not over.is_set():
        once()


def _neighbour(seed: int, *, cap: int, instruments: Instruments | None = None) -> Bench:
    made = _world(NEIGHBOUR_MACHINES, NEIGHBOUR_MACHINES, seed)
    bench = Bench(made, monotonic_s, actions_per_cycle=cap, instruments=instruments)
    bench.load_ms()
    bench.rollup_ms()
    bench.step()
    return bench


def _fold_events(seed: int) -> Callable[[], object]:
    """Processes the completions of a storm on another shard, one by one."""

    def storm() -> None:
        _neighbour(seed, cap=NO_LIMIT).converge()

    return storm


def _call_providers(seed: int) -> Callable[[], object]:
    """Writes orders as JSON and reads them back."""
    orders = _neighbour(seed, cap=NO_LIMIT).orders

    def calls() -> None:
        for one in orders:
            msgspec.json.decode(msgspec.json.encode(one), type=MachineOrder)

    return calls


def _export(seed: int) -> Callable[[], object]:
    """Exports all measurements as JSON, over and over."""
    instruments = Instruments(lap_s)
    _neighbour(seed, cap=1000, instruments=instruments)
    return lambda: msgspec.json.encode(instruments.as_json())


def table(figures: dict[str, Any]) -> str:
    """The figures as text."""
    lines = [
        f"{figures['machines']:,} machines, "
        f"{figures['needs']:,} needs in {figures['rows']:,} rows, {figures['form']}",
        "",
        _line("whole step", _whole(figures)),
        _line("the same, needs unmerged", _whole(figures["unmerged"])),
        _line("roll-ups", f"{figures['rollup_ms']:.1f} ms"),
        _line("list and cycle, no change", f"{figures['quiet_ms']:.2f} ms"),
        _line("warm cycle, 1% changed", f"{figures['warm_ms']:.2f} ms"),
        _line("recording the change", f"{figures['warm_fold_ms']:.2f} ms"),
        _line("completions folded", f"{figures['events_per_s']:,.0f} a second"),
        *(
            _line(f"preemption, {kind}", _urgent(took))
            for kind, took in figures["preemption_ms"].items()
            if took
        ),
        _line("needs satisfied", f"{figures['satisfied']:.2%}"),
        _line("cycles to converge", f"{figures['cycles_to_converge']}"),
        _line(
            "actions",
            f"{figures['actions']:,}, of them {figures['deferred']:,} deferred, "
            f"{figures['landed']:,} succeeded, {figures['duplicate_actions']} duplicate",
        ),
        _line("deferred by", reasons_in_words(figures["deferral_reasons"])),
        _line(
            "join data",
            f"fetched within {figures['fetch_s_p50']:.1f} s, p99 {figures['fetch_s_p99']:.1f} s",
        ),
        _line("memory", f"{figures['bytes_per_machine']:.0f} bytes a machine"),
    ]
    if not figures["satisfiable"]:
        lines.append("There are not enough machines for all needs.")
    if "loaded" in figures:
        lines += ["", "Wall time, alone and beside folding, provider calls and exports:"]
        for name, words in (("cold_ms", "cold cycle"), ("warm_ms", "warm cycle")):
            alone, loaded = figures["alone"][name], figures["loaded"][name]
            slower = figures["slower"][name]
            lines.append(_line(words, f"{alone:.1f} ms, {loaded:.1f} ms: {slower:.1f} times"))
    return "\n".join(lines)


def _whole(figures: dict[str, Any]) -> str:
    return (
        f"{figures['step_ms']:.1f} ms: a full list {figures['list_ms']:.1f}, "
        f"the cold cycle {figures['cold_ms']:.1f}, execution {figures['execute_ms']:.1f}; "
        f"{figures['rows']:,} rows"
    )


def _urgent(took: dict[str, float]) -> str:
    return ", ".join(f"{urgent} urgent needs {ms:.1f} ms" for urgent, ms in took.items())


def reasons_in_words(reasons: dict[str, int]) -> str:
    """Why actions were deferred, with the number of times."""
    return ", ".join(f"{name} {times:,}" for name, times in sorted(reasons.items())) or "nothing"


def _line(name: str, value: str) -> str:
    return f"  {name:<27}{value}"
