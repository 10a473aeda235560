"""Cost of several workers that decide independently: prompts that are computed again.

Each worker process would decide on its own, and see only the requests that the kernel hands to it.
The same arrivals are decided by one `GatewayCore` and by several, each with its share, in virtual
time; servers, their load and their caches are the same for all.
"""

import heapq
from pathlib import Path

from benchmarks.claim import Claim, report
from windtunnel.core.random import Streams
from windtunnel.live.gateway.caches import PrefixCaches
from windtunnel.live.gateway.decisions import GatewayCore
from windtunnel.live.gateway.facts import SEND, ModelCard, RequestArrival
from windtunnel.live.gateway.settings import GatewayFile
from windtunnel.workload.request import PrefixChain

SERVERS = 8
REQUESTS = 20_000
PER_S = 400.0
MEAN_S = 0.5
GROUPS = 400
BLOCKS = 16
BLOCK = 64
CACHE_TOKENS = 60 * BLOCKS * BLOCK
"""Cache of a server: it holds the prompts of 60 of the 400 groups."""
SCRAPE_S = 0.5


class Outcome:
    """Prompt tokens, and how many of them were cached."""

    def __init__(self) -> None:
        self.hit_tokens = 0
        self.tokens = 0

    @property
    def missed(self) -> float:
        return 1.0 - self.hit_tokens / self.tokens


def decide(workers: int) -> Outcome:
    """Decides the same arrivals, distributed at random over this many workers."""
    settings = GatewayFile.read({"live": {"health": {"ramp": "0s"}}})
    cores = [GatewayCore(settings.policies(Path(), 7, {})) for _ in range(workers)]
    for core in cores:
        for number in range(SERVERS):
            core.join(f"s{number}", 256, 0.0)
            core.healthy(number, [ModelCard("m")], 0.0)
            core.cache_size(number, CACHE_TOKENS, 0.0)
    caches = PrefixCaches()
    for number in range(SERVERS):
        caches.join()
        caches.set_capacity(number, CACHE_TOKENS)
    streams = Streams(1)
    arrivals, work, groups = streams["arrivals"], streams["work"], streams["groups"]
    handed = streams["handed"]
    found = Outcome()
    in_flight = [0] * SERVERS
    ends: list[tuple[float, int, int, int]] = []
    now_s, scraped_s = 0.0, 0.0
    for request in range(REQUESTS):
        now_s += arrivals.exponential(1.0 / PER_S)
        while ends and ends[0][0] <= now_s:
            end_s, done, worker, server = heapq.heappop(ends)
            in_flight[server] -= 1
            cores[worker].ended(done, "completed", end_s, 0.1, 0.01)
        if now_s - scraped_s >= SCRAPE_S:
            scraped_s = now_s
            for core in cores:
                for server, count in enumerate(in_flight):
                    core.observe(server, (0, count, min(1.0, count / 256)), [], now_s)
        group = groups.integer(0, GROUPS - 1)
        keys = [group * BLOCKS + n for n in range(BLOCKS)]
        chain = [(n + 1) * BLOCK for n in range(BLOCKS)]
        worker = handed.integer(0, workers - 1)
        core = cores[worker]
        core.arrive(RequestArrival(request, "m", 0, 0, chain[-1] + 1, 0, -1, keys, chain), now_s)
        while (action := core.take()) is not None:
            if action.kind == SEND:
                server = action.server
                prefix = PrefixChain(keys, chain)
                found.hit_tokens += caches.cached_tokens(server, prefix)
                found.tokens += chain[-1]
                caches.sent(server, prefix)
                in_flight[server] += 1
                end_s = now_s + work.exponential(MEAN_S)
                heapq.heappush(ends, (end_s, action.request, worker, server))
    return found


def main() -> None:
    one = decide(1)
    print(f"1 worker: {one.missed:.1%} of prompt tokens are not cached")
    for workers in (2, 4):
        several = decide(workers)
        print(f"{workers} workers: {several.missed:.1%} of prompt tokens are not cached")
        report(
            Claim(
                f"gateway: prompt tokens that are computed again, {workers} workers against one",
                ours=one.missed,
                baseline=several.missed,
                most=1.0,
                unit="share",
                against=f"{workers} workers that decide apart",
            )
        )


if __name__ == "__main__":
    main()
