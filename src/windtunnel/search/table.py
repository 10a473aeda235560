"""Search results as a table: plain rows, convertible to Arrow, polars, pandas and Parquet."""

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from windtunnel.core.errors import WindtunnelError
from windtunnel.search.point import written

if TYPE_CHECKING:
    import pyarrow as pa

MOST_SHOWN = 40
"""Limit on the rows shown in a notebook."""

Row = Mapping[str, Any]


class ResultTable:
    """Rows of values in named columns; displays itself in a notebook."""

    def __init__(
        self,
        columns: Sequence[str],
        rows: Sequence[Row],
        *,
        caption: str = "",
        shown: Sequence[str] | None = None,
    ) -> None:
        """A value missing from a row is None. A notebook shows the columns `shown`, or all."""
        self.columns = tuple(columns)
        self.rows: list[dict[str, Any]] = [
            {name: row.get(name) for name in self.columns} for row in rows
        ]
        self.caption = caption
        self._shown = self.columns if shown is None else tuple(shown)

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows)

    def __getitem__(self, column: str) -> list[Any]:
        """The values of a column."""
        if column not in self.columns:
            from windtunnel.core.errors import InputError, nearest

            raise InputError(f"there is no column {column!r}", hint=nearest(column, self.columns))
        return [row[column] for row in self.rows]

    def __repr__(self) -> str:
        return f"<{self.caption or 'table'}: {len(self.rows)} rows, {len(self.columns)} columns>"

    def to_arrow(self) -> "pa.Table":
        """As an Arrow table; columns of mixed types become text."""
        import pyarrow as pa

        arrays, names = [], []
        for name in self.columns:
            values, kind = _alike([row[name] for row in self.rows])
            arrays.append(pa.array(values, getattr(pa, kind)()))
            names.append(name)
        return pa.table(dict(zip(names, arrays, strict=True)))

    def to_polars(self) -> Any:
        """As a polars DataFrame."""
        return polars_of(self.to_arrow())

    def to_pandas(self) -> Any:
        """As a pandas DataFrame."""
        return pandas_of(self.to_arrow())

    def parquet(self) -> bytes:
        """The bytes of a Parquet file, identical for identical rows."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        sink = pa.BufferOutputStream()
        pq.write_table(self.to_arrow(), sink, compression="zstd")
        return sink.getvalue().to_pybytes()

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{escape(name)}</th>" for name in self._shown)
        body = "".join(
            "<tr>" + "".join(f"<td>{escape(_cell(row[name]))}</td>" for name in self._shown)
            for row in self.rows[:MOST_SHOWN]
        )
        more = len(self.rows) - MOST_SHOWN
        foot = f"<p>and {more} more rows: .rows has all of them</p>" if more > 0 else ""
        caption = f"<caption>{escape(self.caption)}</caption>" if self.caption else ""
        return f"<table>{caption}<thead><tr>{head}</thead><tbody>{body}</tbody></table>{foot}"


def polars_of(table: "pa.Table") -> Any:
    """The table as a polars DataFrame."""
    try:
        import polars
    except ImportError:
        raise _not_installed("polars") from None
    return polars.from_arrow(table)


def pandas_of(table: "pa.Table") -> Any:
    """The table as a pandas DataFrame."""
    try:
        import pandas as pd
    except ImportError:
        raise _not_installed("pandas") from None
    return pd.DataFrame({name: table[name].to_pandas() for name in table.column_names})


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else written(value)


def _alike(values: list[Any]) -> tuple[list[Any], str]:
    """The values converted to one type, and the name of that type in Arrow."""
    kinds = {type(value) for value in values if value is not None}
    if kinds == {bool}:
        return values, "bool_"
    if kinds == {int}:
        return values, "int64"
    if kinds <= {int, float}:
        return [None if value is None else float(value) for value in values], "float64"
    return [None if value is None else written(value) for value in values], "string"


def _not_installed(library: str) -> WindtunnelError:
    return WindtunnelError(f"{library} is not installed", hint=f"pip install {library}")
