"""The order in which rows are worked on: each tenant's share in every beginning of it."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.live.batch.plan import BatchPlan
from windtunnel.live.batch.rows import open_rows


@given(
    owners=st.lists(st.sampled_from("abc"), min_size=1, max_size=60),
    weights=st.fixed_dictionaries({}, optional={"a": st.integers(1, 9), "b": st.integers(1, 9)}),
)
def test_fair_order_is_by_how_many_rows_of_a_tenant_come_before(
    tmp_path_factory: pytest.TempPathFactory, owners: list[str], weights: dict[str, int]
) -> None:
    weights = {tenant: weight for tenant, weight in weights.items() if tenant in owners}
    folder = tmp_path_factory.mktemp("rows")
    file = folder / "in.jsonl"
    file.write_text("".join(json.dumps({"prompt": "x", "t": who}) + "\n\n" for who in owners))
    plan = BatchPlan(file, folder / "out.jsonl", (), tenant_field="t", tenant_weights=weights)
    rows = open_rows(plan)
    first_seen = list(dict.fromkeys(owners))
    turn = [owners[: row + 1].count(owners[row]) / weights.get(owners[row], 1)
            for row in range(len(owners))]  # fmt: skip
    expected = sorted(
        range(len(owners)), key=lambda row: (turn[row], first_seen.index(owners[row]), row)
    )
    assert list(rows.in_fair_order(weights)) == expected
    assert [rows.line_of(row) for row in range(len(rows))] == list(range(1, 2 * len(owners), 2))
    assert [rows.read(row).fields["t"] for row in range(len(rows))] == owners
    rows.close()


def test_a_byte_order_mark_and_odd_line_ends_are_read(tmp_path: Path) -> None:
    file = tmp_path / "in.jsonl"
    file.write_bytes(b'\xef\xbb\xbf{"prompt": "a"}\r\n  \r\n {"prompt": "b", "id": 5} ')
    rows = open_rows(BatchPlan(file, tmp_path / "out.jsonl", ()))
    read = [rows.read(row) for row in range(len(rows))]
    assert [(row.custom_id, row.line, row.fields["prompt"]) for row in read] == [
        ("row-1", 1, "a"),
        ("5", 3, "b"),
    ]
    rows.close()
