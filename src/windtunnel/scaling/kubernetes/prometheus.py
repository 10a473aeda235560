"""Prometheus' HTTP API: queries and responses.

For pods, the query asks for the raw samples of a window (`{...}[45s]`) rather than an instant
value, which may be five minutes old without saying so. A response that reports an error, is too
large or is malformed raises `Unavailable` with the reason; no number is derived from it.
"""

import math
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

import msgspec

from windtunnel.core.errors import WindtunnelError, one_line
from windtunnel.scaling.kubernetes.pages import MetricSample, sample_value

LARGEST_ANSWER: Final = 32 << 20
MOST_SERIES: Final = 200_000
LONGEST_SAID: Final = 300
FUTURE_S: Final = 30.0
"""How far a server's clock may be ahead of ours."""


class Unavailable(WindtunnelError):
    """Metrics are unavailable, so no decision is based on them."""


class _Data(msgspec.Struct, rename="camel"):
    result_type: str = ""
    result: msgspec.Raw = msgspec.Raw(b"[]")


class _Answer(msgspec.Struct, rename="camel"):
    status: str = ""
    data: _Data | None = None
    error_type: str = ""
    error: str = ""


class _Series(msgspec.Struct):
    metric: dict[str, str] = {}
    values: list[tuple[float, str]] = []
    value: tuple[float, str] | None = None


_ANSWER: Final = msgspec.json.Decoder(_Answer)
_RESULT: Final = msgspec.json.Decoder(list[_Series])
_SCALAR: Final = msgspec.json.Decoder(tuple[float, str])


def pods_query(
    names: Sequence[str], namespace: str, pods: Sequence[str], window_s: float, *, pod_label: str
) -> str:
    """The query for the samples of these metrics and pods in the last seconds."""
    matchers = [
        f'__name__=~"{"|".join(map(_exactly, names))}"',
        f'namespace="{_quoted(namespace)}"',
        f'{pod_label}=~"{"|".join(map(_exactly, pods))}"',
    ]
    return f"{{{','.join(matchers)}}}[{max(1, math.ceil(window_s))}s]"


def _exactly(text: str) -> str:
    """Escapes a name for a regular expression within a query."""
    return _quoted("".join(f"\\{one}" if one in "\\.+*?()|[]{}^$" else one for one in text))


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def samples_by_pod(
    answer: bytes, now_s: float, oldest_s: float, *, pod_label: str
) -> dict[str, list[MetricSample]]:
    """By pod: the newest value of each series, unless older than `oldest_s`."""
    data = _success(answer)
    if data.result_type != "matrix":
        raise Unavailable(f"Prometheus answers a {one_line(data.result_type, 40)}, no matrix")
    found: dict[str, list[MetricSample]] = {}
    for series in _decoded(_RESULT, data.result)[:MOST_SERIES]:
        labels = series.metric
        name, pod = labels.get("__name__", ""), labels.get(pod_label, "")
        if not name or not pod or not series.values:
            continue
        at_s, text = series.values[-1]
        value = sample_value(text)
        if value is not None and now_s - oldest_s <= at_s <= now_s + max(FUTURE_S, oldest_s):
            found.setdefault(pod, []).append(MetricSample(name, labels, value))
    return found


class QueriedSeries(NamedTuple):
    """One series of a response."""

    labels: dict[str, str]
    values: list[tuple[float, float]]
    """Timestamps and finite values."""


def matrix_of(answer: bytes) -> list[QueriedSeries]:
    """The series of a response to a range query."""
    data = _success(answer)
    if data.result_type != "matrix":
        raise Unavailable(f"Prometheus answers a {one_line(data.result_type, 40)}, no matrix")
    found = []
    for series in _decoded(_RESULT, data.result)[:MOST_SERIES]:
        known = ((at_s, sample_value(text)) for at_s, text in series.values)
        values = [(at_s, value) for at_s, value in known if value is not None]
        found.append(QueriedSeries(series.metric, values))
    return found


def number_of(answer: bytes) -> float:
    """The single number of a response to an instant query: a scalar, or a vector of one sample."""
    data = _success(answer)
    if data.result_type == "scalar":
        _, text = _decoded(_SCALAR, data.result)
    elif data.result_type == "vector":
        series = _decoded(_RESULT, data.result)
        if len(series) != 1 or series[0].value is None:
            raise Unavailable(f"the query has {len(series)} results, and one is wanted")
        _, text = series[0].value
    else:
        kind = one_line(data.result_type, 40)
        raise Unavailable(f"the query answers a {kind}, no scalar and no vector")
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise Unavailable(f"the query answers {one_line(text, 40)!r}, no number")
    return value


def refusal(status: int, body: bytes) -> Unavailable:
    """The error for a response with a status other than 200."""
    said = ""
    with suppress(msgspec.DecodeError, UnicodeDecodeError):
        said = _ANSWER.decode(body).error
    more = f": {one_line(said, LONGEST_SAID)}" if said else ""
    return Unavailable(f"Prometheus answers {status}{more}")


def _success(answer: bytes) -> _Data:
    found: _Answer = _decoded(_ANSWER, answer)
    if found.status != "success" or found.data is None:
        said = one_line(found.error or found.error_type, LONGEST_SAID) or "no success"
        raise Unavailable(f"Prometheus answers: {said}")
    return found.data


def _decoded(decoder: "msgspec.json.Decoder[Any]", text: bytes | msgspec.Raw) -> Any:
    try:
        return decoder.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise Unavailable("what Prometheus answers cannot be read") from None


def unread(pods: Iterable[str]) -> str:
    """A message about pods without metrics."""
    names = sorted(pods)
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return f"no metrics of {shown}"
