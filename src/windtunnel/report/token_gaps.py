"""`token_gaps.parquet`: how often each gap between two tokens was seen, by pool.

Buckets are one percent wide and the same in every run, so the files of several runs add up.
"""

from pathlib import Path

from windtunnel.core.histogram import GROWTH, Histogram


def write_token_gaps(path: Path, gaps: dict[str, Histogram]) -> None:
    """Writes a row per pool and bucket that has counts; gaps of no time have one of their own."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    pools: list[str] = []
    lows: list[float] = []
    highs: list[float] = []
    counts: list[int] = []
    for pool, histogram in gaps.items():
        rows = [
            (GROWTH**bucket, GROWTH ** (bucket + 1), n) for bucket, n in histogram.buckets.items()
        ]
        if histogram.zeros:
            rows.insert(0, (0.0, 0.0, histogram.zeros))
        pools += [pool] * len(rows)
        lows += [row[0] for row in rows]
        highs += [row[1] for row in rows]
        counts += [row[2] for row in rows]
    schema = pa.schema(
        [
            ("pool", pa.dictionary(pa.int32(), pa.string())),
            ("low", pa.float64()),
            ("high", pa.float64()),
            ("count", pa.int64()),
        ]
    )
    columns = {"pool": pools, "low": lows, "high": highs, "count": counts}
    with path.open("wb") as file:
        pq.write_table(pa.table(columns, schema=schema), file, compression="zstd")
