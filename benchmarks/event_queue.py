"""The compiled event queue against bare `heapq` on tuples: order and cancellation cost little."""

from heapq import heappop, heappush

from benchmarks.claim import Claim, insist_on_compiled, least_cpu_s, report
from windtunnel.core.loop import EventQueue
from windtunnel.core.random import Stream

EVENTS = 1_000_000
PENDING = 10_000
CANCEL_EVERY = 10


def ours(delays: list[float]) -> int:
    """Keeps a queue of PENDING events busy; every tenth event is cancelled and planned again."""
    queue, now, popped = EventQueue(), 0.0, 0
    for number, delay in enumerate(delays):
        entry = queue.push(now + delay, 0, number)
        if number % CANCEL_EVERY == 0:
            queue.cancel(entry)
            queue.push(now + delay, 0, number)
        if number >= PENDING:
            next_event = queue.pop()
            assert next_event is not None
            now = next_event.time_s
            popped += 1
    return popped


def bare_heapq(delays: list[float]) -> int:
    """The same with the standard library: a heap, and a set of cancelled events."""
    heap: list[tuple[float, int, int, object]] = []
    cancelled: set[int] = set()
    now, popped, sequence = 0.0, 0, 0
    for number, delay in enumerate(delays):
        heappush(heap, (now + delay, 0, sequence, number))
        sequence += 1
        if number % CANCEL_EVERY == 0:
            cancelled.add(sequence - 1)
            heappush(heap, (now + delay, 0, sequence, number))
            sequence += 1
        if number >= PENDING:
            entry = heappop(heap)
            while entry[2] in cancelled:
                cancelled.discard(entry[2])
                entry = heappop(heap)
            now = entry[0]
            popped += 1
    return popped


def main() -> None:
    insist_on_compiled()
    stream = Stream(1, "benchmark.events")
    delays = [stream.exponential(1.0) for _ in range(EVENTS)]
    assert ours(delays[: 2 * PENDING]) == bare_heapq(delays[: 2 * PENDING])
    claim = Claim(
        f"event queue, {EVENTS:,} events with {100 // CANCEL_EVERY}% cancelled",
        ours=least_cpu_s(lambda: ours(delays)),
        baseline=least_cpu_s(lambda: bare_heapq(delays)),
        most=1.5,
        unit="CPU s",
        against="heapq on tuples, interpreted",
    )
    report(claim)


if __name__ == "__main__":
    main()
