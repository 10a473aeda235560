"""Reads measurements for the `table` step-time model; each fault is reported with its line.

A folder holds *kernel tables*, times of single calls in microseconds:

    dense.csv         layer,tokens,time_us
    attention.csv     prefill_chunk,kv_prefill,n_decode,kv_decode,time_us
    per_sequence.csv  layer,sequences,time_us
    moe.csv           tokens,activated_experts,time_us      (mixtures of experts only)

A file holds *whole steps*, JSON lines as `windtunnel profile` writes them. Rows may come in any
order.
"""

from __future__ import annotations

import codecs
import csv
import math
from collections.abc import Iterable, Sequence
from pathlib import Path

from windtunnel.core.errors import InputError, one_line, one_sentence_per
from windtunnel.core.system.files import MOST_FAULTS_SHOWN, read_bounded
from windtunnel.models.catalog.models import resolve_model
from windtunnel.models.catalog.shapes import ModelShape
from windtunnel.models.step_time.measurements import MOST_BYTES, read_measurements
from windtunnel.models.step_time.model import MeasuredBounds
from windtunnel.models.step_time.table import Grid, Table, TimeCurve

__all__ = ["read_table"]

LARGEST_SIZE = 10**9
SHORTEST_CALL_US = 1e-3
LONGEST_CALL_US = 3.6e9
MICROSECOND = 1e-6
MILLISECOND = 1e-3

ONCE = ("embedding", "final_layernorm")
PER_LAYER = {"layernorm": 2, "qkv_proj": 1, "qk_norm": 2, "rotary_emb": 1, "o_proj": 1}
"""Calls per model layer: norms before attention and MLP, norms of queries and of keys."""
PER_DENSE_MLP = ("gate_up_proj", "act_fn", "down_proj")
HEAD = ("lm_head", "sampler")
NEEDED = ("qkv_proj", "o_proj", "gate_up_proj", "down_proj", "lm_head")

Place = tuple[float, ...]
Rows = dict[Place, float]


def read_table(path: Path, shape: ModelShape, *, per_step_s: float = 0.0) -> Table:
    """Reads the model from a folder of kernel tables, or from a file of whole steps."""
    if path.is_dir():
        return _kernel_tables(path, shape, per_step_s)
    return _whole_steps(path, shape, per_step_s)


# Kernel tables


def _kernel_tables(folder: Path, shape: ModelShape, per_step_s: float) -> Table:
    layers = _read_layers(folder / "dense.csv", "tokens", _calls(shape))
    if shape.is_mixture:
        layers.append(_experts(folder / "moe.csv", shape))
    head = _read_layers(folder / "per_sequence.csv", "sequences", dict.fromkeys(HEAD, 1))
    names = ("prefill_chunk", "kv_prefill", "n_decode", "kv_decode")
    path = folder / "attention.csv"
    rows = _read_csv(path, "", names, shape.layers * MICROSECOND)[""]
    largest = min(curve.knots[-1] for curve in layers), min(curve.knots[-1] for curve in head)
    return _model(path, rows, _sum(layers), _sum(head), per_step_s, largest)


def _calls(shape: ModelShape) -> dict[str, int]:
    """How often a step calls each layer of dense.csv; 0: a known layer that the model does not
    have."""
    calls = dict.fromkeys(ONCE, 1)
    calls |= {name: count * shape.layers for name, count in PER_LAYER.items()}
    return calls | dict.fromkeys(PER_DENSE_MLP, shape.dense_layers)


def _read_layers(path: Path, axis: str, calls: dict[str, int]) -> list[TimeCurve]:
    """A curve for each layer, multiplied by its calls per step."""
    tables = _read_csv(path, "layer", (axis,), MICROSECOND)
    for name in tables:
        if name not in calls:
            allowed = ", ".join(calls)
            raise InputError(f"the layer {name!r} is not known", where=str(path), allowed=allowed)
    missing = [name for name in NEEDED if calls.get(name, 0) and name not in tables]
    if missing:
        raise InputError(f"there are no rows for the layer {missing[0]}", where=str(path))
    curves = []
    for name, rows in tables.items():
        if len(rows) < 2:
            what = f"the layer {name} has {len(rows)} row"
            raise InputError(what, where=str(path), allowed=f"times at 2 or more numbers of {axis}")
        curve = _curve(rows)
        curves.append(TimeCurve(curve.knots, [calls[name] * time for time in curve.times]))
    return curves


