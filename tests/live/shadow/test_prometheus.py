"""Traffic by a Prometheus server alone: a forecast as from a trace, and a sentence where not."""

import json
import re
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

import pytest

from tests.search.test_forecast import SPANS, TRUTH, truth
from windtunnel.analysis.shadow.window import TrafficWindow
from windtunnel.live.emulate.metrics import FIRST_TOKEN_S, TOKENS
from windtunnel.live.operate.scaling.sources import PrometheusServer
from windtunnel.live.shadow.program import ShadowProgram
from windtunnel.live.shadow.prometheus import STEP_S, PrometheusTraffic
from windtunnel.search.forecast import Forecaster, shadow_of
from windtunnel.workload.traces.record import TraceRequest

BEGAN_S = 1_000_000_200.0
PER_TOKEN_S = (0.005, 0.01, 0.0125, 0.015, 0.0175, 0.02, 0.03, 0.05, 0.1)


def tpot_s(one: TraceRequest) -> float:
    assert one.e2e_s is not None
    assert one.ttft_s is not None
    return (one.e2e_s - one.ttft_s) / max(1, one.output_tokens - 1)


VALUES: dict[str, tuple[Sequence[float], Callable[[TraceRequest], float]]] = {
    "vllm:request_prompt_tokens": (TOKENS, lambda one: one.prompt_tokens),
    "vllm:request_generation_tokens": (TOKENS, lambda one: one.output_tokens),
    "vllm:time_to_first_token_seconds": (FIRST_TOKEN_S, lambda one: one.ttft_s or 0.0),
    "vllm:request_time_per_output_token_seconds": (PER_TOKEN_S, tpot_s),
}


class Scraped:
    """What a Prometheus server would answer about servers that served some requests."""

    def __init__(self, rows: Sequence[TraceRequest]) -> None:
        self.rows = sorted(rows, key=lambda one: one.arrived_s + (one.e2e_s or 0.0))
        self.ends = [BEGAN_S + one.arrived_s + (one.e2e_s or 0.0) for one in self.rows]
        self.mood = ""
        self.queries: list[str] = []

    def answer(self, query: str, at_s: float) -> list[Any]:
        self.queries.append(query)
        gauge = re.fullmatch(r"\((sum|count)\((vllm:\w+)\{(.*)\}\)\)\[1s:1s\]", query)
        if gauge is not None:
            running = sum(
                BEGAN_S + one.arrived_s <= at_s < end
                for one, end in zip(self.rows, self.ends, strict=True)
            )
            waits = gauge[2].endswith("waiting")
            value = 2 if gauge[1] == "count" else 0 if waits else running
            return [{"metric": {}, "values": [[at_s, str(value)]]}]
        form = (
            r"\(sum( by \(le\))? \(rate\((vllm:\w+)_(bucket|sum|count)\{(.*)\}\[60s\]\)\) \* 30\)"
        )
        found = re.fullmatch(form + r"\[(\d+)s:30s\]", query)
        assert found is not None, query
        bounds, value_of = VALUES[found[2]]
        times = [at_s - STEP_S * step for step in range((int(found[5]) + 1) // 30)][::-1]
        series: dict[str, list[Any]] = {}
        for time_s in times:
            first, last = bisect_right(self.ends, time_s - 60.0), bisect_right(self.ends, time_s)
            values = [value_of(one) for one in self.rows[first:last]]
            if found[3] == "bucket":
                counts = {str(le): float(sum(one <= le for one in values)) for le in bounds}
                counts["+Inf"] = float(len(values))
            else:
                counts = {"": float(len(values) if found[3] == "count" else sum(values))}
            for le, count in counts.items():
                series.setdefault(le, []).append([time_s, str(count / 2.0)])
        return [{"metric": {"le": le}, "values": rows} for le, rows in series.items()]


@contextmanager
def serving(scraped: Scraped) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            size = int(self.headers["Content-Length"])
            form = parse_qs(self.rfile.read(size).decode())
            result = scraped.answer(form["query"][0], float(form["time"][0]))
            data = {"resultType": "matrix", "result": [] if scraped.mood == "empty" else result}
            text = json.dumps({"status": "success", "data": data}).encode()
            if scraped.mood == "garbage":
                text = b"<html>"
            self.send_response(200)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_forecast_from_prometheus_is_about_that_from_a_trace() -> None:
    rows = truth(800)
    scraped = Scraped(rows)
    shadow = shadow_of(Forecaster(TRUTH, "truth.yaml", SPANS, past_s=60.0))
    now_s = BEGAN_S + 300.0
    with serving(scraped) as url:
        traffic = PrometheusTraffic(shadow.window, PrometheusServer(url), 'model_name="m"')
        program = ShadowProgram(shadow, traffic, 30.0)
        traffic.look_at(now_s + 15.0)
        asked = len(scraped.queries)
        assert all('{model_name="m"}' in query for query in scraped.queries)
        traffic.look_at(now_s + 20.0)
        assert len(scraped.queries) == asked, "there is nothing new yet"
        tick = shadow.tick()
        present = shadow.window.present()
        traffic.look_at(now_s + 75.0)
        assert shadow.window.now_s == now_s + 60.0
    assert tick.forecast is not None, tick.says
    assert present.servers == 2
    assert len(present.in_flight) == sum(
        BEGAN_S + one.arrived_s <= now_s < end
        for one, end in zip(scraped.rows, scraped.ends, strict=True)
    )
    window = TrafficWindow(180.0)
    for one in sorted(rows, key=lambda one: one.arrived_s + (one.e2e_s or 0.0)):
        if one.arrived_s + (one.e2e_s or 0.0) <= 300.0:
            window.end(one)
    window.see(300.0)
    true = window.measured(180.0, 290.0)
    made = shadow.window.measured(BEGAN_S + 180.0, BEGAN_S + 290.0)
    assert true is not None
    assert made is not None
    for name, most_off in (("rate", 0.15), ("ttft_p50", 0.25), ("tpot_p50", 0.15)):
        assert made[name] == pytest.approx(true[name], rel=most_off), name
    assert tick.forecast.now.step_ratio == pytest.approx(1.0, abs=0.15)
    known = program.unknown()
    assert any("prompts that share a prefix" in one for one in known)
    assert any("classes of service" in one for one in known)


@pytest.mark.parametrize(
    ("mood", "says"),
    [("empty", "Prometheus has no vllm:num_requests_running"), ("garbage", "cannot be read")],
)
def test_what_prometheus_does_not_say_is_a_sentence(mood: str, says: str) -> None:
    scraped = Scraped(truth(800))
    scraped.mood = mood
    window = TrafficWindow(120.0)
    with serving(scraped) as url:
        traffic = PrometheusTraffic(window, PrometheusServer(url))
        traffic.look_at(BEGAN_S + 300.0)
        assert says in traffic.says
        assert window.present().ended == []
        scraped.mood = ""
        traffic.look_at(BEGAN_S + 330.0)
        assert traffic.says == ""
        assert len(window.present().ended) > 100
        traffic.look_at(BEGAN_S + 200.0)
        assert (window.now_s, window.restarts) == (BEGAN_S + 180.0, 1), "the clock was set back"
        assert len(window.present().ended) > 100
    traffic.look_at(BEGAN_S + 400.0)
    assert "Prometheus does not answer" in traffic.says
