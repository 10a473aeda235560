"""Time in the front end of a server is not blamed on other requests."""

import windtunnel as wt


def test_a_wait_on_an_idle_server_is_its_front_end() -> None:
    step = {"model": "linear", "fixed": "10ms", "per_prefill_token": "1us"}
    pool = {"name": "main", "step_time": step, "engine": {"kv_blocks": 500}}
    source = {"name": "chat", "count": 5, "prompt_tokens": 100, "output_tokens": 1}
    source["arrivals"] = {"process": "constant", "rate": "1/s"}
    for queueing, says in (
        ("40ms", "its server's front end took 40 ms"),
        ("0s", "its prompt took"),
    ):
        served = {"pools": [{**pool, "overheads": {"queueing": queueing}}]}
        run = wt.simulate({"name": "idle", "workload": [source], "serving": served})
        assert says in str(run.explain(request=3))