def _experts(path: Path, shape: ModelShape) -> TimeCurve:
    """The time of the expert layers by tokens, with the mean number of experts under even
    routing."""
    rows = _read_csv(path, "", ("tokens", "activated_experts"), shape.moe_layers * MICROSECOND)[""]
    grid = _grid(rows)
    if len(grid.knots) < 2:
        raise InputError("there is one number of tokens", where=str(path), allowed="2 or more")
    times = []
    for tokens, curve in zip(grid.knots, grid.curves, strict=True):
        missed = (1.0 - shape.experts_per_token / shape.experts) ** tokens
        times.append(curve.at(shape.experts * (1.0 - missed)))
    return TimeCurve(grid.knots, times)


def _sum(curves: Sequence[TimeCurve]) -> TimeCurve:
    knots = sorted({knot for curve in curves for knot in curve.knots})
    return TimeCurve(knots, [math.fsum(curve.at(knot) for curve in curves) for knot in knots])


# Whole steps


def _whole_steps(path: Path, shape: ModelShape, per_step_s: float) -> Table:
    lines = [number for number, line in _lines(path) if line.strip()]
    found = read_measurements(path)
    names = {name: resolve_model(name).name for name in dict.fromkeys(row.shape for row in found)}
    rows: Rows = {}
    first: dict[Place, int] = {}
    for number, row in zip(lines, found, strict=True):
        if names[row.shape] != shape.name:
            continue
        prior = float(row.prior if row.prefill else 0)
        context = float(row.context if row.decodes else 0)
        place = (float(row.prefill), prior, float(row.decodes), context)
        if place in rows:
            what = f"the step was measured before, on line {first[place]}"
            raise InputError(what, where=f"{path}:{number}", allowed="each step once")
        rows[place] = row.ms * MILLISECOND
        first[place] = number
    if not rows:
        what = f"no step of {shape.name} was measured"
        measured = ", ".join(names) or "nothing"
        raise InputError(what, where=str(path), hint=f"the file has {measured}")
    return _model(path, rows, None, None, per_step_s)


# Both


def _model(
    path: Path,
    rows: Rows,
    tokens: TimeCurve | None,
    sequences: TimeCurve | None,
    per_step_s: float,
    largest: tuple[float, float] | None = None,
) -> Table:
    """Sorts rows over (new tokens, prior, decodes, context) into prompts, decodes and mixed steps.

    `largest` are the numbers of tokens and of sequences up to which single layers were measured.
    """
    prompt = {place[:2]: time for place, time in rows.items() if place[0] and not place[2]}
    decode = {place[2:]: time for place, time in rows.items() if place[2] and not place[0]}
    mixed = {place: time for place, time in rows.items() if place[0] and place[2]}
    if len({place[0] for place in prompt}) < 2:
        what = "prompts without decodes were measured at fewer than 2 numbers of new tokens"
        raise InputError(what, where=str(path), allowed="2 or more, to draw a line between")
    if len({place[0] for place in decode}) < 2:
        what = "decodes without prompts were measured at fewer than 2 numbers of sequences"
        raise InputError(what, where=str(path), allowed="2 or more, to draw a line between")
    grid = _grid(decode)
    for sequences_, curve in zip(grid.knots, grid.curves, strict=True):
        if len(curve.knots) < 2:
            what = f"{sequences_:g} decodes were measured at one context"
            raise InputError(what, where=str(path), allowed="2 or more, to draw a line between")
    longest = max((place[1] for place in mixed), default=0.0)
    joint = _deep_grid(mixed, 4) if mixed else None
    bounds = _bounds(rows, largest)
    return Table(_grid(prompt), grid, joint, longest, tokens, sequences, per_step_s, bounds)


def _bounds(rows: Rows, largest: tuple[float, float] | None) -> MeasuredBounds:
    """The largest sizes among the rows; in kernel tables, single layers limit tokens and
    sequences."""
    tokens = max(place[0] + place[2] for place in rows)
    decodes = max(place[2] for place in rows)
    if largest is not None:
        tokens, decodes = largest[0], min(decodes, largest[1])
    context = max(place[3] for place in rows if place[2])
    prompt = max(place[0] + place[1] for place in rows if place[0])
    return MeasuredBounds(int(tokens), int(decodes), int(context), int(prompt))


