"""Runs the benchmark of the fleet, alone and beside the work that a busy process has."""

import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

import windtunnel
from windtunnel.core.clock import cpu_s, lap_s, monotonic_s
from windtunnel.fleet.execution import Executor
from windtunnel.fleet.instruments import Instruments
from windtunnel.fleet.orders import ExecutionLimits, MachineOrder
from windtunnel.twin.fleet.bench import Bench

NEIGHBOUR_MACHINES = 2000
NO_LIMIT = 10**6


def measure(machines: int, needs: int, *, cap: int, seed: int, contention: bool) -> dict[str, Any]:
    """All figures of one fleet, as plain data."""
    bench = Bench(machines, needs, cpu_s, seed=seed)
    figures: dict[str, Any] = {
        "machines": machines,
        "needs": needs,
        "form": windtunnel.FORM,
        "load_ms": bench.load_ms(),
        "reconcile_ms": bench.reconcile_ms(),
        "rollup_ms": bench.rollup_ms(),
        "rows": bench.planner.needs.live,
        "satisfiable": bench.world.is_satisfiable,
    }
    gc.collect()
    figures["cold_ms"] = bench.cold_ms()
    done = bench.converge(cap)
    figures["execute_ms"] = done.execute_ms
    parts = ("reconcile_ms", "rollup_ms", "cold_ms", "execute_ms")
    figures["whole_ms"] = sum(figures[name] for name in parts)
    gc.collect()
    figures["warm_ms"], figures["warm_fold_ms"] = bench.warm_ms()
    figures |= {
        "satisfied": done.satisfied,
        "actions": done.actions,
        "deferred": done.deferred,
        "landed": done.landed,
        "duplicate_actions": done.duplicates,
        "cycles_to_converge": done.cycles,
        "events_per_s": done.events_per_s,
        "bytes_per_machine": bench.bytes_per_machine(),
    }
    del bench
    if contention:
        alone = _on_the_clock(machines, needs, seed)
        with _neighbours(seed):
            loaded = _on_the_clock(machines, needs, seed)
        figures["alone"], figures["loaded"] = alone, loaded
        figures["slower"] = {name: loaded[name] / alone[name] for name in alone}
    return figures


def _on_the_clock(machines: int, needs: int, seed: int) -> dict[str, float]:
    """The same cycles in time that passes, which neighbours stretch."""
    bench = Bench(machines, needs, monotonic_s, seed=seed, instruments=Instruments(lap_s))
    bench.load_ms()
    bench.rollup_ms()
    gc.collect()
    cold_ms = bench.cold_ms()
    warm_ms, _ = bench.warm_ms()
    return {"cold_ms": cold_ms, "warm_ms": warm_ms}


@contextmanager
def _neighbours(seed: int) -> Iterator[None]:
    """Threads that do what else a shard does, for as long as somebody measures."""
    over = threading.Event()
    work = (_fold_events, _call_providers, _scrape)
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


def _neighbour(seed: int) -> Bench:
    bench = Bench(NEIGHBOUR_MACHINES, NEIGHBOUR_MACHINES, monotonic_s, seed=seed)
    bench.load_ms()
    bench.rollup_ms()
    bench.cold_ms()
    return bench


def _fold_events(seed: int) -> Callable[[], object]:
    """Completions of a storm, one after the other, on another shard."""

    def storm() -> None:
        bench = _neighbour(seed)
        bench.converge(NO_LIMIT)

    return storm


def _call_providers(seed: int) -> Callable[[], object]:
    """Orders written as JSON, and answers read."""
    bench = _neighbour(seed)
    limits = ExecutionLimits(actions_per_cycle=NO_LIMIT, concurrency=NO_LIMIT)
    orders = Executor(bench.planner.inventory, limits).submit(bench.plan, 0.0)

    def calls() -> None:
        for one in orders:
            msgspec.json.decode(msgspec.json.encode(one), type=MachineOrder)

    return calls


def _scrape(seed: int) -> Callable[[], object]:
    """Metrics, as they are read by Prometheus, over and over."""
    told = Instruments(lap_s)
    bench = Bench(NEIGHBOUR_MACHINES, NEIGHBOUR_MACHINES, monotonic_s, seed=seed, instruments=told)
    bench.load_ms()
    bench.rollup_ms()
    bench.cold_ms()
    return told.prometheus


def table(figures: dict[str, Any]) -> str:
    """The figures for a person."""
    lines = [
        f"{figures['machines']:,} machines, "
        f"{figures['needs']:,} needs in {figures['rows']:,} rows, {figures['form']}",
        "",
        _line("cold cycle", f"{figures['cold_ms']:.1f} ms"),
        _line("the whole of it", _whole(figures)),
        _line("warm cycle, 1 % changed", f"{figures['warm_ms']:.2f} ms"),
        _line("taking note of the change", f"{figures['warm_fold_ms']:.2f} ms"),
        _line("completions folded", f"{figures['events_per_s']:,.0f} a second"),
        _line("needs satisfied", f"{figures['satisfied']:.2%}"),
        _line("cycles to converge", f"{figures['cycles_to_converge']}"),
        _line(
            "actions",
            f"{figures['actions']:,}, of them {figures['deferred']:,} deferred, "
            f"{figures['landed']:,} landed, {figures['duplicate_actions']} twice",
        ),
        _line("memory", f"{figures['bytes_per_machine']:.0f} bytes a machine"),
    ]
    if not figures["satisfiable"]:
        lines.append("There are not enough machines for all needs.")
    if "loaded" in figures:
        lines += ["", "On the clock, alone and beside folding, provider calls and scrapes:"]
        for name, words in (("cold_ms", "cold cycle"), ("warm_ms", "warm cycle")):
            alone, loaded = figures["alone"][name], figures["loaded"][name]
            slower = figures["slower"][name]
            lines.append(_line(words, f"{alone:.1f} ms, {loaded:.1f} ms: {slower:.1f} times"))
    return "\n".join(lines)


def _whole(figures: dict[str, Any]) -> str:
    return (
        f"{figures['whole_ms']:.1f} ms: a full list {figures['reconcile_ms']:.1f}, "
        f"roll-ups {figures['rollup_ms']:.1f}, the cycle, "
        f"execution {figures['execute_ms']:.1f}"
    )


def _line(name: str, value: str) -> str:
    return f"  {name:<27}{value}"
