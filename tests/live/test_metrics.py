"""Families of metrics, as Prometheus reads them."""

from windtunnel.live.admin import metrics_page
from windtunnel.live.metrics import BucketCounts, counter, gauge, histogram, registry_of


def test_a_page_has_every_kind_of_family() -> None:
    counts = BucketCounts((0.1, 1.0))
    for value in (0.1, 0.5, 7.0):
        counts.add(value)

    def collect() -> list[object]:
        return [
            gauge("up", "One value.", 1),
            gauge("queued", "By one label.", [("m", 2)], "model"),
            counter("ended", "By two.", {("m", 429): 3}.items(), "model", "status"),
            histogram("took_seconds", "Times.", [("m", counts)], "model"),
        ]

    page = metrics_page(registry_of(collect)).decode()
    assert [line for line in page.splitlines() if not line.startswith("#")] == [
        "up 1.0",
        'queued{model="m"} 2.0',
        'ended_total{model="m",status="429"} 3.0',
        'took_seconds_bucket{le="0.1",model="m"} 1.0',
        'took_seconds_bucket{le="1.0",model="m"} 2.0',
        'took_seconds_bucket{le="+Inf",model="m"} 3.0',
        'took_seconds_count{model="m"} 3.0',
        'took_seconds_sum{model="m"} 7.6',
    ]