def _curve(rows: Rows) -> TimeCurve:
    ordered = sorted(rows.items())
    return TimeCurve([place[0] for place, _ in ordered], [time for _, time in ordered])


def _grid(rows: Rows) -> Grid:
    return _deep_grid(rows, 2)


def _deep_grid(rows: Rows, axes: int) -> Grid:
    parts: dict[float, Rows] = {}
    for place, time in rows.items():
        parts.setdefault(place[0], {})[place[1:]] = time
    knots = sorted(parts)
    if axes == 2:
        return Grid(knots, [], [_curve(parts[knot]) for knot in knots])
    return Grid(knots, [_deep_grid(parts[knot], axes - 1) for knot in knots], [])


# Lines of text


def _lines(path: Path) -> list[tuple[int, bytes]]:
    """The numbered lines of a file, which is rejected if too large to be a table."""
    return list(enumerate(read_bounded(path, MOST_BYTES).splitlines(), start=1))


def _read_csv(path: Path, key: str, axes: Sequence[str], unit: float) -> dict[str, Rows]:
    """Times in seconds by the key column (or "") and the axes; all faults of a file are reported at
    once."""
    lines = _lines(path)
    try:
        header = _cells(lines[0][1].removeprefix(codecs.BOM_UTF8)) if lines else []
    except InputError as fault:
        raise InputError(fault.what, where=f"{path}:1") from fault
    columns = [*([key] if key else []), *axes, "time_us"]
    missing = [name for name in columns if name not in header]
    if missing:
        what = f"the column {missing[0]} is missing"
        raise InputError(what, where=f"{path}:1", allowed=", ".join(columns))
    places = [header.index(name) for name in columns]
    tables: dict[str, Rows] = {}
    first: dict[tuple[str, Place], int] = {}
    faults: list[InputError] = []
    for number, line in lines[1:]:
        if not line.strip():
            continue
        try:
            name, place, time_us = _read_row(_cells(line), columns, places, named=bool(key))
            _insist_on_new(first.setdefault((name, place), number), number)
        except InputError as fault:
            where = f"{path}:{number}"
            faults.append(InputError(fault.what, where=where, allowed=fault.allowed))
            if len(faults) == MOST_FAULTS_SHOWN:
                break
            continue
        tables.setdefault(name, {})[place] = time_us * unit
    if faults:
        raise one_sentence_per(faults)
    if not tables:
        raise InputError("the table has no rows", where=str(path))
    return tables


def _insist_on_new(first: int, number: int) -> None:
    if first != number:
        raise InputError(f"the same sizes were measured on line {first}", allowed="each once")


def _read_row(
    row: Sequence[str], columns: Sequence[str], places: Iterable[int], *, named: bool
) -> tuple[str, Place, float]:
    found = [row[at] if at < len(row) else "" for at in places]
    cells = dict(zip(columns, found, strict=True))
    name = cells.pop(columns[0]) if named else ""
    time_us = _number(cells.pop("time_us"), "time_us")
    if not SHORTEST_CALL_US <= time_us <= LONGEST_CALL_US:
        allowed = f"{SHORTEST_CALL_US:g} (a nanosecond) to {LONGEST_CALL_US:.0f} (an hour)"
        raise InputError(f"time_us is {time_us:g}", allowed=allowed)
    sizes = []
    for axis, cell in cells.items():
        size = _number(cell, axis)
        if not (0 <= size <= LARGEST_SIZE and size == int(size)):
            raise InputError(f"{axis} is {cell}", allowed=f"a whole number up to {LARGEST_SIZE}")
        sizes.append(size)
    if not any(sizes):
        raise InputError(f"{' and '.join(cells)} are 0", allowed="something to compute")
    return name, tuple(sizes), time_us


def _cells(line: bytes) -> list[str]:
    try:
        rows = list(csv.reader([line.decode()], strict=True))
    except (csv.Error, UnicodeDecodeError) as error:
        raise InputError("the line is not a row of a table in UTF-8") from error
    return [cell.strip() for row in rows for cell in row]


def _number(cell: str, column: str) -> float:
    try:
        number = float(cell)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise InputError(f"{column} is {one_line(cell, 40) or 'empty'}", allowed="a number")
    return number
