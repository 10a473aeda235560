"""The order in which rows are worked on: the urgent first, then each tenant's share."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.live.batch.running import write_rows
from windtunnel.live.batch.rows import open_rows
from windtunnel.live.batch.settings import BatchSettings


@given(
    owners=st.lists(
        st.tuples(st.sampled_from("abc"), st.sampled_from([0, 0, 7, -7])), min_size=1, max_size=60
    ),
    weights=st.fixed_dictionaries({}, optional={"a": st.integers(1, 9), "b": st.integers(1, 9)}),
)
def test_order_is_by_priority_and_then_by_how_many_rows_of_a_tenant_come_before(
    tmp_path_factory: pytest.TempPathFactory,
    owners: list[tuple[str, int]],
    weights: dict[str, int],
) -> None:
    tenants = [tenant for tenant, _ in owners]
    weights = {tenant: weight for tenant, weight in weights.items() if tenant in tenants}
    folder = tmp_path_factory.mktemp("rows")
    file = folder / "in.jsonl"
    lines = [json.dumps({"prompt": "x", "t": who, "p": urgency}) for who, urgency in owners]
    file.write_text("\n\n".join(lines))
    plan = BatchSettings(
        file,
        folder / "out.jsonl",
        {},
        tenant_field="t",
        tenant_weights=weights,
        priority_field="p",
    )
    rows = open_rows(plan)
    first_seen = list(dict.fromkeys(tenants))

    def rank(row: int) -> tuple[int, float, int, int]:
        tenant, priority = owners[row]
        turn = owners[: row + 1].count(owners[row]) / weights.get(tenant, 1)
        return -priority, turn, first_seen.index(tenant), row

    assert list(rows.in_fair_order(weights)) == sorted(range(len(owners)), key=rank)
    assert [rows.read(row).line for row in range(len(rows))] == list(range(1, 2 * len(owners), 2))
    assert [rows.read(row).fields["t"] for row in range(len(rows))] == tenants
    rows.close()


def test_a_byte_order_mark_and_odd_line_ends_are_read(tmp_path: Path) -> None:
    file = tmp_path / "in.jsonl"
    file.write_bytes(b'\xef\xbb\xbf{"prompt": "a"}\r\n  \r\n {"prompt": "b", "id": 5} ')
    rows = open_rows(BatchSettings(file, tmp_path / "out.jsonl", {}))
    read = [rows.read(row) for row in range(len(rows))]
    assert [(row.custom_id, row.line, row.fields["prompt"]) for row in read] == [
        ("row-1", 1, "a"),
        ("5", 3, "b"),
    ]
    rows.close()


def test_with_a_token_budget_tenants_take_turns_by_tokens(tmp_path: Path) -> None:
    rows = [{"prompt": "x" * 8000, "tenant": "long"}] * 20
    rows += [{"prompt": "x", "tenant": "short"}] * 400
    write_rows(tmp_path / "in.jsonl", rows)
    plan = BatchSettings(tmp_path / "in.jsonl", tmp_path / "out", {}, tenant_field="tenant")
    opened = open_rows(plan)
    by_rows = list(opened.in_fair_order({}))[:40]
    by_tokens = list(opened.in_fair_order({}, answer_tokens=lambda: 512))[:40]
    opened.close()
    assert sum(row < 20 for row in by_rows) == 20
    assert 6 <= sum(row < 20 for row in by_tokens) <= 10
    assert sorted([*by_tokens, *by_tokens]) != sorted([*by_rows, *by_rows])
