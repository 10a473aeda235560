"""Rows of requests as arrays, in batches; each converted column is cached."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]
    Numbers = npt.NDArray[np.int64]
    Choice = npt.NDArray[np.bool_]

COMPLETED = "completed"


def floats_of(column: Any) -> Floats:
    """A numeric column; NaN for null."""
    import numpy as np

    return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.float64)


def arrow_of(values: Any, missing: Choice | None = None) -> Any:
    """An array of numbers or truth values as an Arrow array, null where `missing`.

    `pyarrow.array` would first import masked arrays, which takes longer than a small run.
    """
    import numpy as np
    import pyarrow as pa

    def bits(flags: Choice) -> Any:
        return pa.py_buffer(np.packbits(flags, bitorder="little").data)

    kind = pa.from_numpy_dtype(values.dtype)
    valid = None if missing is None else bits(~missing)
    is_truth = values.dtype == np.bool_
    data = bits(values) if is_truth else pa.py_buffer(np.ascontiguousarray(values).data)
    return pa.Array.from_buffers(kind, len(values), [valid, data])


def words_of(column: Any) -> tuple[Numbers, list[str]]:
    """A column of words as indices, -1 for null, and the words."""
    import numpy as np
    import pyarrow as pa

    known: dict[str, int] = {}
    if not isinstance(column.type, pa.DictionaryType):
        words = column.to_pylist()
        numbers = [-1 if word is None else known.setdefault(word, len(known)) for word in words]
        return np.array(numbers, np.int64), list(known)
    parts = [np.zeros(0, np.int64)]
    for chunk in getattr(column, "chunks", [column]):
        own = [known.setdefault(word, len(known)) for word in chunk.dictionary.to_pylist()]
        places = np.nan_to_num(floats_of(chunk.indices), nan=len(own)).astype(np.int64)
        parts.append(np.array([*own, -1], np.int64)[places])
    return np.concatenate(parts), list(known)


class RowBatch:
    """A batch of request rows: those of the Arrow `batch`, or a selection of them."""

    def __init__(self, batch: Any, chosen: Choice | None = None) -> None:
        self.batch = batch
        self._chosen = slice(None) if chosen is None else chosen
        self._floats: dict[str, Floats] = {}
        self._words: dict[str, tuple[Numbers, list[str]]] = {}
        self._completed: list[RowBatch] | None = None  # empty: all rows are completed

    def floats(self, name: str) -> Floats:
        if name not in self._floats:
            self._floats[name] = floats_of(self.batch[name])[self._chosen]
        return self._floats[name]

    def words(self, name: str) -> tuple[Numbers, list[str]]:
        if name not in self._words:
            numbers, words = words_of(self.batch[name])
            self._words[name] = numbers[self._chosen], words
        return self._words[name]

    def having(self, *outcomes: str) -> Choice:
        """Which rows have one of these outcomes."""
        import numpy as np

        numbers, words = self.words("outcome")
        return np.array([*(word in outcomes for word in words), False])[numbers]

    @property
    def completed(self) -> RowBatch:
        """The rows of completed requests; the batch itself if all are, without a reference to
        itself, which would keep it in memory."""
        if self._completed is None:
            chosen = self.having(COMPLETED)
            self._completed = [] if chosen.all() else [RowBatch(self.batch, chosen)]
        return self._completed[0] if self._completed else self
