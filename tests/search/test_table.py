"""The table that a search gives: rows, Arrow, a notebook."""

import builtins
import io
from typing import Any

import pytest

from windtunnel.core.errors import WindtunnelError
from windtunnel.search.table import MOST_SHOWN, ResultTable

ROWS = [
    {"policy": "a<b", "replicas": 2, "rate": 0.5, "mixed": 1, "deep": {"x": 1}},
    {"policy": "c", "replicas": 3, "rate": 2, "mixed": "two"},
]


def table() -> ResultTable:
    return ResultTable(
        ["policy", "replicas", "rate", "mixed", "deep", "none"], ROWS, caption="a & b"
    )


def test_rows_and_columns() -> None:
    found = table()
    assert len(found) == 2
    assert found["replicas"] == [2, 3]
    assert [row["deep"] for row in found] == [{"x": 1}, None]
    with pytest.raises(WindtunnelError, match="did you mean 'replicas'"):
        found["replica"]
    assert repr(found) == "<a & b: 2 rows, 6 columns>"


def test_columns_have_one_kind_each() -> None:
    arrow = table().to_arrow()
    kinds = ["string", "int64", "double", "string", "string", "double"]
    assert [str(field.type) for field in arrow.schema] == kinds
    assert arrow["mixed"].to_pylist() == ["1", "two"]
    assert arrow["deep"].to_pylist() == ['{"x": 1}', None]
    assert arrow["rate"].to_pylist() == [0.5, 2.0]


def test_parquet_is_the_same_bytes_for_the_same_rows() -> None:
    import pyarrow.parquet as pq

    content = table().parquet()
    assert content == table().parquet()
    read: Any = pq.read_table(io.BytesIO(content))
    assert read["replicas"].to_pylist() == [2, 3]


def test_a_notebook_shows_it_escaped_and_not_without_end() -> None:
    shown = table()._repr_html_()
    assert "<caption>a &amp; b</caption>" in shown
    assert "<td>a&lt;b</td>" in shown
    long = ResultTable(["n"], [{"n": number} for number in range(MOST_SHOWN + 3)])
    assert long._repr_html_().count("<tr>") == MOST_SHOWN + 1
    assert "and 3 more rows" in long._repr_html_()


@pytest.mark.parametrize("library", ["polars", "pandas"])
def test_a_library_gets_it_or_the_line_that_installs_it(
    library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def missing(name: str, *args: Any, **options: Any) -> Any:
        if name == library:
            raise ImportError(name)
        return real(name, *args, **options)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(WindtunnelError, match=f"pip install {library}"):
        getattr(table(), f"to_{library}")()


def test_polars_gets_the_rows() -> None:
    pytest.importorskip("polars", reason="polars is not installed")
    frame = table().to_polars()
    assert frame["replicas"].to_list() == [2, 3]


def test_pandas_gets_the_rows() -> None:
    pytest.importorskip("pandas", reason="pandas is not installed")
    frame = table().to_pandas()
    assert list(frame["rate"]) == [0.5, 2.0]
